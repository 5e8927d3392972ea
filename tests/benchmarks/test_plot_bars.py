"""Bars of committed results."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import measurements
import pytest

from rooftile.bench.results import append
from rooftile.errors import InputError


@pytest.fixture
def bars(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("plot_bars")


def rows():
    """Two providers at the shape, one of them twice, another shape, a ceiling."""
    ours = measurements.product()
    return [
        replace(ours, seconds=(9e-3,)),
        ours,
        replace(ours, provider="cuda", seconds=(1e-3,)),
        replace(ours, shape={"M": 9, "K": 2, "V": 3}),
        replace(ours, provider="matmul"),
    ]


def test_the_fastest_comes_first(bars):
    """The last run of each provider at that shape, without ceilings."""
    (found,) = bars.at_shape(rows(), "linear_cross_entropy", "1x2x3").values()
    assert [(row.provider, row.seconds) for row in found] == [
        ("cuda", (1e-3,)), ("rooftile", (2e-3,)),
    ]  # fmt: skip


def test_a_shape_that_was_not_run_is_an_error(bars):
    """Not an empty picture."""
    with pytest.raises(InputError, match="results must hold attention at 1x2x3, got none"):
        bars.at_shape(rows(), "attention", "1x2x3")


def test_a_png_a_pass_is_written(bars, tmp_path, capsys):
    """By the name of op, pass and shape."""
    pytest.importorskip("matplotlib")
    append(tmp_path / "a.jsonl", rows())
    words = ["linear_cross_entropy", "1x2x3", str(tmp_path / "images")]
    assert bars.main([str(tmp_path / "a.jsonl"), *words]) == 0
    (picture,) = (tmp_path / "images").iterdir()
    assert picture.name == "linear_cross_entropy_forward_1x2x3.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"{picture}\n"


def test_bad_input_is_exit_code_2(bars, tmp_path, capsys):
    """With one line that says what is wrong."""
    assert bars.main([]) == 2
    assert bars.main([str(tmp_path / "missing.jsonl"), "softmax", "1x2", str(tmp_path)]) == 2
    assert "cannot read" in capsys.readouterr().err
