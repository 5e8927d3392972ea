"""Committed results as tables."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import measurements
import pytest

from rooftile.bench.results import append


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("tables")


def attention(variant, ms):
    """Ours, twice as fast as cuDNN."""
    row = replace(measurements.product(), op="attention", variant=variant, provider="rooftile")
    shape = {"B": 16, "H": 32, "S": 4096, "D": 128}
    return replace(
        row, shape=shape, seconds=(ms / 1e3,) * 3, best_peer="cudnn", best_peer_s=2e-3 * ms
    )


def test_a_sweep_is_a_line_by_columns(tables):
    """Narrow columns first, ours and the best peer in percent of the copy of the same rounds."""
    text = tables.tables(measurements.sweep())
    assert text.splitlines()[0].split("|")[2:5] == [" 1,024 ", " 4,096 ", " 65,536 "]
    assert "| softmax forward | " in text
    first = text.splitlines()[2].split("|")[2].strip()
    mine = next(row for row in measurements.sweep() if row.shape["N"] == 1024)
    assert first.startswith(f"{100 * mine.ratio_to_copy:.1f} / ")


def test_attention_is_a_line_a_shape(tables):
    """TFLOP/s, the ratio to the best peer and its name, a column a form and pass."""
    text = tables.tables([attention("", 2.0), attention("causal", 4.0)])
    assert text.splitlines()[0] == "| | full forward | causal forward |"
    assert text.splitlines()[2] == "| 16x32x4096x128 | 500 (2.00 cuDNN) | 250 (2.00 cuDNN) |"


def test_a_failed_row_says_so(tables):
    """It has no time to set beside anything."""
    failed = replace(attention("", 2.0), seconds=(), error="wrong result")
    assert "failed" in tables.tables([failed])


def test_the_command_reads_files(tables, tmp_path, capsys):
    """Several, the later one's rows counting; bad input is exit code 2."""
    append(tmp_path / "a.jsonl", measurements.sweep())
    assert tables.main([str(tmp_path / "a.jsonl")]) == 0
    assert "softmax forward" in capsys.readouterr().out
    assert tables.main([]) == 2
    assert tables.main([str(tmp_path / "no.jsonl")]) == 2
