"""Calls of a public op made again without its checks.

What an op checks are shapes, strides, dtypes, devices and numbers, never what a tensor holds. So a
call like one before, of which no gradient can be asked, goes straight to the launches recorded by
the op underneath, where that op got the call's own tensors and gave the call's result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from rooftile.ops import _replay
from rooftile.ops._op import MOST_CALLS
from rooftile.ops._recent import MISSED, Recent
from rooftile.ops._replay import (
    ALIGNMENT,
    PLAIN,
    Replay,
    recorder,
    undisturbed,
    unobserved,
)

is_compiling = torch.compiler.is_compiling
P = ParamSpec("P")
R = TypeVar("R")
_Call = tuple[Replay, tuple[int, ...]]
_NAMED = object()  # what follows is given by name
_VALUES = frozenset((bool, int, float, str, tuple, torch.Size, torch.dtype, type(None)))


def _never() -> bool:
    return False


def repeats(unless: Callable[[], bool] = _never) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a public op remember its calls.

    Args:
        unless: Whether the op looks at what its tensors hold, so that every call has to be checked.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        calls: dict[tuple[Any, ...], _Call] = {}
        recent = Recent()

        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            if is_compiling() or not undisturbed() or unless():
                return function(*args, **options)
            values = (*args, _NAMED, *options, *options.values()) if options else args
            result = recent.again(values)
            if result is not MISSED:
                return result
            if not unobserved():
                return function(*args, **options)
            found = _key_of(args, options)
            if found is None:
                return function(*args, **options)
            key, addresses = found
            known = calls.get(key)
            if known is None:
                return _watched(function, args, options, calls, key)
            replay, order = known
            recent.know(values, replay, order)
            return replay([addresses[i] for i in order])

        return call

    return decorate


def _key_of(
    args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], list[int]] | None:
    """All that a call depends on, and its tensors' addresses; None where it is not remembered."""
    device = _replay.current_device()
    if device < 0:
        return None
    records = torch.is_grad_enabled()
    key: list[Any] = [device, *options] if options else [device]
    addresses: list[int] = []
    for value in (*args, *options.values()) if options else args:
        if type(value) in PLAIN:
            if records and value.requires_grad:
                return None
            if _replay.device_of(value) != device or value.is_neg():
                return None
            address = value.data_ptr()
            if not address:  # no elements, or its memory was given back
                return None
            addresses.append(address)
            key += value.shape, value.stride(), value.dtype, address & ALIGNMENT
        elif type(value) in _VALUES:
            key += type(value), value  # a hash takes True, 1 and 1.0 for one
        else:
            return None
    return tuple(key), addresses


def _watched(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    calls: dict[tuple[Any, ...], _Call],
    key: tuple[Any, ...],
) -> Any:
    """Make a call, and remember it where one op underneath did all of it."""
    outer, recorder.replays = recorder.replays, []
    try:
        result = function(*args, **options)
        seen = recorder.replays
    finally:
        recorder.replays = outer
    if len(seen) == 1 and seen[0][2] is result:
        replay, tensors, _ = seen[0]
        given = [id(v) for v in (*args, *options.values()) if isinstance(v, Tensor)]
        if all(id(t) in given for t in tensors):
            if len(calls) >= MOST_CALLS:
                calls.clear()
            calls[key] = replay, tuple(given.index(id(t)) for t in tensors)
    return result
