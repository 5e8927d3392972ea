"""docs/ops.md is run as written and names every op."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import torch

from rooftile import ops

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"


def test_the_page_shows_what_the_ops_give(device):
    """Every example, on the device that this run has."""
    text = PAGE.read_text().replace("```", "")
    page = doctest.DocTestParser().get_doctest(text, {}, "ops", str(PAGE), 0)
    assert len(page.examples) == 13
    with torch.device(device):
        result = doctest.DocTestRunner(verbose=False).run(page, out=lambda _: None)
    assert result.failed == 0


def test_the_page_names_every_public_name():
    """Each function and module of ``rooftile.ops``, but the one that plans attention."""
    named = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    assert set(ops.__all__) - named == {"attention_plan"}
