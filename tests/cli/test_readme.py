"""README shows what its command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("transformers")


def test_the_audit_prints_what_readme_shows(cli, monkeypatch):
    """Every line of the block, in its order."""
    monkeypatch.chdir(ROOT)
    readme = (ROOT / "README.md").read_text()
    shown = readme.split("```text\n")[1].split("```")[0].splitlines()
    command = next(line for line in readme.splitlines() if line.startswith("$ rooftile audit"))
    result = cli(*command.removeprefix("$ rooftile ").removesuffix(" --html report.html").split())
    assert result.code == 0
    printed = result.out.splitlines()
    start = printed.index(shown[0])
    assert printed[start : start + len(shown)] == shown
