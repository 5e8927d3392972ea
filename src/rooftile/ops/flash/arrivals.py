"""Counters of programs that have arrived: 0 before a launch, and 0 again after it.

The kernel that counts in them sets them back, so none has to be cleared for a call. What counts at
the same time must not share them: calls of one stream run one after the other and share; a call
that is captured into a CUDA graph may be replayed on any stream and has its own for ever.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CAPTURED = 2**16  # counters for the calls of CUDA graphs, for each device


class _Arena:
    """Counters that are handed out once."""

    def __init__(self, device: torch.device) -> None:
        self._counters = torch.zeros(_CAPTURED, dtype=torch.int32, device=device)
        self._used = 0

    def take(self, count: int) -> Tensor | None:
        """So many of them; None where too few are left."""
        if self._used + count > _CAPTURED:
            return None
        self._used += count
        return self._counters[self._used - count : self._used]


_of_graphs: dict[torch.device, _Arena] = {}
_of_streams: dict[tuple[torch.device, int], Tensor] = {}


def arrivals(count: int, device: torch.device) -> Tensor:
    """Int32 counters, all 0, for the next launch on the current stream."""
    if device.type != "cuda":
        return torch.zeros(count, dtype=torch.int32, device=device)
    if torch.cuda.is_current_stream_capturing():
        arena = _of_graphs.get(device)
        found = arena.take(count) if arena else None
        # cleared at each replay where there are none: none can be made while a graph is captured
        return torch.zeros(count, dtype=torch.int32, device=device) if found is None else found
    if device not in _of_graphs:
        _of_graphs[device] = _Arena(device)
    key = device, torch.cuda.current_stream(device).cuda_stream
    counters = _of_streams.get(key)
    if counters is None or counters.numel() < count:
        counters = torch.zeros(max(count, 1024), dtype=torch.int32, device=device)
        _of_streams[key] = counters
    return counters
