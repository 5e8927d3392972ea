"""Warm-up and interleaved rounds: the order in which calls are timed, whatever the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from rooftile.bench.clock import Call, Clock


@dataclass(frozen=True, slots=True)
class Settings:
    """How often to measure.

    Attributes:
        rounds: Timed rounds; every provider runs once in each.
        budget_s: Sum of measured times after which no further round begins [s].
        least_rounds: Rounds that are run whatever the budget.
        warmup_batch: Rounds between two looks at the medians.
        most_warmup: Rounds of warm-up at most.
        stable: The medians of two batches may differ by this part to count as stable.
        host_calls: Calls in a row for the host time; 0: it is not measured.
    """

    rounds: int = 50
    budget_s: float = 5.0
    least_rounds: int = 5
    warmup_batch: int = 5
    most_warmup: int = 60
    stable: float = 0.02
    host_calls: int = 50


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What the warm-up came to.

    Attributes:
        rounds: Rounds it took.
        settled: Every median had stopped moving.
    """

    rounds: int
    settled: bool


def interleave(
    calls: Mapping[str, Call],
    clock: Clock,
    rounds: int,
    *,
    failures: dict[str, str],
    first: int = 0,
    budget_s: float = float("inf"),
    least_rounds: int = 1,
) -> dict[str, list[float]]:
    """Time each call once a round, every round starting one call further on.

    Clocks, temperature and neighbours drift over all calls alike, and none is always the first.

    Args:
        calls: Name to call.
        clock: Times one call.
        rounds: Rounds at most.
        failures: A call that raises is timed no more, and its message is put here.
        first: Number of the first round, where others went before.
        budget_s: Sum of times after which no further round begins [s].
        least_rounds: Rounds that are run whatever the budget.

    Returns:
        Name to its times [s], in the order they were taken.
    """
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    spent_s = 0.0
    for i in range(rounds):
        if i >= least_rounds and spent_s > budget_s:
            break
        turn = (first + i) % max(len(names), 1)
        for name in names[turn:] + names[:turn]:
            if name in failures:
                continue
            try:
                took_s = clock.seconds(calls[name])
            except Exception as error:  # a peer's fault must not end the others' run
                failures[name] = describe(error)
                continue
            seconds[name].append(took_s)
            spent_s += took_s
    return seconds


def warm_up(
    calls: Mapping[str, Call], clock: Clock, settings: Settings, failures: dict[str, str]
) -> WarmUp:
    """Run rounds until no median moves: clocks have risen, caches and compilers are done."""
    before: dict[str, float] = {}
    rounds = 0
    spent_s = 0.0
    while rounds < settings.most_warmup:
        batch = interleave(calls, clock, settings.warmup_batch, failures=failures, first=rounds)
        rounds += settings.warmup_batch
        now = {name: median(times) for name, times in batch.items() if times}
        if before and all(
            abs(now[name] / before[name] - 1) <= settings.stable for name in now if before.get(name)
        ):
            return WarmUp(rounds, True)
        before = now
        spent_s += sum(map(sum, batch.values()))
        if spent_s > settings.budget_s:
            break
    return WarmUp(rounds, False)


def describe(error: BaseException, most: int = 300) -> str:
    """An error in one line: its type and the first of its message."""
    words = " ".join(str(error).split())
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."
