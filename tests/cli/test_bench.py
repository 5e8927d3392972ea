"""``rooftile bench``, with a benchmark that measures nothing and hands back ready rows."""

from __future__ import annotations

import measurements
import pytest

from rooftile.errors import GateError
from rooftile.records.io import read_lines
from rooftile.records.measurement import Measurement


@pytest.fixture
def measured(monkeypatch) -> list[dict[str, object]]:
    """What the benchmark was asked for."""
    asked: list[dict[str, object]] = []

    def benchmark(*targets, sink, progress, **options):
        asked.append({"targets": targets, **options})
        sink(measurements.sweep())
        if options["gate"]:
            raise GateError("gate ratio_to_copy >= 0.95 does not hold")

    monkeypatch.setattr("rooftile.api.benchmark.benchmark", benchmark)
    return asked


def test_the_table_goes_to_stdout(cli, measured):
    """One row a provider; what was not given has its default."""
    result = cli("bench", "softmax")
    assert result.code == 0
    assert "65536x4096 bfloat16 rooftile 0.2500 ms" in " ".join(result.out.split())
    assert measured == [
        {
            "targets": ("softmax",), "shapes": None, "dtype": None, "directions": None,
            "against": None, "gate": None, "interpret": False,
            "cache": "balanced", "rounds": 50, "results": None,
        }
    ]  # fmt: skip


def test_options_are_handed_on(cli, measured):
    """Each in the form the function takes."""
    cli(
        "bench", "softmax", "k.py:CASE", "--shapes", "4x8", "--direction", "forward", "--against",
        "", "--dtype", "fp16", "--warm", "--rounds", 7, "--results", "r", "--interpret",
    )  # fmt: skip
    (asked,) = measured
    assert asked["targets"] == ("softmax", "k.py:CASE")
    assert (asked["shapes"], asked["directions"], asked["against"]) == ([(4, 8)], ("forward",), ())
    assert (asked["cache"], asked["rounds"], asked["results"]) == ("warm", 7, "r")
    assert (asked["dtype"], asked["interpret"]) == ("fp16", True)


def test_files_are_written(cli, measured, tmp_path):
    """JSON lines that come back equal, and a page."""
    result = cli("bench", "--json", tmp_path / "a.jsonl", "--html", tmp_path / "a.html")
    assert read_lines(tmp_path / "a.jsonl", Measurement) == measurements.sweep()
    assert "<!doctype html>" in (tmp_path / "a.html").read_text()
    assert result.err.count("wrote ") == 2


def test_a_broken_gate_is_exit_code_1_after_the_table(cli, measured):
    """What was measured is shown whatever came of it."""
    result = cli("bench", "softmax", "--gate", "ratio_to_copy >= 0.95")
    assert result.code == 1
    assert "rooftile" in result.out
    assert "does not hold" in result.err


def test_bad_input_is_exit_code_2_before_anything_runs(cli, measured, tmp_path):
    """Two states of the cache, a folder that is not there, a shape that is none."""
    for words in (("--warm", "--clean"), ("--json", tmp_path / "no" / "a"), ("--shapes", "4by8")):
        assert cli("bench", "softmax", *words).code == 2
    assert measured == []
