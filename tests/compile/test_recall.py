"""Answers that are given without a compile server, and when they no longer hold."""

from __future__ import annotations

import os
import time

import pytest

import rooftile
from rooftile.compile import run as client
from rooftile.compile.run import compile_all
from rooftile.errors import InputError

pytestmark = pytest.mark.usefixtures("own_process")

KERNEL = """
import os
from pathlib import Path
import triton
import triton.language as tl
from neighbour import SCALE, scaled

WIDTH = int(os.environ.get("KERNEL_WIDTH", "1"))
SHIFT = tl.constexpr(int((Path(__file__).parent / "shift.txt").read_text()))

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, scaled(tl.load(x_ptr + offs)) + SHIFT)
"""
NEIGHBOUR = """
import triton
import triton.language as tl
SCALE = tl.constexpr(3)

@triton.jit
def scaled(x):
    return x * SCALE
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A kernel that reads a neighbour, a text file and a variable."""
    monkeypatch.delenv("KERNEL_WIDTH", raising=False)
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    (tmp_path / "shift.txt").write_text("5")
    path = tmp_path / "own_kernel.py"
    path.write_text(KERNEL)
    _age(tmp_path)
    return path


@pytest.fixture
def starts(own_process, monkeypatch):
    """A list that grows by one with every server that is started."""
    started = []

    def noted(request, ask=client._answers):
        started.append(len(request["builds"]))
        return ask(request)

    monkeypatch.setattr(client, "_answers", noted)
    return started


def ask(file, **options):
    """Two blocks of the kernel, and one that does not compile."""
    return compile_all(
        f"{file}:kernel", ["sm_90"], [{"BLOCK": n} for n in (128, 256, 300)],
        signature="*i32:16", **options,
    )  # fmt: skip


def test_what_was_asked_before_starts_no_server(file, starts):
    """All three answers are the same, the error too, within 0.2 s, the best of five."""
    first = ask(file)
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        assert ask(file) == first
        times.append(time.perf_counter() - begun)
    assert min(times) < 0.2
    assert starts == [3]
    assert [kernel.threads for kernel in first[:2]] == [128, 128]
    assert "arange's range must be a power of 2" in first[2]


def test_only_what_is_new_is_asked(file, starts):
    """A fourth configuration is the one that a server is started for."""
    ask(file)
    outcomes = compile_all(
        f"{file}:kernel", ["sm_90"], [{"BLOCK": n} for n in (128, 512, 256)], signature="*i32:16"
    )
    assert starts == [3, 1]
    assert [kernel.constants["BLOCK"] for kernel in outcomes] == [128, 512, 256]


@pytest.mark.parametrize("change", ["kernel", "neighbour", "data", "variable", "shadow", "knob"])
def test_a_change_of_what_it_read_asks_again(file, starts, monkeypatch, change):
    """The file, what it imports, what it opens, the environment, a module that would go before."""
    folder = file.parent
    before = ask(file)
    if change == "kernel":
        file.write_text(KERNEL.replace("+ SHIFT", "- SHIFT"))
    elif change == "neighbour":
        (folder / "neighbour.py").write_text(NEIGHBOUR.replace("(3)", "(7)"))
    elif change == "data":
        (folder / "shift.txt").write_text("6")
    elif change == "variable":
        monkeypatch.setenv("KERNEL_WIDTH", "2")
    elif change == "shadow":
        (folder / "neighbour").mkdir()
        (folder / "neighbour" / "__init__.py").write_text(NEIGHBOUR.replace("(3)", "(9)"))
    else:
        monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
    after = ask(file)
    assert starts == [3, 3]
    if change not in ("variable", "knob"):
        assert before[0].compile_s != after[0].compile_s, "compiled anew, not read"


def test_a_file_written_while_it_is_read_is_not_remembered(file, starts):
    """What was imported is then not known to be what lies there."""
    future = time.time() + 60
    os.utime(file, (future, future))
    ask(file)
    ask(file)
    assert starts == [3, 3]


def test_without_the_cache_a_server_is_started(file, starts):
    """``cache=False`` neither reads nor writes."""
    ask(file, cache=False)
    ask(file, cache=False)
    assert starts == [3, 3]


def test_a_compiler_that_died_is_asked_again(starts):
    """A death or a time-out may be the machine's; it is no answer for the next time."""
    from compile.conftest import KERNELS

    def dying():
        return compile_all(f"{KERNELS}:dying_kernel", ["sm_90"], [{"BLOCK": 512}],
                           signature="*i32:16")  # fmt: skip

    assert "the compiler died of SIGABRT" in dying()[0]
    dying()
    assert starts == [1, 1]


def test_a_file_that_says_much_does_not_stop_the_server(tmp_path):
    """A megabyte of words on both streams at import."""
    path = tmp_path / "wordy.py"
    path.write_text(
        "import sys, triton\nprint('x' * 1000000)\nprint('x' * 1000000, file=sys.stderr)\n"
        "@triton.jit\ndef kernel(x_ptr):\n    pass\n"
    )
    assert rooftile.compile_kernel(f"{path}:kernel", "sm_90", signature="*i32").registers > 0


def test_a_request_that_is_wrong_is_no_answer(file, starts):
    """It is said each time."""
    for _ in range(2):
        with pytest.raises(InputError, match="has no kernel 'absent'"):
            compile_all(f"{file}:absent", ["sm_90"], [{}], signature="*i32:16")
    assert starts == [1, 1]


def _age(folder):
    """All files a second older than now: what is as young as the server is not trusted."""
    past = time.time() - 1
    for path in folder.iterdir():
        os.utime(path, (past, past))
