"""Plots of committed results."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import measurements
import pytest

from rooftile.bench.results import append
from rooftile.errors import InputError


@pytest.fixture
def plot(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("plot")


def test_only_sweeps_of_large_problems_are_drawn(plot):
    """Not a single width, not the shape where host time is all there is."""
    tiny = replace(measurements.measurement(n=1024), shape={"M": 64, "N": 1024},
                   cost=measurements.Cost(read_bytes=1000))  # fmt: skip
    found = plot.sweeps([*measurements.sweep(), tiny, measurements.product()])
    assert list(found) == [("softmax", "forward", "bfloat16")]
    assert len(found["softmax", "forward", "bfloat16"]) == 6


def test_the_last_run_of_a_shape_counts(plot):
    """A file may have several of a day."""
    old, new = measurements.measurement(ms=0.9), measurements.measurement(ms=0.25)
    assert plot.latest([old, new]) == [new]


def test_nothing_to_draw_is_an_error(plot, tmp_path):
    """Not an empty picture."""
    with pytest.raises(InputError, match="results must hold an op at two widths or more"):
        plot.write([measurements.measurement()], tmp_path)


def test_a_png_a_sweep_is_written(plot, tmp_path, capsys):
    """From a file of results, by the name of op and pass."""
    pytest.importorskip("matplotlib")
    append(tmp_path / "a.jsonl", measurements.sweep())
    assert plot.main([str(tmp_path / "a.jsonl"), str(tmp_path / "images")]) == 0
    (picture,) = (tmp_path / "images").iterdir()
    assert picture.name == "softmax_forward.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"{picture}\n"


def test_bad_input_is_exit_code_2(plot, tmp_path, capsys):
    """With one line that says what is wrong."""
    assert plot.main([]) == 2
    assert plot.main([str(tmp_path / "missing.jsonl"), str(tmp_path)]) == 2
    assert "cannot read" in capsys.readouterr().err
