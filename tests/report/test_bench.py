"""A benchmark as a table and as a page."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import measurements
import pytest

from rooftile.api.claim import claims_from_rows
from rooftile.report.bench_html import bench_html, colour, groups, is_sweep, percent
from rooftile.report.bench_text import bench_lines, write_measurements
from rooftile.report.output import hand_out_benchmark


def text_of(rows, **options) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in bench_lines(rows, **options)]


def test_the_numbers_of_a_row():
    """1.074 GB in 0.25 ms are 4295 GB/s: 80 % of the copy, 89.5 % of the sheet, 1.2 of the peer."""
    row = next(line for line in text_of(measurements.sweep()) if "65536x4096" in line)
    cells = re.split(r"\s{2,}", row)
    assert cells == [
        "softmax", "forward", "65536x4096", "bfloat16", "rooftile", "0.2500 ms", "+0.0..+0.0 %",
        "4295", "80.0 %", "89.5 %", "1.20x", "12 us", "512 MiB", "█" * 19,
    ]  # fmt: skip


def test_printed_columns_agree_with_each_other():
    """ben-04: TFLOP/s times ms is the FLOP of one call, GB/s times ms its bytes."""
    cells = re.split(r"\s{2,}", text_of([measurements.product()])[4])
    ms, gb, tflops = float(cells[5].split()[0]), float(cells[7]), float(cells[8])
    assert tflops * ms == pytest.approx(1e12 / 1e9, rel=1e-3)
    assert gb * ms == pytest.approx((1e9 + 8) / 1e6, rel=1e-3)
    assert cells[9:12] == ["10.0 %", "71.4 %", "50.5 %"]


def test_the_heading_says_what_the_run_stood_on():
    """ben-01: the state of the cache among it."""
    first, second, *_ = text_of(measurements.sweep())
    assert first == "NVIDIA H200, driver 580.1, SM clock 1980 MHz, L2 cold"
    assert second == "torch 2.11.0, Triton 3.6.0, quack 0.6.5, 2026-12-01T10:00:00+00:00"
    warm = [replace(row, cache="warm") for row in measurements.sweep()]
    assert text_of(warm)[0].endswith("L2 warm")


def test_a_refusal_stands_below_the_table():
    """With its message; it has no row of numbers."""
    lines = text_of(measurements.sweep())
    assert lines[-1] == "softmax forward 4096x65536 bfloat16 by liger: RuntimeError: too wide"
    assert sum("liger" in line for line in lines) == 1


def test_a_missing_peer_is_named_once():
    """However many shapes it missed."""
    absent = [
        measurements.measurement("liger", n, seconds=(), error="is not installed: no liger_kernel")
        for n in (1024, 4096)
    ]
    lines = text_of([measurements.measurement(), *absent])
    assert lines[-1] == "liger is not installed: no liger_kernel"
    assert sum("liger" in line for line in lines) == 1


def test_an_unsettled_median_is_marked():
    """ben-02."""
    row = measurements.measurement(settled=False, seconds=(1e-3, 2e-3, 3e-3, 4e-3, 5e-3))
    cells = re.split(r"\s{2,}", text_of([row])[4])
    assert cells[5:7] == ["3.0000 ms *", "-40.0..+40.0 %"]


def test_a_check_alone_is_a_sentence():
    """Without a GPU there is no table."""
    row = measurements.measurement(seconds=())
    assert text_of([row])[-1] == (
        "softmax forward 65536x4096 bfloat16 by rooftile: right, error 0.001 of 0.01 allowed"
    )


def test_bars_survive_a_pipe_without_blocks():
    """In an encoding that has none they are of #."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    write_measurements(measurements.sweep(), out)
    out.flush()
    assert b"#" * 19 in raw.getvalue()


def test_the_page_has_a_chart_a_group_and_all_rows():
    """It stands alone: the script is in it, nothing is fetched."""
    page = bench_html([*measurements.sweep(), measurements.product()], title="A & B")
    assert page.count('class="plotly-graph-div"') == 2
    assert "<h1>A &amp; B</h1>" in page
    assert "softmax, forward, bfloat16: percent of a copy in the same run" in page
    assert "linear_cross_entropy, forward, bfloat16: percent of a matmul" in page
    assert "RuntimeError: too wide" in page
    assert not re.search(r'<script[^>]+src="http', page)


def test_charts_hold_what_was_timed():
    """Ceilings are the 100 %, and a row with an error is in no chart."""
    fast = measurements.measurement("quack", ms=0.01, error="above the theoretical 4800 GB/s")
    (members,) = groups([*measurements.sweep(), fast]).values()
    assert {row.provider for row in members} == {"rooftile", "quack"}
    assert [percent(row) for row in members[:2]] == pytest.approx([80.0, 100 * 0.2 / 0.3])


def test_a_provider_has_one_colour():
    """A peer without a colour of its own gets the same one every time."""
    assert colour("rooftile") == "#d1495b"
    assert colour("flash-attn-4") == colour("flash-attn-4")
    assert colour("flash-attn-4").startswith("#")


def test_shapes_that_differ_in_more_than_columns_are_bars():
    """Attention's shapes: a bar a provider over each, none at a width that two share."""
    shapes = ({"B": 16, "H": 32, "S": 4096, "D": 128}, {"B": 2, "H": 32, "S": 16384, "D": 128})
    rows = [replace(measurements.product(), op="attention", shape=shape) for shape in shapes]
    assert not is_sweep(rows)
    assert is_sweep(measurements.sweep())
    page = bench_html(rows)
    assert '"x":["16x32x4096x128","2x32x16384x128"]' in page
    assert "2.0000 ms, 500 TFLOP\\u002fs, 512 MiB" in page


def test_columns_are_written_out():
    """65,536 and not 65.536k."""
    page = bench_html(measurements.sweep())
    assert '"ticktext":["1,024","4,096","65,536"]' in page


def test_claims_stand_below_the_table(tmp_path):
    """In the terminal and on the page, and nothing where there is none."""
    row = {"op": "attention", "shape": "batch=16,heads=32,seq=4096,dim=128", "gpu": "h100-sxm",
           "time": "1.14 ms", "memory": "64 MB", "label": "theirs"}  # fmt: skip
    out = io.StringIO()
    given = {"html_to": str(tmp_path / "a.html"), "out": out}
    hand_out_benchmark(measurements.sweep(), claims=claims_from_rows([row]), **given)
    text = out.getvalue()
    assert text.index("claim    theirs") > text.index("too wide")
    assert "impossible in every reading: 4.19 x" in text
    assert "impossible in every reading: 4.19 x" in (tmp_path / "a.html").read_text()
    out.truncate(0)
    hand_out_benchmark(measurements.sweep(), claims=claims_from_rows([]), out=out)
    assert "claim" not in out.getvalue()
