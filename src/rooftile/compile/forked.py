"""Runs pieces of work in forked processes of their own: one that dies takes nothing with it."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rooftile.errors import RooftileError

Work = Callable[[], bytes]


@dataclass
class _Child:
    """A piece of work under way."""

    index: int
    folder: Path
    deadline: float

    @property
    def out(self) -> Path:
        """Where its result goes."""
        return self.folder / f"{self.index}.out"

    @property
    def error(self) -> Path:
        """Where its error goes."""
        return self.folder / f"{self.index}.error"

    @property
    def log(self) -> Path:
        """Where all that it prints goes."""
        return self.folder / f"{self.index}.log"


def run_forked(
    works: Sequence[Work], cores: int, timeout_s: float
) -> Iterator[tuple[int, bytes | str]]:
    """Run every piece of work, so many at once.

    Triton's own cache is an empty folder while it lasts.

    Args:
        works: Each gives bytes.
        cores: Processes at once.
        timeout_s: One that takes longer is ended [s].

    Yields:
        A work's position and its bytes, or in words why there are none, as they end.
    """
    waiting = list(enumerate(works))
    running: dict[int, _Child] = {}
    with tempfile.TemporaryDirectory(prefix="rooftile-") as name, _cache_in(name):
        gc.collect()
        gc.freeze()  # a collection in a child would copy every page it looks at
        try:
            while waiting or running:
                while waiting and len(running) < cores:
                    index, work = waiting.pop(0)
                    child = _Child(index, Path(name), time.monotonic() + timeout_s)
                    running[_fork(work, child)] = child
                pid, status = _next(running)
                child = running.pop(pid)
                yield child.index, _result(child, status, timeout_s)
        finally:
            gc.unfreeze()
            for pid in running:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


@contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    """Triton's cache in a folder of its own."""
    name = "TRITON_CACHE_DIR"
    before = os.environ.get(name)
    os.environ[name] = os.path.join(folder, "triton")
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _fork(work: Work, child: _Child) -> int:
    """Start a process that writes one file; returns its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)  # so that ptxas ends with it
    log = os.open(child.log, os.O_RDWR | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        child.out.write_bytes(work())
        code = 0
    except RooftileError as error:
        child.error.write_text(str(error))
        code = 0
    except Exception as error:
        child.error.write_text(f"{type(error).__name__}: {error}")
        code = 0
    finally:
        os._exit(code)


def _next(running: dict[int, _Child]) -> tuple[int, int]:
    """The next child that ends, of itself or because its time is up."""
    while True:
        for pid, child in running.items():
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return pid, status
            if time.monotonic() > child.deadline:
                os.killpg(pid, signal.SIGKILL)
                return pid, os.waitpid(pid, 0)[1]
        time.sleep(0.002)


def _result(child: _Child, status: int, timeout_s: float) -> bytes | str:
    """What became of a child."""
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        return child.error.read_text() if child.error.exists() else child.out.read_bytes()
    if time.monotonic() > child.deadline:
        return f"compile takes longer than {timeout_s:g} s"
    how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "an exit"
    said = child.log.read_text(errors="replace").strip().splitlines()
    last = next((line for line in said if "ERROR" in line or "Assert" in line), (said or [""])[-1])
    return f"the compiler died of {how}: {last.strip()}"
