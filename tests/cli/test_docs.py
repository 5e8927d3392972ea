"""docs/cli.md says what --help says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_help_gives():
    """Change an option, then run ``make docs``."""
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    make_cli = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_cli)
    assert (DOCS / "cli.md").read_text() == make_cli.page()
    assert "## rooftile audit" in make_cli.page()
