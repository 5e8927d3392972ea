"""docs/attention.md is run as written."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "attention.md"


def failures(text: str) -> int:
    """How many of the page's nine examples print something else."""
    found = doctest.DocTestParser().get_doctest(text, {}, "attention", str(PAGE), 0)
    assert len(found.examples) == 9
    return doctest.DocTestRunner(verbose=False).run(found, out=lambda _: None).failed


def test_the_page_shows_what_the_plan_says():
    """An example that has aged fails."""
    assert failures(PAGE.read_text().replace("```", "")) == 0


def test_a_wrong_example_is_found():
    """Meta-test: a plan of another number of splits differs."""
    text = PAGE.read_text().replace("```", "").replace("num_splits=16", "num_splits=17")
    assert failures(text) == 1
