"""``rooftile occupancy`` with a kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compile.conftest import KERNELS, SOFTMAX

import rooftile
from rooftile.records.io import from_json
from rooftile.records.resources import Sweep

SRC = str(Path(rooftile.__file__).parents[1])


def run(*args: object) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rooftile", "occupancy", *map(str, args)],
        env={**os.environ, "PYTHONPATH": SRC},
        capture_output=True,
        text=True,
    )


def test_a_sweep_shows_the_paradox_and_both_vendors(tmp_path):
    """Bigger blocks take more registers and lose occupancy until they spill; the pick is none of
    these; the chart and the JSON hold the same."""
    page = tmp_path / "sweep.html"
    args = (
        f"{KERNELS}:softmax_kernel", "--signature", SOFTMAX, "--arch", "sm_90", "--arch", "gfx942",
        "--sweep", "BLOCK=1024,4096,16384,32768", "--const", "num_warps=4",
    )  # fmt: skip
    done = run(*args, "--html", page)
    assert done.returncode == 0, done.stderr
    assert "softmax_kernel on sm_90" in page.read_text()
    assert sum(line.startswith("*") for line in done.stdout.splitlines()) == 2
    nvidia, amd = [
        from_json(line.encode(), Sweep) for line in run(*args, "--json").stdout.split("\n")[:2]
    ]
    registers = [row.resources.registers for row in nvidia.rows]
    shares = [row.occupancy for row in nvidia.rows]
    assert registers == sorted(registers)
    assert registers[0] < 32 < 128 < registers[-1]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert shares[-1] <= 0.125
    assert nvidia.rows[-1].resources.spills > 0
    assert nvidia.rows[nvidia.pick].config == {"BLOCK": 4096}
    assert amd.target == "gfx942"


def test_a_kernel_that_does_not_compile_is_a_row():
    """The other block is picked."""
    done = run(f"{KERNELS}:softmax_kernel", "--signature", SOFTMAX, "--sweep", "BLOCK=1000,2048")
    assert done.returncode == 0
    assert "kernels.py:18: arange's range must be a power of 2" in done.stdout
    assert "BLOCK=2048: the largest tile" in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["absent.py:k"], "error: kernel's file absent.py does not exist"),
        ([f"{KERNELS}:softmax_kernel", "--arch", "sm_75"], "error: target must be one of"),
        ([f"{KERNELS}:softmax_kernel", "--signature", "i32"], "error: signature of softmax_kernel"),
    ],
)
def test_bad_input(args, message):
    """One line on stderr, exit code 2."""
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_a_sweep_of_24_from_the_cache():
    """The second time nothing is compiled: under 1 s of processor time beyond the first import."""
    values = {"BLOCK": (512, 1024, 2048, 4096), "num_warps": (2, 4, 8), "num_stages": (1, 2)}

    def timed():
        begun = time.perf_counter()
        (result,) = rooftile.sweep_kernel(
            f"{KERNELS}:softmax_kernel", ["sm_90"], values=values, signature=SOFTMAX
        )
        return result, time.perf_counter() - begun

    first, compiling = timed()
    second, reading = timed()
    assert len(first.rows) == 24
    assert second == first
    assert reading < compiling / 2
