"""How one call is timed on a device, with a device that records what it is told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from rooftile.bench.clock import CudaClock, HostClock
from rooftile.errors import InputError


class Device:
    """Stands in for torch.cuda: a log of what was enqueued, and a device that is busy or not."""

    def __init__(self, host_s: float = 0.0, device_ms: float = 2.0) -> None:
        self.log: list[str] = []
        self.spins: list[int] = []
        self.host_s, self.device_ms = host_s, device_ms
        self.allocated, self.peak = 1000, 0

    def get_device_properties(self, device):
        return SimpleNamespace(L2_cache_size=1 << 20)

    def _sleep(self, cycles):
        self.spins.append(cycles)
        self.log.append("spin")

    def Event(self, enable_timing):
        device = self

        class Event:
            def record(self):
                device.log.append("event")

            def query(self):  # passed, if enqueueing took longer than the spin
                return device.host_s > device.spins[-1] / 2e9

            def synchronize(self):
                device.log.append("wait")

            def elapsed_time(self, other):
                return device.device_ms

        return Event()

    def synchronize(self):
        self.log.append("synchronize")

    def reset_peak_memory_stats(self, device):
        self.peak = self.allocated

    def memory_allocated(self, device):
        return self.allocated

    def max_memory_allocated(self, device):
        return self.peak


class Logged:
    """A flush buffer of 2^20 words that says when it is read, and how much of it is written."""

    def __init__(self, log, words=1 << 20):
        self.log, self.words = log, words

    def numel(self):
        return self.words

    def __getitem__(self, part):
        return Logged(self.log, part.stop)

    def zero_(self):
        self.log.append("write" if self.words == 1 << 20 else f"write {4 * self.words}")

    def amax(self):
        self.log.append("read")


def clock_on(device, cache="cold"):
    clock = CudaClock("cpu", cache, device)
    clock._buffer = Logged(device.log)
    return clock


def call_on(device):
    def call():
        device.log.append("call")

    return call


@pytest.mark.parametrize(
    ("cache", "flush"), [("cold", ["write"]), ("clean", ["read"]), ("warm", [])]
)
def test_the_flush_is_outside_the_timed_region(cache, flush):
    """ben-01: spin, flush, start event, the call alone, end event; warm has no flush."""
    device = Device()
    seconds = clock_on(device, cache).seconds(call_on(device))
    assert device.log == ["spin", *flush, "event", "call", "event", "wait"]
    assert seconds == 2e-3


@pytest.mark.parametrize(
    ("n_bytes", "flush"),
    [
        (0, ["read"]),
        (4000, ["read", "write 4000"]),
        (4 << 20, ["write"]),
        (1 << 30, ["write"]),
        (None, ["write"]),
    ],
)
def test_a_balanced_flush_leaves_what_the_call_leaves(n_bytes, flush):
    """The call finds as many lines to write back as it leaves, at most a whole buffer of them."""
    device = Device()
    clock, call = clock_on(device, "balanced"), call_on(device)
    if n_bytes is not None:
        clock.writes(call, n_bytes)
    clock.seconds(call)
    assert device.log == ["spin", *flush, "event", "call", "event", "wait"]


def test_host_time_does_not_get_between_the_events():
    """A call that takes 350 us to enqueue is timed again behind a spin that lasts longer."""
    device = Device(host_s=350e-6)
    clock, call = clock_on(device), call_on(device)
    clock.seconds(call)
    assert [cycles / 2e9 for cycles in device.spins] == pytest.approx([100e-6, 200e-6, 400e-6])
    clock.seconds(call)  # it is remembered for this call
    assert device.spins[3:] == [800_000]


def test_a_call_that_waits_for_the_device_is_not_tried_for_ever():
    """Its waiting is its own: the longest spin is the last."""
    device = Device(host_s=1.0)
    assert clock_on(device).seconds(call_on(device)) == 2e-3
    assert device.spins[-1] == 6_000_000
    assert len(device.spins) == 6


def test_the_flush_is_several_times_the_cache():
    """Else lines of the call before survive it."""
    buffer = CudaClock("cpu", "cold", Device())._buffer
    assert buffer.dtype is torch.int32
    assert buffer.numel() * 4 >= 4 * (1 << 20)


def test_peak_memory_is_above_what_was_held_before():
    """Inputs do not count, what the call takes does."""
    device = Device()

    def call():
        device.peak = 1750

    assert clock_on(device).peak_bytes(call) == 750


def test_host_time_is_that_of_many_calls_in_a_row():
    """One call first, then as many as asked between two waits for the device."""
    device = Device()
    seconds = clock_on(device).host_seconds(call_on(device), 4)
    assert device.log == ["call", "synchronize", *["call"] * 4, "synchronize"]
    assert 0 < seconds < 1


def test_an_unknown_cache_state_is_refused():
    """The message lists the four."""
    with pytest.raises(
        InputError, match="cache must be one of balanced, cold, clean, warm, got 'hot'"
    ):
        CudaClock("cpu", "hot", Device())


def test_the_host_clock_runs_the_call():
    """It is for dry runs, and says so."""
    ran = []
    clock = HostClock()
    assert clock.seconds(lambda: ran.append(1)) > 0
    assert clock.host_seconds(lambda: ran.append(1), 3) > 0
    assert (len(ran), clock.timer, clock.peak_bytes(ran.clear)) == (4, "host clock", None)


@pytest.mark.parametrize("l2_bytes", [50 << 20, 1 << 20])
def test_the_flush_is_larger_than_the_cache(l2_bytes, monkeypatch):
    """ben-01: four times the L2 of 50 MB that holds the whole problem, 64 MiB at least."""
    device = Device()
    monkeypatch.setattr(
        device, "get_device_properties", lambda name: SimpleNamespace(L2_cache_size=l2_bytes)
    )
    buffer = CudaClock("cpu", "cold", device)._buffer
    assert buffer.numel() * buffer.element_size() == max(4 * l2_bytes, 2**26)
