"""How one call is timed. A clock is handed in, so that the protocol has tests without a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch

from rooftile.errors import InputError
from rooftile.records.measurement import Cache

Call = Callable[[], object]

CACHES: tuple[Cache, ...] = ("balanced", "cold", "clean", "warm")

# What the flush writes or reads, in parts of the L2: it replaces nearly all lines at 2, all at 4.
_FLUSH_OF_L2 = 4
_LEAST_FLUSH_BYTES = 2**26
# How long the device is kept busy while the host enqueues a call: at first, and at most.
_BACKLOG_S, _MOST_BACKLOG_S = 100e-6, 3e-3
_SPIN_HZ = 2e9  # cycles of the spin kernel a second, at the clocks of today's GPUs or below


class Clock(Protocol):
    """What the protocol asks of a clock."""

    @property
    def timer(self) -> str:
        """What measures: ``"cuda events"``."""

    @property
    def cache(self) -> Cache:
        """State of the L2 before each timed call."""

    def writes(self, call: Call, n_bytes: int) -> None:
        """Say how many bytes a call writes."""

    def seconds(self, call: Call) -> float:
        """Device time of one call [s]."""

    def host_seconds(self, call: Call, calls: int) -> float:
        """Host time of one of many calls in a row [s]."""

    def peak_bytes(self, call: Call) -> int | None:
        """Device memory that one call takes at most, above what is held before it."""


class HostClock:
    """The host's own clock: for dry runs and user code on a CPU. Its times are no GPU's."""

    timer = "host clock"
    cache: Cache = "warm"

    def writes(self, call: Call, n_bytes: int) -> None:
        """Nothing: no cache is filled."""

    def seconds(self, call: Call) -> float:
        """Host time of one call [s]."""
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def host_seconds(self, call: Call, calls: int) -> float:
        """Host time of one of many calls in a row [s]."""
        return sum(self.seconds(call) for _ in range(calls)) / calls

    def peak_bytes(self, call: Call) -> int | None:
        """None: the host does not say."""
        return None


class CudaClock:
    """Device time between two events.

    The order on the device is: spin, flush of the L2, start event, call, end event. The spin keeps
    the device busy until the host has enqueued all of it, so that no host time gets between the
    events; where the start event had passed by then, the time is taken again with a longer spin.

    Args:
        device: ``"cuda"`` or ``"cuda:1"``; AMD GPUs are called so too.
        cache: What the L2 holds before each call. ``"balanced"``: another buffer's lines, of which
            as many are still to be written back as the call leaves behind (``writes``), so that no
            call pays for another's. ``"cold"``: written lines alone, as most benchmarks do;
            a call that only reads pays for them. ``"clean"``: lines that were read alone; a call
            that writes leaves its last ones unpaid. ``"warm"``: what the call before left; small
            problems then measure the cache.
        cuda: ``torch.cuda``, or what stands in for it.
    """

    timer = "cuda events"

    def __init__(
        self, device: str = "cuda", cache: Cache = "balanced", cuda: Any = torch.cuda
    ) -> None:
        if cache not in CACHES:
            raise InputError(f"cache must be one of {', '.join(CACHES)}, got {cache!r}")
        self.cache = cache
        self._cuda = cuda
        self._device = device
        l2_bytes = int(cuda.get_device_properties(device).L2_cache_size)
        words = max(_FLUSH_OF_L2 * l2_bytes, _LEAST_FLUSH_BYTES) // 4
        self._buffer = torch.ones(words, dtype=torch.int32, device=device)
        self._backlog_s: WeakKeyDictionary[Call, float] = WeakKeyDictionary()
        self._written_bytes: WeakKeyDictionary[Call, int] = WeakKeyDictionary()

    def writes(self, call: Call, n_bytes: int) -> None:
        """Say how many bytes a call writes; where it is not said, more than the L2 holds."""
        self._written_bytes[call] = n_bytes

    def seconds(self, call: Call) -> float:
        """Device time of one call [s], without the host's."""
        while True:
            backlog_s = self._backlog_s.get(call, _BACKLOG_S)
            start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
            self._cuda._sleep(int(backlog_s * _SPIN_HZ))
            self._flush(call)
            start.record()
            call()
            end.record()
            ahead = not start.query()
            end.synchronize()
            # a call that waits for the device itself is never ahead: its waiting is its own time
            if ahead or backlog_s >= _MOST_BACKLOG_S:
                return float(start.elapsed_time(end)) / 1e3
            self._backlog_s[call] = min(2 * backlog_s, _MOST_BACKLOG_S)

    def host_seconds(self, call: Call, calls: int) -> float:
        """Host time of one of many calls in a row [s]: what a launch-bound program waits for."""
        call()
        self._cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        took_s = time.perf_counter() - start
        self._cuda.synchronize()
        return took_s / calls

    def peak_bytes(self, call: Call) -> int | None:
        """Device memory that one call takes at most, above what is held before it."""
        self._cuda.synchronize()
        self._cuda.reset_peak_memory_stats(self._device)
        before = self._cuda.memory_allocated(self._device)
        call()
        self._cuda.synchronize()
        return int(self._cuda.max_memory_allocated(self._device)) - int(before)

    def _flush(self, call: Call) -> None:
        if self.cache == "warm":
            return
        all_words = self._buffer.numel()
        words = {"cold": all_words, "clean": 0}.get(self.cache)
        if words is None:
            words = min(self._written_bytes.get(call, 4 * all_words) // 4, all_words)
        if words < all_words:
            self._buffer.amax()
        if words:
            self._buffer[:words].zero_()
