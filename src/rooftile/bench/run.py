"""One case at one shape: check every provider, time those that are right, say what came of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import median

import torch

from rooftile.bench import gate
from rooftile.bench.anomaly import anomaly, peaks
from rooftile.bench.case import Case, Inputs, Peer, Results, as_results
from rooftile.bench.clock import Call, Clock
from rooftile.bench.job import Job
from rooftile.bench.peers import providers
from rooftile.bench.rounds import Settings, describe, interleave, warm_up
from rooftile.cost.formulas.matmul import matmul_forward
from rooftile.records.cost import Cost
from rooftile.records.measurement import (
    CEILINGS,
    NOT_CHECKED,
    NOT_INSTALLED,
    Check,
    Direction,
    Environment,
    Measurement,
)
from rooftile.spec.dtypes import math_key

SEED = 0

Stage = Callable[[str, str], None]  # provider, what it begins


@dataclass(slots=True)
class _Entry:
    """What is known of one provider so far."""

    check: Check | None = None
    first_call_s: float | None = None
    call: Call | None = None
    error: str = ""
    seconds: list[float] = field(default_factory=list)
    host_s: float | None = None
    peak_bytes: int | None = None


def run(
    job: Job,
    clock: Clock,
    environment: Environment,
    settings: Settings | None = None,
    stage: Stage = lambda provider, what: None,
) -> list[Measurement]:
    """Measure one case at one shape.

    A provider that raises or whose result is wrong has a row with its message and no time. Where
    inputs or reference raise, as where memory does not hold them, one row says so.

    Args:
        job: What to measure.
        clock: How a call is timed.
        environment: What the run stands on.
        settings: How often.
        stage: Told before each step of a provider, so that a crash can be laid at its door.

    Returns:
        One row a provider, the case's own first, the ceilings last.
    """
    settings = settings or Settings()
    base = _base(job, environment)
    entries = _checked(job, stage)
    for name in job.ceilings if any(entry.call for entry in entries.values()) else ():
        entries[name] = _Entry(call=_ceiling(name, job, base.cost))
    failures: dict[str, str] = {}
    calls = {name: entry.call for name, entry in entries.items() if entry.call is not None}
    for name, call in calls.items():
        clock.writes(call, _written_bytes(name, job, base.cost))
    stage("all", "warm-up")
    warmth = warm_up(calls, clock, settings, failures)
    stage("all", "rounds")
    times = interleave(
        calls, clock, settings.rounds, failures=failures,
        budget_s=settings.budget_s, least_rounds=settings.least_rounds,
    )  # fmt: skip
    for name, seconds in times.items():
        entries[name].seconds = seconds
    _measure_host_and_memory(entries, clock, settings, failures, stage)
    for name, message in failures.items():
        entries[name].error = message
    base = replace(
        base, cache=clock.cache, timer=clock.timer, warmup_rounds=warmth.rounds,
        settled=warmth.settled,
    )  # fmt: skip
    rows = _rows(base, entries, job)
    del entries, calls
    _release()
    return rows


def check_only(
    job: Job, environment: Environment, stage: Stage = lambda p, w: None
) -> list[Measurement]:
    """Check results against float64 and time nothing: one row a provider."""
    base = _base(job, environment)
    return [
        replace(
            base, provider=name, check=entry.check, error=entry.error,
            first_call_s=entry.first_call_s,
        )
        for name, entry in _checked(job, stage).items()
    ]  # fmt: skip


def _base(job: Job, environment: Environment) -> Measurement:
    """What all rows of a job have in common."""
    dims = job.case.sizes(job.shape)
    return Measurement(
        op=job.case.op,
        variant=job.case.variant,
        provider="",
        direction=job.direction,
        shape=dims,
        dtype=str(job.dtype).removeprefix("torch."),
        cost=job.case.cost(job.direction, job.shape, job.dtype.itemsize),
        environment=environment,
    )


def _checked(job: Job, stage: Stage) -> dict[str, _Entry]:
    """Every provider prepared, its result checked, with a call ready where it is right."""
    case = job.case
    stage("reference", "float64")
    try:
        inputs, grads, known = _known(job)
    except Exception as error:  # too large for the device, or a fault of the user's own case
        return {case.provider: _Entry(error=f"{NOT_CHECKED}: {describe(error)}")}
    entries = {}
    for name, peer in providers(case, job.against).items():
        stage(name, "first call")
        entries[name] = _prepare(job, peer, inputs, grads, known)
    return entries


def _known(job: Job) -> tuple[Inputs, Results, gate.Truth]:
    """The case's inputs, gradients of its outputs, and what is right."""
    case = job.case
    torch.manual_seed(SEED)
    inputs = as_results(case.inputs(case.sizes(job.shape), job.dtype, job.device))
    grads = gate.output_grads(case, inputs, job.direction)
    return inputs, grads, gate.truth(case, inputs, grads, job.direction)


