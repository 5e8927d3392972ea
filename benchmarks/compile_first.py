"""Fills the caches of all compilers before anything is timed, in several processes at a time.

A sweep of a hundred shapes spends most of its time in compilers, which use one core. Here every
provider is called once at every shape, unchecked and untimed, by processes that share the work;
the sweep then finds kernels in the caches of Triton, torch's compiler, QuACK and FlashAttention-4,
in a process that has imported them all meanwhile.
What torch's compiler chose by timing is forgotten: a busy GPU is no place to choose on.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir

import torch

from rooftile.bench import gate
from rooftile.bench.job import Job
from rooftile.bench.peers import providers
from rooftile.bench.rounds import describe

_NOT_COMPILED = ("eager", "flash2", "cudnn", "cuda")
_MOST = 0.36  # of the time: what is not compiled by then, the sweep compiles
_LOOK_S = 0.1


def set_caches() -> None:
    """Where this process and those it starts keep what they compile; a folder already set stays."""
    folder = Path(gettempdir()) / "rooftile-compiled"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
    os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")


def fill_caches(command: Sequence[str], processes: int, until: float, done: Path) -> None:
    """Start the processes, wait for all, and say what came of it.

    Args:
        command: Starts the sweep; ``--compile-part I`` is added to it.
        processes: How many.
        until: End of the time of compiling and timing together, in seconds of ``time.time()``.
        done: A file that is made at the end.
    """
    alone = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    begun = time.time()
    started = [
        subprocess.Popen([*command, "--compile-part", str(i)], env=alone) for i in range(processes)
    ]
    failed = sum(_ended(process, begun + _MOST * (until - begun)) for process in started)
    chosen = list(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"))
    for path in chosen:
        path.unlink()
    print(
        f"-- compiled in {time.time() - begun:.0f} s by {processes} processes, {failed} of which "
        f"did not end well; {len(chosen)} choices of torch's compiler forgotten",
        flush=True,
    )
    done.touch()


def import_all(jobs: Sequence[Job], done: Path) -> None:
    """Import every peer, then wait for the file."""
    loads = {name: peer.load for job in jobs
             for name, peer in providers(job.case, job.against).items()}  # fmt: skip
    for load in loads.values():
        with suppress(Exception):  # the sweep meets it again and has a row for it
            load()
    while not done.exists():
        time.sleep(_LOOK_S)


def _ended(process: subprocess.Popen[bytes], until: float) -> bool:
    """Wait for one, or end it where the time is up; whether it failed."""
    try:
        return process.wait(timeout=max(_LOOK_S, until - time.time())) != 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


def compile_all(jobs: Sequence[Job], until: float) -> int:
    """Call every provider of every job once."""
    for job in jobs:
        for name in providers(job.case, job.against):
            if name not in _NOT_COMPILED and time.time() < until:
                _first_call(job, name)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return 0


def _first_call(job: Job, name: str) -> None:
    """One call with gradients of ones; why it failed is printed, and told again by the sweep."""
    case = job.case
    peer = providers(case, job.against)[name]
    try:
        inputs = case.inputs(case.sizes(job.shape), job.dtype, job.device)
        mine = peer.adapt(inputs) if peer.adapt else inputs
        outputs = gate.run_forward(peer.load(), mine, job.direction)
        if job.direction != "forward":
            grads = tuple(torch.ones_like(o) for o in outputs)
            gate.run_backward(outputs, grads, mine, keep=job.direction == "backward")
    except Exception as error:  # a peer that refuses a shape has a row that says so later
        print(f"-- {case.label} {name}: {describe(error, 120)}", file=sys.stderr, flush=True)
