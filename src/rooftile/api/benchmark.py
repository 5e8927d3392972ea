"""Benchmark: our ops or one's own kernel, checked, then timed beside the peers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rooftile.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from rooftile.bench.case import Case
    from rooftile.bench.clock import Clock
    from rooftile.bench.rounds import Settings
    from rooftile.records.measurement import Cache, Direction, Measurement

DEFAULT_AGAINST = ("eager", "compile", "liger", "quack")
_DTYPES = ("bfloat16", "float16", "float32")

Sink = Callable[["list[Measurement]"], None]


def benchmark(
    *targets: str | Case,
    shapes: Sequence[Sequence[int]] | None = None,
    dtype: str = "bfloat16",
    directions: Sequence[Direction] | None = None,
    against: Sequence[str] = DEFAULT_AGAINST,
    gate: str | None = None,
    interpret: bool = False,
    cache: Cache = "cold",
    settings: Settings | None = None,
    clock: Clock | None = None,
    device: str = "cuda",
    sink: Sink | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Measurement]:
    """Check results against float64, then time them beside the peers and a copy of the same bytes.

    Args:
        *targets: Names of Rooftile's ops, ``"file.py:CASE"``, or cases; all ops where none is
            given.
        shapes: Lengths of the case's dimensions, instead of its own shapes.
        dtype: ``"bfloat16"``, ``"float16"`` or ``"float32"``.
        directions: ``"forward"``, ``"backward"``, ``"forward_backward"``; None: all a case has.
        against: Peers: ``"eager"``, ``"compile"``, ``"liger"``, ``"quack"``. One that has no such
            op is left out, one that is not installed or refuses a shape gets a row that says so.
        gate: What each own row must satisfy, such as ``"ratio_to_copy >= 0.95"``.
        interpret: Check results on the CPU with Triton's interpreter at small shapes; time nothing.
        cache: State of the L2 before each call: ``"cold"``, ``"clean"`` or ``"warm"``.
        settings: How many rounds; None: 50, fewer where they are long.
        clock: What times a call; None: CUDA events. With a clock of one's own any device will do.
        device: ``"cuda"`` or ``"cuda:1"``.
        sink: Given the rows of each shape as soon as they are there.
        progress: Told each step in words.

    Returns:
        One row a provider and shape. A row with an ``error`` is no result.

    Raises:
        InputError: An argument is wrong, or there is no GPU and ``interpret`` is not set.
        TargetError: The user's file cannot be imported.
        GateError: An own result is wrong, faster than the hardware can be, or the gate does not
            hold; the rows have gone to ``sink`` before.
        MissingDependencyError: torch or Triton is not installed.
    """
    if interpret:
        _interpret()
    torch = _torch()
    from rooftile.bench.clock import CudaClock
    from rooftile.bench.demand import hold, parse
    from rooftile.bench.environment import environment
    from rooftile.bench.run import check_only, run

    demand = parse(gate) if gate else None
    if interpret:
        device = "cpu"
        if demand is not None:
            raise InputError("gate needs times, and interpret takes none")
    elif clock is None and not torch.cuda.is_available():
        raise InputError(
            "a benchmark needs a GPU and torch sees none; --interpret (interpret=True) checks the "
            "results on this machine without timing them"
        )
    jobs = _jobs(targets, shapes, dtype, directions, against, device, interpret)
    surroundings = environment(device)
    own: list[Measurement] = []
    every: list[Measurement] = []
    timer = clock or (None if interpret else CudaClock(device, cache))
    tell = progress or (lambda words: None)
    for job in jobs:
        where = f"{job.case.label} {job.direction} {'x'.join(map(str, job.shape))}"

        def stage(provider: str, what: str, where: str = where) -> None:
            tell(f"{where}: {provider}, {what}")

        rows = (
            check_only(job, surroundings, stage)
            if timer is None
            else run(job, timer, surroundings, settings, stage)
        )
        own += [row for row in rows if row.provider == job.case.provider]
        every += rows
        if sink is not None:
            sink(rows)
    _hold_results(own)
    if demand is not None:
        hold(demand, own)
    return every


def _jobs(
    targets: Sequence[str | Case],
    shapes: Sequence[Sequence[int]] | None,
    dtype: str,
    directions: Sequence[Direction] | None,
    against: Sequence[str],
    device: str,
    interpret: bool,
) -> list[Any]:
    """Everything to measure, refused here if anything of it is wrong."""
    import torch

    from rooftile.bench.case import DIRECTIONS, Case
    from rooftile.bench.load import cases
    from rooftile.bench.peers import check_against
    from rooftile.bench.run import Job, ceilings_of
    from rooftile.spec.dtypes import dtype as known_dtype

    name = known_dtype(dtype).name
    if name not in _DTYPES:
        raise InputError(f"dtype must be one of {', '.join(_DTYPES)}, got {dtype!r}")
    for direction in directions or ():
        if direction not in DIRECTIONS:
            raise InputError(f"direction must be of {', '.join(DIRECTIONS)}, got {direction!r}")
    found: list[Case] = []
    for target in targets or ("",):
        found += [target] if isinstance(target, Case) else cases([target] if target else [])
    check_against(against, found)
    jobs = []
    for case in found:
        for direction in directions or tuple(case.costs):
            if direction not in case.costs:
                continue
            chosen = shapes or (case.small if interpret else case.shapes.get(direction, ()))
            for shape in chosen:
                case.sizes(shape)
                jobs.append(
                    Job(
                        case=case,
                        direction=direction,
                        shape=tuple(shape),
                        dtype=getattr(torch, name),
                        device=device,
                        against=tuple(against) if not interpret else (),
                        ceilings=ceilings_of(case, direction),
                    )
                )
    if not jobs:
        raise InputError(
            f"directions must be one the cases have, got {', '.join(directions or ())}"
        )
    return jobs


def _hold_results(own: Sequence[Measurement]) -> None:
    """A wrong result of one's own, or an impossible time, is an error."""
    from rooftile.errors import GateError

    broken = [
        f"{row.op} {row.direction} {'x'.join(map(str, row.shape.values()))}: {row.error}"
        for row in own
        if row.error or (row.check is not None and not row.check.passed)
    ]
    if broken:
        listed = "\n  ".join(broken)
        raise GateError(f"{len(broken)} of {len(own)} results do not stand:\n  {listed}")


def _interpret() -> None:
    """Have Triton interpret kernels; it reads the switch when a kernel is defined."""
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise InputError(
            "interpret must be chosen before Triton is imported: set TRITON_INTERPRET=1"
        )
    os.environ["TRITON_INTERPRET"] = "1"


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            "a benchmark needs torch and Triton: pip install 'rooftile[torch]'"
        ) from error
    return torch
