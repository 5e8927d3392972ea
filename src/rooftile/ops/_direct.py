"""Triton's own C function of a launch, with its arguments in order once and for all.

``compiled.run`` is a Python object that looks up scratch memory and its own attributes and then
calls that function: a microsecond a launch. What it hands on differs between Triton's versions, so
it is asked: run once with the C function replaced by one that notes its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from operator import itemgetter
from typing import Any, NamedTuple

_SCRATCH = ("global_scratch_size", "profile_scratch_size", "gsan_enabled")


class Step(NamedTuple):
    """A launch to make again: what ``run`` is called with, cut where a call's own values stand.

    The stream stands between ``before`` and ``between``; then come the values that ``pick`` takes
    and ``after``. ``nested``: these two are the kernel's parameters, which Triton wants as a tuple.
    """

    run: Callable[..., None]
    before: tuple[Any, ...]
    between: tuple[Any, ...]
    pick: Callable[[list[Any]], tuple[Any, ...]]
    after: tuple[Any, ...]
    nested: bool


class _Place:
    """Stands for a value of which only the place is known."""


def step(
    compiled: Any,
    grid: tuple[int, int, int],
    values: list[Any],
    places: list[int | None],
    constants: list[Any],
    first: int,
) -> Step:
    """Plan a launch that is to be made again.

    Args:
        compiled: Triton's compiled kernel.
        grid: Programs in three dimensions.
        values: Its parameters.
        places: Which of a call's addresses each is, None for one that stays the same.
        constants: What stands behind the addresses; parameters between them are put there.
        first: How many addresses there are.
    """
    stream, parameters = _Place(), tuple(_Place() for _ in values)
    head = compiled.function, compiled.packed_metadata, None, None, None
    run, seen = _beneath(compiled.run, (*grid, stream, *head, *parameters))
    nested = seen[-1] == parameters
    cut, end = seen.index(stream), len(seen) - (1 if nested else len(parameters))
    last = max((i for i, place in enumerate(places) if place is not None), default=0)
    own = max(last + 1, 2)  # of fewer no tuple would be made
    picked = []
    for value, place in zip(values[:own], places[:own], strict=True):
        picked.append(first + len(constants) if place is None else place)
        if place is None:
            constants.append(value)
    pick = itemgetter(*picked)
    return Step(run, seen[:cut], seen[cut + 1 : end], pick, tuple(values[own:]), nested)


def _beneath(run: Any, call: tuple[Any, ...]) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """The C function under a launcher and what it is called with; else the launcher itself.

    A launcher that needs memory of its own at each launch is left to provide it.
    """
    launch = getattr(run, "__dict__", {}).get("launch")
    if launch is None or any(getattr(run, name, 0) for name in _SCRATCH):
        return run, call
    seen: list[tuple[Any, ...]] = []
    probe = copy(run)
    probe.launch = lambda *args: seen.append(args)
    probe(*call)
    return launch, seen[0]
