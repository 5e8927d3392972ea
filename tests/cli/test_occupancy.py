"""``rooftile occupancy`` without a kernel, and ``rooftile tile``."""

from __future__ import annotations

import json

import pytest

from rooftile.records.io import from_json
from rooftile.records.occupancy import Occupancy, SimpleOccupancy
from rooftile.records.tile import RowTile, TilePlan


def test_numbers_of_one_s_own(cli):
    """The issue's example: 6 blocks, 75 %."""
    result = cli("occupancy", "--threads", 256, "--regs", 40, "--smem", 8192, "--arch", "sm_90")
    assert (result.code, result.err) == (0, "")
    assert "occupancy  75.0 %: 6 blocks, 48 of 64 warps" in result.out


def test_several_architectures(cli):
    """One block of lines each, one JSON record each."""
    args = ("occupancy", "--threads", 256, "--regs", 40, "--arch", "sm_90", "--arch", "gfx942")
    assert cli(*args).out.count("occupancy  ") == 2
    records = [
        from_json(line, Occupancy) for line in cli(*args, "--json").out.encode().splitlines()
    ]
    assert [record.target for record in records] == ["sm_90", "gfx942"]


def test_the_simple_formula(cli):
    """As text and as JSON."""
    args = ("occupancy", "--threads", 128, "--regs", 16, "--arch", "sm_80", "--simple")
    assert "200.0 %: 32 blocks, 128 of 64 warps, by the simple formula" in cli(*args).out
    record = from_json(cli(*args, "--json").out.encode(), SimpleOccupancy)
    assert record.occupancy == 2.0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "--threads must be given, or a kernel"),
        (["--threads", "0"], "threads must be 1 to 1024 on sm_90, got 0"),
        (["--threads", "1025"], "threads must be 1 to 1024 on sm_90, got 1025"),
        (["--threads", "32", "--regs", "256"], "registers must be 0 to 255 on sm_90, got 256"),
        (["--threads", "32", "--arch", "sm_95"], "target must be one of"),
        (["--sweep", "BLOCK=1"], "kernel must be given for --sweep"),
        (["k.py:k", "--regs", "4"], "do without a kernel"),
        (["k.py:k", "--sweep", "BLOCK"], "--sweep and --const must be NAME=VALUE, got 'BLOCK'"),
        (["k.py:k", "--floor", "101"], "--floor must be 0 to 100 percent, got 101"),
        (["k.py:k", "--gpu", "h1000"], "h1000"),
    ],
)
def test_bad_input_is_one_line(args, message, cli):
    """Exit code 2, on stderr, before anything is compiled."""
    result = cli("occupancy", *args)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_tiles(cli):
    """Text with the best first; JSON with all."""
    assert "128  256  128" in cli("tile", "matmul", "4096x4096x4096").out
    plan = from_json(cli("tile", "attention", "16x32x4096x128", "--json").out.encode(), TilePlan)
    assert (plan.op, plan.tiles[0].block_m) == ("attention", 128)
    row = from_json(cli("tile", "rows", 50257, "--gpu", "a10", "--json").out.encode(), RowTile)
    assert row.shape == "loop"


def test_a_wrong_shape(cli):
    """The form that is wanted."""
    result = cli("tile", "matmul", "4096")
    assert (result.code, result.err) == (
        2, "error: shape of matmul must be MxNxK, got '4096'\n"
    )  # fmt: skip


@pytest.mark.parametrize("name", ["occupancy", "kernel_resources", "sweep", "tile_plan", "traffic"])
def test_their_files_have_schemas(name, cli):
    """JSON Schema of each record."""
    schema = json.loads(cli("schema", name).out)
    assert schema["$defs"]
