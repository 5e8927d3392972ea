"""``rooftile occupancy`` with a kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Result
from compile.conftest import KERNELS, SOFTMAX

import rooftile
from rooftile.records.io import from_json
from rooftile.records.resources import Sweep

SRC = str(Path(rooftile.__file__).parents[1])


@pytest.fixture
def run(cli):
    """The command within this process."""
    return lambda *args: cli("occupancy", *args)


def alone(*args: object) -> Result:
    """The command as a process of its own, which starts the server as one."""
    done = subprocess.run(
        [sys.executable, "-m", "rooftile", "occupancy", *map(str, args)],
        env={**os.environ, "PYTHONPATH": SRC},
        capture_output=True,
        text=True,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def test_a_sweep_shows_the_paradox_and_both_vendors(tmp_path):
    """Bigger blocks take more registers and lose occupancy until they spill; the pick is none of
    these; the chart and the JSON hold the same."""
    page = tmp_path / "sweep.html"
    args = (
        f"{KERNELS}:softmax_kernel", "--signature", SOFTMAX, "--arch", "sm_90", "--arch", "gfx942",
        "--sweep", "BLOCK=1024,4096,16384,32768", "--const", "num_warps=4",
    )  # fmt: skip
    done = alone(*args, "--html", page)
    assert done.code == 0, done.err
    assert "softmax_kernel on sm_90" in page.read_text()
    assert sum(line.startswith("*") for line in done.out.splitlines()) == 2
    nvidia, amd = [
        from_json(line.encode(), Sweep) for line in alone(*args, "--json").out.split("\n")[:2]
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


def test_a_kernel_that_does_not_compile_is_a_row(run):
    """The other block is picked."""
    done = run(f"{KERNELS}:softmax_kernel", "--signature", SOFTMAX, "--sweep", "BLOCK=1000,2048")
    assert done.code == 0
    assert "kernels.py:18: arange's range must be a power of 2" in done.out
    assert "BLOCK=2048: the largest tile" in done.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["absent.py:k"], "error: kernel's file absent.py does not exist"),
        ([f"{KERNELS}:softmax_kernel", "--arch", "sm_75"], "error: target must be one of"),
        ([f"{KERNELS}:softmax_kernel", "--signature", "i32"], "error: signature of softmax_kernel"),
    ],
)
def test_bad_input(args, message, run):
    """One line on stderr, exit code 2."""
    done = run(*args)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)
    assert done.err.count("\n") == 1


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sweep", "BLOK=1,2"), "'BLOK' must be an argument of softmax_kernel"),
        ((), "constant BLOCK of softmax_kernel has no value: give BLOCK=..."),
        (("--sweep", "BLOCK=8", "--sweep", "BLOCK=16"), "BLOCK must be given once"),
        (("--sweep", "BLOCK=8", "--const", "BLOCK=16"), "BLOCK must be given once"),
        (("--const", "BLOCK=8,16"), "--const must be NAME=VALUE, got 'BLOCK=8,16'"),
        (("--const", "BLOCK=1000"), "kernels.py:"),
    ],
)
def test_what_no_configuration_can_do_is_an_error(options, words, run):
    """Exit code 2, the message alone and no table."""
    done = run(f"{KERNELS}:softmax_kernel", "--signature", SOFTMAX, *options)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_several_reasons_stand_in_the_table_before_the_error(run):
    """Two block sizes fail in two ways; exit code 2."""
    done = run(f"{KERNELS}:softmax_kernel", "--signature", SOFTMAX, "--sweep", "BLOCK=1000,4194304")
    assert done.code == 2
    assert "power of 2" in done.out
    assert "exceeds triton maximum" in done.out
    assert "none of the 2 configurations compiles" in done.err


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_more_threads_than_a_block_has_are_one_row(target, run):
    """64 warps are 2,048 threads on the one, 4,096 on the other; 4 warps are picked."""
    done = run(
        f"{KERNELS}:softmax_kernel", "--signature", SOFTMAX, "--const", "BLOCK=4096",
        "--sweep", "num_warps=64,4", "--arch", target, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = from_json(done.out.encode(), Sweep)
    assert found.rows[0].resources.threads == (2048 if target == "sm_90" else 4096)
    assert (found.rows[0].blocks, found.pick) == (0, 1)
    assert f"cannot launch: threads must be 1 to 1024 on {target}" in found.rows[0].error


def test_what_ptxas_refuses_is_told_without_its_files(run):
    """The finding alone: no temporary file, no command to repeat it."""
    done = run(
        f"{KERNELS}:softmax_kernel", "--signature", SOFTMAX, "--const", "BLOCK=1024",
        "--const", "maxnreg=0",
    )  # fmt: skip
    assert done.code == 2
    assert done.err == (
        "error: softmax_kernel does not assemble for sm_90: Positive non-zero value expected for"
        " maxnreg\n"
    )


def test_a_file_that_ends_the_process_is_refused(tmp_path, run):
    """``sys.exit`` at import is the file's fault: exit code 2 and its name."""
    file = tmp_path / "ends.py"
    file.write_text("import sys\nsys.exit(3)\n")
    done = run(f"{file}:kernel")
    assert done.code == 2
    assert f"cannot import {file}: SystemExit: 3" in done.err


def test_a_kernel_in_a_package_imports_its_neighbours(tmp_path, run):
    """By its file as by its dotted name, with a call that gives its types."""
    package = tmp_path / "kernels_of_a_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(
        "import triton\n@triton.jit\ndef twice(x):\n    return x + x\n"
    )
    (package / "whole.py").write_text(
        "import torch, triton, triton.language as tl\n"
        "from .parts import twice\n"
        "@triton.jit\ndef double(x_ptr, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, BLOCK)\n"
        "    tl.store(x_ptr + offs, twice(tl.load(x_ptr + offs)))\n"
        "def example():\n    double[(1,)](torch.empty(1024), BLOCK=1024)\n"
    )
    done = run(f"{package / 'whole.py'}:double", "--json")
    assert done.code == 0, done.err
    assert from_json(done.out.encode(), Sweep).rows[0].resources.load_width_bytes == 16
