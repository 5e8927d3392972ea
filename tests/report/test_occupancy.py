"""Occupancy and tiles as text and as a page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan.kernels import SOFTMAX, with_load

import rooftile
from rooftile.plan.sweep import sweep
from rooftile.report.occupancy import occupancy_lines, simple_lines, sweep_lines
from rooftile.report.occupancy_html import sweep_page
from rooftile.report.tile import tile_lines
from rooftile.spec.devices import device


def text(lines) -> list[str]:
    """Lines as they go to a pipe."""
    return ["".join(part for part, _ in line).rstrip() for line in lines]


@pytest.fixture
def sweeps():
    """Two targets, one configuration that fails."""
    configs = [{"BLOCK": 4096, "num_warps": 8}, {"BLOCK": 1000, "num_warps": 8}]
    error = "k.py:3: arange's range must be\na power of 2 <b>"
    amd = replace(SOFTMAX, target="gfx942", warp_size=64, threads=512, accumulation_registers=8)
    return (
        sweep("softmax_kernel", "sm_90", device("h100-sxm"), configs, [SOFTMAX, error]),
        sweep("softmax_kernel", "gfx942", device("mi300x"), configs, [amd, with_load(2, 1)]),
    )


def test_a_launch_in_words():
    """What is asked for, what is handed out, what binds, the cliffs."""
    found = rooftile.occupancy(target="sm_90", threads=256, registers=40, shared_bytes=8192)
    assert text(occupancy_lines(found)) == [
        "target     sm_90, per SM",
        "block      256 threads (8 warps), 40 registers, 8,192 B shared",
        "allocated  40 registers a thread, 10,240 a block; 9,216 B shared",
        "occupancy  75.0 %: 6 blocks, 48 of 64 warps",
        "limits     warps 8, blocks 32, registers 6, shared memory 25, barriers 64",
        "binding    registers",
        "cliff      8 registers fewer (32): 8 blocks, 100.0 %",
        "cliff      1 register more (41): 5 blocks, 62.5 %",
        "cliff      29,697 B of shared memory more (37,889): 5 blocks, 62.5 %",
    ]


def test_a_launch_that_fails_in_words():
    """No percentage."""
    lines = text(occupancy_lines(rooftile.occupancy(target="sm_90", threads=1024, registers=65)))
    assert lines[3].startswith("occupancy  cannot launch: 1024 threads of 72 registers")
    assert "binding    -" in lines


def test_the_simple_formula_in_words():
    """It says that it is one, and what it leaves out."""
    lines = text(simple_lines(rooftile.simple_occupancy(target="sm_90", threads=64, registers=32)))
    assert lines[2] == "occupancy  100.0 %: 32 blocks, 64 of 64 warps, by the simple formula"
    assert sum(line.startswith("left out") for line in lines) == 4


def test_both_vendors_in_one_table(sweeps):
    """A row a configuration and target, a star at each pick, an error in its row on one line."""
    lines = text(sweep_lines(sweeps))
    cells = [line.split() for line in lines[:5]]
    assert cells[0][:4] == ["arch", "BLOCK", "num_warps", "threads"]
    assert cells[1][:6] == ["*", "sm_90", "4096", "8", "256", "30"]
    assert lines[2].endswith("k.py:3: arange's range must be a power of 2 <b>")
    assert cells[3][:6] == ["*", "gfx942", "4096", "8", "512", "30+8"]
    assert lines[4].endswith("2-byte loads")
    assert lines[6].startswith("sm_90   32,993 B in flight a SM keep h100-sxm's memory busy")
    assert lines[7].startswith("pick    BLOCK=4096, num_warps=8: the largest tile")
    assert len(lines) == 10


def test_the_page_stands_alone(sweeps):
    """A chart a target with its script in the page, the table, nothing fetched, text escaped."""
    page = sweep_page(sweeps)
    assert page.startswith("<!doctype html>")
    assert page.count('class="plotly-graph-div"') == 2
    assert "softmax_kernel on gfx942" in page
    assert "power of 2 &lt;b&gt;" in page
    assert '<script src="http' not in page
    assert "cdn.plot.ly/plotly" not in page.split("<pre>")[1]


def test_tiles_in_words():
    """The shape, the least, one line a tile, what was refused."""
    lines = text(tile_lines(rooftile.tile("matmul", (4096, 4096, 4096), gpu="h100-sxm", top=2)))
    assert lines[:3] == [
        "matmul  4096 x 4096 x 4096 bfloat16",
        "GPU     h100-sxm (sm_90)",
        "least   100.7 MB if every tensor moved once",
    ]
    assert lines[5].split() == [
        "128", "256", "128", "2", "8", "196,608", "128", "1.644", "GB", "16.33", "512", "4", "97.0",
        "%",
    ]  # fmt: skip
    assert lines[-1].startswith("refused  ")


def test_rows_in_words():
    """One tile of a row, or many."""
    lines = text(tile_lines(rooftile.tile("rows", (1_300_000,), dtype="float32", gpu="a10")))
    assert lines[0] == "rows   1,300,000 columns of 4 B"
    assert "more than a Triton tensor has" in lines[1]
    assert lines[4] == "reads  2 of each row"
