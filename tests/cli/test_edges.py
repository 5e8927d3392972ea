"""What a command line meets at its edges: full devices, early interrupts, files named twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
ENV = {**os.environ, "PYTHONPATH": str(SRC)}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux alone has a full device")
@pytest.mark.parametrize("args", [["gpus"], ["gpus", "--json"], ["schema", "graph"], ["--help"]])
def test_a_full_device_is_one_line(args):
    """Whether what is printed fits the buffer or not: no traceback, exit code 1."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rooftile", *args], stdout=full, stderr=subprocess.PIPE,
            text=True, env=ENV, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1, "error: cannot write to stdout: No space left on device\n"
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="a shell's word")
def test_a_closed_stdout_is_one_line():
    """``rooftile gpus >&-`` says that there is none."""
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m rooftile gpus >&-'], stderr=subprocess.PIPE,
        text=True, env=ENV, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: cannot write to stdout")


@pytest.mark.parametrize("where", ["rooftile.errors", "rooftile.cli.app", "typer"])
def test_ctrl_c_while_we_are_loaded(where, tmp_path):
    """An interrupt at the first import of ours, or of another's, is 130 and says nothing."""
    code = (
        "import builtins, signal, os, sys\n"
        "real = builtins.__import__\n"
        "def spy(name, *rest):\n"
        f"    if name == {where!r}:\n"
        "        builtins.__import__ = real\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest)\n"
        "from rooftile.cli import main\n"
        "builtins.__import__ = spy\n"
        "sys.argv = ['rooftile', 'gpus', 'h100-sxm']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENV, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--json", "a", "--csv", "a"], "error: --csv a is the file of --json"),
        (["--json", "a", "--html", "./a"], "error: --html ./a is the file of --json"),
        (["--json", "m.py"], "error: --json m.py is what m.py is read from"),
    ],
)
def test_a_file_is_written_once_never_over_a_source(args, message, cli, tmp_path, monkeypatch):
    """Refused before any work: one of the two would be lost."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text("1 / 0\n")
    result = cli("audit", "m.py:make", *args)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(message)
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "m.py").read_text() == "1 / 0\n"


def test_a_report_is_not_written_over(cli, tmp_path):
    """What a command reads stays: report, gate, diff."""
    path = tmp_path / "r.json"
    path.write_text("{}")
    for args in (["report", path, "--csv", path], ["gate", path, "bytes > 0", "--json", path],
                 ["diff", path, path, "--json", path]):  # fmt: skip
        result = cli(*args)
        assert (result.code, "is what" in result.err) == (2, True)
    assert path.read_text() == "{}"


def test_a_device_takes_two(cli, priced):
    """/dev/null is nobody's file."""
    assert cli("audit", "m.py:make", "--json", os.devnull, "--csv", os.devnull).code == 0


@pytest.mark.parametrize(
    ("flops", "moved", "message"),
    [
        ("1 TB", "1 GB", "flops must be in FLOP, got '1 TB'"),
        ("1 TFLOP", "1 GFLOP", "bytes must be in B, got '1 GFLOP'"),
        ("1 TFLOP/s", "1 GB", "flops must be in FLOP, got '1 TFLOP/s'"),
        ("1 TFLOP", "1 GB/s", "bytes must be in B, got '1 GB/s'"),
    ],
)
def test_units_are_those_of_the_argument(flops, moved, message, cli):
    """A number of another unit is a mistake, not the number."""
    result = cli(
        "roofline", "--flops", flops, "--bytes", moved, "--gpu", "h100-sxm", "--dtype", "bf16"
    )
    assert (result.code, message in result.err) == (2, True)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("tf32", "set_float32_matmul_precision('high')"),
        ("fp8", "must be one that a whole model runs in (bfloat16, float16, float32, float64)"),
        ("int8", "must be one that a whole model runs in"),
    ],
)
def test_a_dtype_that_no_model_runs_in(dtype, message, cli):
    """The message says what to do instead."""
    result = cli("audit", "m.py:make", "--dtype", dtype)
    assert (result.code, message in result.err) == (2, True)


def test_a_size_beyond_every_integer(cli):
    """--seq 2**63 is refused before torch is loaded."""
    started = time.perf_counter()
    result = cli("audit", "m.py:make", "--seq", 2**63)
    assert (result.code, "seq must be at most 2147483647" in result.err) == (2, True)
    assert time.perf_counter() - started < 1
