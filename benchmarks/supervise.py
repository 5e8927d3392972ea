"""Keeps the process that measures alive: restarts it, and leaves out what brought it down."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from journal import Journal

CRASHED = 17  # exit code of a worker whose device no longer answers
SILENCE_S = 150  # without a word from the worker: longer than any compilation seen
_FALSE_STARTS = 3  # of a worker that fails before its first step


def supervise(command: Sequence[str], until: float, journal: Journal) -> int:
    """Keep a worker running until it is done or the time is up.

    Args:
        command: Starts the worker, which goes on where the journal says.
        until: End of the time, in seconds of ``time.time()``.
        journal: What the worker writes its steps to.

    Returns:
        0; 1 where the worker does not even begin.
    """
    false_starts = 0
    while time.time() < until and false_starts < _FALSE_STARTS:
        code, words = watch(command, until, journal)
        if code == 0:
            return 0
        if code == CRASHED and journal.last_is_done():
            continue  # the rows of the shape already say who failed
        blamed = journal.blame(words)
        false_starts += not blamed
        print(f"-- worker ended: {words}; left out: {blamed or 'nothing'}", flush=True)
    return int(false_starts >= _FALSE_STARTS)


def watch(
    command: Sequence[str], until: float, journal: Journal, silence_s: float = SILENCE_S
) -> tuple[int, str]:
    """Run one worker to its end, or end it where it is silent or the time is long over.

    Returns:
        Its exit code, 0 where the time is up, and what happened in words.
    """
    begun = time.time()
    process = subprocess.Popen(list(command))
    while True:
        try:
            code = process.wait(timeout=min(2.0, silence_s))
        except subprocess.TimeoutExpired:
            over = time.time() - until > silence_s / 2
            if over or time.time() - max(begun, journal.touched()) > silence_s:
                process.kill()
                process.wait()
                return (0, "out of time") if over else (1, f"silent for {silence_s:g} s")
            continue
        return code, "the device stopped answering" if code == CRASHED else f"exit code {code}"
