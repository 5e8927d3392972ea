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
    """A launch to make again: ``run`` on what ``pick`` takes out of all values of a call.

    ``inner`` takes the kernel's parameters where Triton wants them as a tuple, its last argument.
    """

    run: Callable[..., None]
    pick: Callable[[list[Any]], tuple[Any, ...]]
    inner: Callable[[list[Any]], tuple[Any, ...]] | None


class _Place:
    """Stands for a value of which only the place is known."""

    def __init__(self, index: int) -> None:
        self.index = index


def step(
    compiled: Any, grid: tuple[int, int, int], places: list[int], stream: int, constants: list[Any]
) -> Step:
    """Plan a launch that is to be made again.

    Args:
        compiled: Triton's compiled kernel.
        grid: Programs in three dimensions.
        places: Where each parameter stands among a call's values.
        stream: Where the stream stands.
        constants: What stands behind the other values; what is not there yet is put there.
    """
    parameters = [_Place(i) for i in places]
    head = compiled.function, compiled.packed_metadata, None, None, None
    call = (*grid, _Place(stream), *head, *parameters)
    run, seen = _beneath(compiled.run, call)

    def place(value: Any) -> int:
        if isinstance(value, _Place):
            return value.index
        constants.append(value)
        return stream + len(constants)

    *outer, last = seen
    if isinstance(last, tuple) and last == tuple(parameters):
        return Step(run, _picker(map(place, outer)), _picker(places))
    return Step(run, _picker(map(place, seen)), None)


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


def _picker(places: Any) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Takes the values at some places; a launch has two at least."""
    return itemgetter(*places)