def _prepare(job: Job, peer: Peer, inputs: Inputs, grads: Results, known: gate.Truth) -> _Entry:
    """Load a provider, run it once, check what it gives, and make the call that is timed."""
    entry = _Entry()
    try:
        function = peer.load()
    except ImportError as error:
        entry.error = f"{NOT_INSTALLED}: {describe(error)}"
        return entry
    except Exception as error:  # a library may fail on being imported, in whatever way
        entry.error = describe(error)
        return entry
    try:
        mine = gate.own_inputs(inputs)
        mine = peer.adapt(mine) if peer.adapt else mine
        gate.poison(known, job.dtype)
        start = time.perf_counter()
        outputs, got = gate.evaluate(function, mine, grads, job.direction)
        entry.first_call_s = time.perf_counter() - start
        entry.check = gate.check(job.case, job.direction, got, known)
    except Exception as error:  # a peer that refuses a shape is reported, not fatal
        entry.error = describe(error)
        return entry
    if not entry.check.passed:
        entry.error = f"wrong result, not timed: {entry.check.detail}"
        return entry
    del got
    if job.direction == "forward":
        bare = tuple(t.detach() for t in mine)
        entry.call = _forward_call(function, bare)
    elif job.direction == "backward":
        entry.call = _backward_call(outputs, gate.fitted(grads, outputs), mine)
    else:
        entry.call = _both_call(function, gate.fitted(grads, outputs), mine)
    return entry


def _forward_call(function: Callable[..., object], inputs: Inputs) -> Call:
    def call() -> None:
        with torch.no_grad():
            function(*inputs)

    return call


def _backward_call(outputs: Results, grads: Results, inputs: Inputs) -> Call:
    def call() -> None:
        gate.run_backward(outputs, grads, inputs, keep=True)
        gate.drop_grads(inputs)

    return call


def _both_call(function: Callable[..., object], grads: Results, inputs: Inputs) -> Call:
    def call() -> None:
        outputs = gate.run_forward(function, inputs, "forward_backward")  # type: ignore[arg-type]
        gate.run_backward(outputs, grads, inputs, keep=False)
        gate.drop_grads(inputs)

    return call


def _ceiling(name: str, job: Job, cost: Cost) -> Call:
    """A copy of as many bytes as the op moves, or a large matmul."""
    if name == "copy":
        half = max(cost.bytes // 2, 1)
        source = torch.randint(256, (half,), dtype=torch.uint8, device=job.device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)
    n = job.matmul_n
    a, b = (torch.randn(n, n, dtype=job.dtype, device=job.device) for _ in range(2))
    return lambda: torch.mm(a, b)


def _written_bytes(name: str, job: Job, cost: Cost) -> int:
    """What a call writes: the op's least, a copy's half, a product."""
    if name == "copy":
        return cost.bytes // 2
    return job.matmul_n**2 * job.dtype.itemsize if name == "matmul" else cost.write_bytes


def _measure_host_and_memory(
    entries: dict[str, _Entry],
    clock: Clock,
    settings: Settings,
    failures: dict[str, str],
    stage: Stage,
) -> None:
    """Host time of one call and memory above the inputs, of every provider that was timed."""
    for name, entry in entries.items():
        if entry.call is None or name in failures or name in CEILINGS or not entry.seconds:
            continue
        stage(name, "host time and memory")
        try:
            entry.peak_bytes = clock.peak_bytes(entry.call)
            if settings.host_calls:
                entry.host_s = clock.host_seconds(entry.call, settings.host_calls)
        except Exception as error:  # as in the rounds
            failures[name] = describe(error)


def _rows(base: Measurement, entries: dict[str, _Entry], job: Job) -> list[Measurement]:
    """One record a provider, with the ceilings and the best peer of the same rounds in each."""
    matmul = matmul_forward(*(job.matmul_n,) * 3, job.dtype.itemsize, math=math_key(base.dtype))
    good = {n: median(e.seconds) for n, e in entries.items() if e.seconds and not e.error}
    peers = {n: s for n, s in good.items() if n not in (job.case.provider, *CEILINGS)}
    best = min(peers, key=lambda name: peers[name], default="")
    matmul_s = good.get("matmul")
    shared = replace(
        base,
        copy_s=good.get("copy"),
        matmul_flops_per_s=matmul.matrix_flops / matmul_s if matmul_s else None,
        best_peer=best,
        best_peer_s=peers.get(best),
    )
    moved = Cost(read_bytes=base.cost.read_bytes, write_bytes=base.cost.write_bytes)
    ceilings = {"copy": moved, "matmul": matmul}
    rows = []
    for name, entry in entries.items():
        row = replace(
            shared, provider=name, seconds=tuple(entry.seconds), error=entry.error,
            check=entry.check, host_s=entry.host_s, first_call_s=entry.first_call_s,
            peak_bytes=entry.peak_bytes, cost=ceilings.get(name, base.cost),
        )  # fmt: skip
        bandwidth, peak = peaks(row)
        row = replace(row, bandwidth_bytes_per_s=bandwidth, peak_flops_per_s=peak)
        rows.append(replace(row, error=row.error or anomaly(row)))
    return rows


def _release() -> None:
    """Give memory back before the next shape."""
    gc.collect()
    if torch.cuda.is_available():
        with suppress(RuntimeError):  # after a fault of a kernel; the rows already say so
            torch.cuda.empty_cache()


def ceilings_of(case: Case, direction: Direction) -> tuple[str, ...]:
    """A copy for all work, a matmul too for work of the matrix units."""
    shape = case.sizes((*case.shapes.get(direction, ()), *case.small)[0])
    return CEILINGS if case.cost(direction, tuple(shape.values()), 2).matrix_flops else ("copy",)
