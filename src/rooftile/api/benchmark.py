"""Benchmark: our ops or one's own kernel, checked, then timed beside the peers."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rooftile.api.dependencies import require_torch
from rooftile.errors import GateError, InputError

if TYPE_CHECKING:
    from rooftile.bench.case import Case
    from rooftile.bench.clock import Clock
    from rooftile.bench.demand import Demand
    from rooftile.bench.job import Job
    from rooftile.records.claim import ClaimTable
    from rooftile.records.measurement import Cache, Direction, Environment, Measurement

_DTYPES = ("bfloat16", "float16", "float32")

Sink = Callable[["list[Measurement]"], None]


def benchmark(
    *targets: str | Case,
    shapes: Sequence[Sequence[int]] | None = None,
    dtype: str | None = None,
    directions: Sequence[Direction] | None = None,
    against: Sequence[str] | None = None,
    gate: str | None = None,
    interpret: bool = False,
    cache: Cache = "balanced",
    rounds: int = 50,
    results: str | None = None,
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
        dtype: ``"bfloat16"``, ``"float16"`` or ``"float32"``. None: ``"bfloat16"``, with
            ``interpret`` ``"float32"``: Triton's interpreter cuts bfloat16 off where a GPU rounds.
        directions: ``"forward"``, ``"backward"``, ``"forward_backward"``; None: all a case has.
        against: Peers: ``"eager"``, ``"compile"``, ``"liger"``, ``"quack"``, and those that the
            case brings; None: all. One that has no such op is left out, one that is not installed
            or refuses a shape gets a row that says so.
        gate: What each own row must satisfy, such as ``"ratio_to_copy >= 0.95"``.
        interpret: Check results on the CPU with Triton's interpreter at small shapes; time nothing.
        cache: State of the L2 before each call: ``"balanced"``, ``"cold"``, ``"clean"`` or
            ``"warm"``.
        rounds: Timed rounds; fewer where they are long.
        results: Folder in which the rows are added to ``<gpu>/<date>.jsonl``; None: nowhere.
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
        device = "cpu"
    require_torch("a benchmark needs torch and Triton")
    from rooftile.bench.demand import parse
    from rooftile.bench.environment import environment
    from rooftile.bench.results import append, file_of
    from rooftile.user_file import files_in, importable

    demand = None if gate is None else parse(gate)
    if interpret and demand is not None:
        raise InputError("gate needs times, and interpret takes none")
    if dtype is None:
        dtype = "float32" if interpret else "bfloat16"
    with importable(files_in(targets)):
        jobs = _jobs(targets, shapes, dtype, directions, against, device, interpret)
        timer = None if interpret else clock or _device_clock(device, cache)
        surroundings = environment(device)
        every: list[Measurement] = []
        for job in jobs:
            rows = _measure(job, timer, surroundings, rounds, progress)
            every += rows
            if results is not None:
                append(file_of(results, rows[0]), rows)
            if sink is not None:
                sink(rows)
    _hold(every, {job.case.provider for job in jobs}, demand)
    return every


def claims_beside(rows: Sequence[Measurement]) -> ClaimTable:
    """What physics says of figures that others printed of the ops and shapes that were measured.

    Args:
        rows: Measurements of Rooftile's ops; of others there are no claims.
    """
    from rooftile.api.claim import claims_from_rows
    from rooftile.bench.cases import OPS, cases_of

    measured = {(row.op, tuple(row.shape.values())) for row in rows}
    printed = [
        dict(claim)
        for op in dict.fromkeys(row.op for row in rows if row.op in OPS)
        for case in cases_of(op)
        for shape, claims in case.claims.items()
        if (op, shape) in measured
        for claim in claims
    ]
    return claims_from_rows(printed)


def parse_shapes(text: str | None) -> list[tuple[int, ...]] | None:
    """``"65536x4096,8192x8192"`` as shapes; None where none are given.

    Raises:
        InputError: A length is no whole number of at least 1, or there is none.
    """
    if text is None:
        return None
    shapes = []
    for word in parse_names(text) or ("",):
        lengths = word.lower().split("x")
        if not all(length.isascii() and length.isdigit() and int(length) for length in lengths):
            raise InputError(f"shapes must be such as 65536x4096,8192x8192, got {word!r}")
        shapes.append(tuple(map(int, lengths)))
    return shapes


def parse_names(text: str | None) -> tuple[str, ...]:
    """``"eager,compile"`` as names; none where the text is empty."""
    return tuple(word for part in (text or "").split(",") if (word := part.strip()))


def _measure(
    job: Job,
    timer: Clock | None,
    surroundings: Environment,
    rounds: int,
    progress: Callable[[str], None] | None,
) -> list[Measurement]:
    """One job: checked, and timed where there is a clock."""
    from rooftile.bench.rounds import Settings
    from rooftile.bench.run import check_only, run

    where = f"{job.case.label} {job.direction} {'x'.join(map(str, job.shape))}"

    def stage(provider: str, what: str) -> None:
        if progress is not None:
            progress(f"{where}: {provider}, {what}")

    if timer is None:
        return check_only(job, surroundings, stage)
    return run(job, timer, surroundings, Settings(rounds=rounds), stage)


def _device_clock(device: str, cache: Cache) -> Clock:
    """CUDA events, where there is a device for them."""
    import torch

    from rooftile.bench.clock import CudaClock

    if not torch.cuda.is_available():
        raise InputError(
            "a benchmark needs a GPU and torch sees none; --interpret (interpret=True) checks the "
            "results on this machine without timing them"
        )
    return CudaClock(device, cache)


def _jobs(
    targets: Sequence[str | Case],
    shapes: Sequence[Sequence[int]] | None,
    dtype: str,
    directions: Sequence[Direction] | None,
    against: Sequence[str] | None,
    device: str,
    interpret: bool,
) -> list[Job]:
    """Everything to measure, refused here if anything of it is wrong."""
    import torch

    from rooftile.bench.case import DIRECTIONS, Case
    from rooftile.bench.job import Job
    from rooftile.bench.load import cases
    from rooftile.bench.peers import check_against, known_peers
    from rooftile.bench.run import ceilings_of

    name = _dtype_name(dtype)
    for direction in directions or ():
        if direction not in DIRECTIONS:
            raise InputError(f"direction must be of {', '.join(DIRECTIONS)}, got {direction!r}")
    found: list[Case] = []
    for i, target in enumerate(targets or ("",)):
        if target in targets[:i]:
            continue
        found += [target] if isinstance(target, Case) else cases([target] if target else [])
    against = known_peers(found) if against is None else tuple(against)
    check_against(against, found)
    jobs = [
        Job(
            case=case,
            direction=direction,
            shape=tuple(case.sizes(shape).values()),
            dtype=getattr(torch, name),
            device=device,
            against=() if interpret else against,
            ceilings=ceilings_of(case, direction),
        )
        for case in found
        for direction in dict.fromkeys(case.costs if directions is None else directions)
        if direction in case.costs
        for shape in shapes or (case.small if interpret else case.shapes.get(direction, ()))
    ]
    if not jobs:
        have = ", ".join(dict.fromkeys(name for case in found for name in case.costs))
        raise InputError(
            f"direction must be one that the cases have, {have}, got {list(directions or ())}"
        )
    for job in jobs:
        job.case.cost(job.direction, job.shape, job.dtype.itemsize)
    return jobs


def _dtype_name(dtype: str) -> str:
    """Torch's name of one of the three that are benchmarked."""
    from rooftile.spec.dtypes import dtype as known_dtype

    name = known_dtype(dtype).name
    if name not in _DTYPES:
        raise InputError(f"dtype must be one of {', '.join(_DTYPES)}, got {dtype!r}")
    return name


def _hold(rows: Sequence[Measurement], names: set[str], demand: Demand | None) -> None:
    """A wrong own result or an impossible time is an error, then what the gate demands."""
    from rooftile.bench.demand import hold

    own = [row for row in rows if row.provider in names]
    broken = [
        f"{row.op} {row.direction} {'x'.join(map(str, row.shape.values()))}: {row.error}"
        for row in own
        if row.error
    ]
    if broken:
        most = 5  # the rows say the rest
        listed = "\n  ".join([*broken[:most], *(["..."] if len(broken) > most else [])])
        raise GateError(f"{len(broken)} of {len(own)} results do not stand:\n  {listed}")
    if demand is not None:
        hold(demand, own)


def _interpret() -> None:
    """Have Triton interpret kernels; it reads the switch when a kernel is defined."""
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise InputError(
            "interpret must be chosen before Triton is imported: set TRITON_INTERPRET=1"
        )
    os.environ["TRITON_INTERPRET"] = "1"
    # numpy speaks of the NaN and infinities of masked lanes, which no GPU mentions
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"triton\.runtime")
