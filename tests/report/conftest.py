"""A browser for the pages, where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Page, browser, find_chromium

from rooftile.report.html import html_report

LOCAL = ("file:", "data:", "blob:")
WIDTH, HEIGHT = 1360, 900


@pytest.fixture(scope="module")
def chromium() -> Iterator[Page]:
    """One browser for all tests of a file."""
    binary = find_chromium()
    if binary is None:
        pytest.skip("no chromium or google-chrome on the path, no CHROMIUM=...: page not opened")
    with browser(binary) as page:
        yield page


@pytest.fixture
def show(chromium, tmp_path) -> Iterator[Callable[..., Page]]:
    """Open a record's page at a fresh start; at the end it must have made no error."""

    def call(record, width: int = WIDTH, height: int = HEIGHT, scheme: str = "light") -> Page:
        file: Path = tmp_path / "report.html"
        file.write_bytes(html_report(record))
        chromium.errors.clear()
        chromium.requests.clear()
        chromium.size(width, height)
        chromium.prefer(scheme)
        chromium.open(file)
        return chromium

    yield call
    assert chromium.errors == []
    assert [url for url in chromium.requests if not url.startswith(LOCAL)] == []
