"""The last calls of an op, recognized by torch's own guards.

A guard is one call of C++ for all tensors of a call: their shapes, strides, dtypes, device and
dispatch keys are those of the call it was made for, and so are the thread's (modes, transforms,
autocast). In Python each of these takes as long as the guard of two tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from torch import Tensor, is_grad_enabled

from rooftile.ops import _replay
from rooftile.ops._replay import ALIGNMENT, PLAIN, Replay, address_of, compiler_parts

_MOST = 3  # calls known at a time: a model's norms and its queries and keys differ in shape
_Guard = Callable[..., bool]
MISSED = object()
_guards_of = getattr(compiler_parts, "TensorGuards", None)


class _Known(NamedTuple):
    """A call: types of its arguments, the other arguments, and how tensors are checked.

    ``leaves`` says that some ask for a gradient, which was off: no guard of torch looks at that.
    """

    types: list[type]
    pick_others: Callable[[tuple[Any, ...]], Any]
    others: Any
    pick_tensors: Callable[[tuple[Any, ...]], tuple[Tensor, ...]]
    guard: _Guard
    leaves: bool
    replay: Replay
    order: tuple[int, ...] | None


class Recent:
    """The last different calls of one op, whose tensors all began at a multiple of 128 bytes."""

    def __init__(self) -> None:
        self.calls: tuple[_Known, ...] = ()

    def again(self, values: tuple[Any, ...]) -> Any:
        """The call made again if it is like one of the last; ``MISSED`` if not.

        Args:
            values: All arguments, by position and then the names and values of the others.
        """
        calls = self.calls
        if not calls:
            return MISSED
        types = [*map(type, values)]
        for known_types, pick_others, others, pick_tensors, guard, leaves, replay, order in calls:
            if types != known_types or pick_others(values) != others:
                continue
            tensors = pick_tensors(values)
            if not guard(*tensors) or replay.device != _replay.current_device():
                continue
            if leaves and is_grad_enabled():
                return MISSED
            addresses = [*map(address_of, tensors)]
            for address in addresses:
                if address & ALIGNMENT or not address:
                    return MISSED
            return replay(addresses if order is None else [addresses[i] for i in order])
        return MISSED

    def know(self, values: tuple[Any, ...], replay: Replay, order: Sequence[int]) -> None:
        """Recognize a call from now on, in place of the one known for longest."""
        places = [i for i, value in enumerate(values) if type(value) in PLAIN]
        tensors = [values[i] for i in places]
        if _guards_of is None or any(t.data_ptr() & ALIGNMENT for t in tensors):
            return
        guard = _guards_of(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        if not guard(*tensors):  # one tensor in two places
            return
        rest = [i for i in range(len(values)) if i not in places]
        pick_others = _picker(rest)
        straight = list(order) == list(range(len(tensors)))
        known = _Known(
            [*map(type, values)], pick_others, pick_others(values), _picker(places), guard,
            any(t.requires_grad for t in tensors), replay,
            None if straight else tuple(order),
        )  # fmt: skip
        others = [c for c in self.calls if c.replay is not replay]
        self.calls = (known, *others[: _MOST - 1])


def _picker(places: Sequence[int]) -> Callable[[tuple[Any, ...]], Any]:
    """Takes a tuple's elements at some places, always as a tuple."""
    if len(places) < 2:
        start = places[0] if places else 0
        return itemgetter(slice(start, start + len(places)))
    return itemgetter(*places)
