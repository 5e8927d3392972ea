"""A torch op whose calls are made again where they can be (see ``_replay``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rooftile.ops import _replay
from rooftile.ops._recent import MISSED, Recent
from rooftile.ops._replay import (
    ALIGNMENT,
    PLAIN,
    Replay,
    recorder,
    replay_of,
    undisturbed,
    unobserved,
)

MOST_CALLS = 4096  # sets of arguments remembered of one op


class Op:
    """A torch op that remembers its calls.

    Args:
        function: Makes the op's results and launches its kernels.
        overload: The op as torch knows it, for calls that torch must see.
    """

    def __init__(self, function: Callable[..., Any], overload: Any) -> None:
        self.function = function
        self.overload = overload
        self.calls: dict[tuple[Any, ...], Replay] = {}
        self.recent = Recent()

    def __call__(self, *args: Any) -> Any:
        """Call the op on positional arguments."""
        if torch.compiler.is_compiling() or not undisturbed():
            return self.overload(*args)
        if recorder.replays is None:
            result = self.recent.again(args)
            if result is not MISSED:
                return result
        found = _key_of(args) if unobserved() else None
        if found is None:
            return self.overload(*args)
        key, addresses = found
        tensors = [value for value in args if isinstance(value, Tensor)]
        replay = self.calls.get(key)
        if replay is not None:
            self.recent.know(args, replay, range(len(tensors)))
            result = replay(addresses)
            if recorder.replays is not None:
                recorder.replays.append((replay, tensors, result))
            return result
        if not all(t.numel() and t.layout == torch.strided for t in tensors):
            return self.overload(*args)
        return self._record(key[0], args, tensors, key)

    def _record(
        self, device: int, args: tuple[Any, ...], tensors: list[Tensor], key: tuple[Any, ...]
    ) -> Any:
        """Make the call, and remember it where it can be made again."""
        outer = recorder.launches
        recorder.launches, recorder.made = [], []
        try:
            result = self.function(*args)
            replay = replay_of(device, recorder.launches, tensors, recorder.made, result)
        finally:
            recorder.launches = outer
        if replay is not None:
            if len(self.calls) >= MOST_CALLS:
                self.calls.clear()
            self.calls[key] = replay
            if recorder.replays is not None:
                recorder.replays.append((replay, tensors, result))
        return result


def _key_of(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int]] | None:
    """All that a call depends on, and its tensors' addresses; None where torch must see it."""
    device = _replay.device_of(args[0]) if type(args[0]) in PLAIN else -1
    if device < 0 or device != _replay.current_device():
        return None
    key: list[Any] = [device]
    addresses: list[int] = []
    for value in args:
        if type(value) in PLAIN:
            address = value.data_ptr()
            if _replay.device_of(value) != device or not address or value.is_neg():
                return None
            addresses.append(address)
            key += value.shape, value.stride(), value.dtype, address & ALIGNMENT
        elif isinstance(value, Tensor):
            return None
        else:
            key.append(value)
    return tuple(key), addresses
