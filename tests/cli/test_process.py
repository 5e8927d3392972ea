"""The command line as a process: streams, exit codes, signals."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rooftile.records.io import read_record

SRC = Path(__file__).parents[2] / "src"


NOISY = """
import logging, warnings
import torch
import torch.nn.functional as F

warnings.warn("old", stacklevel=1)

class Noisy(torch.nn.Linear):
    def forward(self, x):
        for other in (torch.zeros(8, dtype=torch.bfloat16), torch.zeros(9)):
            try:
                x.lerp(other, 0.5)  # fake tensors log such a failure with its traceback
            except RuntimeError:
                pass
        F.grid_sample(x.view(1, 1, 6, 4), x.new_zeros(1, 2, 2, 2))  # torch warns of its default
        logging.getLogger("mine").error("my own words")
        return super().forward(x)

def make():
    print("printed")
    return Noisy(8, 4), torch.zeros(3, 8)
"""


@pytest.fixture
def toy(tmp_path) -> None:
    """A target of one small layer in the test's folder."""
    (tmp_path / "toy_layer.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(8, 4), torch.zeros(3, 8)\n"
    )


def test_data_and_words_go_apart(process):
    """stdout has the data, without escapes; stderr is empty."""
    result = process("gpus", "h100-sxm")
    assert (result.code, result.err) == (0, "")
    assert result.out.isascii()
    assert "\x1b" not in result.out


def test_an_error_is_one_line_on_stderr(process):
    """Exit code 2 and no traceback of ours."""
    result = process("gpus", "h300")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: gpu ")
    assert result.err.count("\n") == 1


def test_an_audit_from_end_to_end(process, tmp_path):
    """192 FLOP of a layer that maps 3 rows of 8 to 4, as table and as a file that reads back.

    stderr has our words and the user's; what torch logs and warns of is in neither stream.
    """
    (tmp_path / "noisy.py").write_text(NOISY)
    result = process("audit", "noisy.py:make", "--json", "out.json", cwd=tmp_path)
    assert (result.code, result.err) == (0, "printed\nmy own words\nwrote out.json\n")
    assert result.out.startswith("op ")
    assert "matmul FLOP  192\n" in result.out
    assert read_record(tmp_path / "out.json").totals.matrix_flops == 192


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_a_terminal_sees_a_bar_and_the_data_stay_clean(toy, tmp_path):
    """Progress goes to the terminal behind stderr; the CSV in the pipe knows nothing of it."""
    import pty

    ours, theirs = pty.openpty()
    shown = bytearray()

    def watch() -> None:
        with contextlib.suppress(OSError):  # the end of a pseudo-terminal
            while part := os.read(ours, 65536):
                shown.extend(part)

    # read while it runs: a terminal that nobody reads holds up what writes to it
    watcher = threading.Thread(target=watch)
    watcher.start()
    done = subprocess.run(
        [sys.executable, "-m", "rooftile", "audit", "toy_layer.py:make", "--csv", "-"],
        stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": str(SRC), "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    watcher.join()
    os.close(ours)
    assert done.returncode == 0
    assert b"importing torch" in shown
    assert done.stdout.startswith(b"index,op,")
    assert b"\x1b" not in done.stdout


def test_a_reader_that_leaves_is_no_error(start):
    """``rooftile gpus --json | head -1``: nothing on stderr, whatever was left to print."""
    started = start("gpus", "--json")
    started.stdout.close()
    started.wait(timeout=60)
    assert started.stderr.read() == ""


def test_a_locale_without_the_letters_is_no_error(tmp_path):
    """A file name that ASCII cannot hold is escaped, not a UnicodeEncodeError."""
    env = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "rooftile", "audit", "m.py:make", "--json", "größe/a.json"],
        env=env, capture_output=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"gr\\xf6\\xdfe" in done.stderr


@pytest.mark.parametrize("torch", [True, False])
def test_ctrl_c_is_130_and_leaves_nothing(torch, start, tmp_path):
    """While the user's own file runs, before or after torch is loaded."""
    ready = tmp_path / "ready"
    (tmp_path / "model.py").write_text(
        f"import pathlib, time\npathlib.Path({str(ready)!r}).touch()\ntime.sleep(60)\n"
    )
    if not torch:  # held where torch would be imported
        (tmp_path / "torch.py").write_text((tmp_path / "model.py").read_text())
    started = start("audit", "model.py:make", "--json", "out.json", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not ready.exists() and started.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=30)
    assert started.returncode == 130
    assert (out, "Traceback" in err) == ("", False)
    assert not (tmp_path / "out.json").exists()


def test_a_fault_of_ours_keeps_its_traceback(tmp_path):
    """What was not raised on purpose is not dressed up: a traceback and exit code 1."""
    code = (
        "import rooftile.api.gpus, rooftile.cli, sys\n"
        "rooftile.api.gpus.gpus = lambda: 1 / 0\n"
        "sys.argv = ['rooftile', 'gpus']\nrooftile.cli.main()"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_leaving_does_not_take_torch_apart(tmp_path):
    """With torch loaded the output is whole, the exit code right, and no teardown is run."""
    (tmp_path / "torch.py").write_text(
        "import atexit\natexit.register(print, 'torn down')\n"  # stands for the real one
    )
    code = (
        "import torch, sys, rooftile.cli\n"
        "sys.argv = ['rooftile', 'gpus', 'h300' if len(sys.argv) > 1 else 'h100-sxm']\n"
        "rooftile.cli.main()"
    )
    env = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{tmp_path}"}
    good = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    bad = subprocess.run(
        [sys.executable, "-c", code, "x"], env=env, capture_output=True, text=True, check=False
    )
    assert (good.returncode, bad.returncode) == (0, 2)
    assert good.stdout.endswith("given by you\n")
    assert bad.stderr.startswith("error: gpu")
    assert "torn down" not in good.stdout + bad.stdout
