"""A trace of ``torch.profiler``, read: what each GPU did, and when it did nothing.

Events of the GPU are those of the categories ``kernel``, ``gpu_memcpy`` and ``gpu_memset``. What
else stands on its streams is no work of it: waits for a stream or an event, a user's annotations.
A kind of event that is not there counts as zero. Events that run side by side, on several streams,
count once in a time.

Source: the Trace Event Format, as Kineto writes it (times in microseconds, devices and streams
among an event's arguments).
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from rooftile.errors import FileFormatError, InputError
from rooftile.records.timeline import KernelTime, Timeline

KERNEL, COPY, FILL = "kernel", "gpu_memcpy", "gpu_memset"
_GZIP = b"\x1f\x8b"
# NCCL and RCCL name their kernels alike; the others are NVSHMEM's, MSCCL's and oneCCL's
_COMMUNICATES = re.compile(r"nccl|rccl|msccl|nvshmem|oneccl", re.IGNORECASE)
_WAITS = ("Stream Sync", "Event Sync", "Context Sync", "Device Sync", "Stream Wait Event")

Interval = tuple[int, int]  # start and end [ns]


class _Event(NamedTuple):
    """One event of a GPU."""

    name: str
    category: str
    device: int
    start: int
    end: int

    @property
    def communicates(self) -> bool:
        """Whether it is a kernel of a communication library."""
        return self.category == KERNEL and bool(_COMMUNICATES.search(self.name))


def timelines(path: str | Path, top: int = 10) -> tuple[Timeline, ...]:
    """Read a trace, whole or gzipped: one Timeline a GPU.

    Args:
        path: What ``torch.profiler.profile.export_chrome_trace`` wrote.
        top: How many kernels are named.

    Raises:
        InputError: The file cannot be read, or holds no event of a GPU.
        FileFormatError: It is truncated, or no trace.
    """
    trace = _load(path)
    raw = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(raw, list):
        raise FileFormatError(f"{path} is no trace: it must have a list of traceEvents")
    by_device: dict[int, list[_Event]] = defaultdict(list)
    for event in _events(raw, str(path)):
        by_device[event.device].append(event)
    if not by_device:
        raise InputError(
            f"{path} must hold events of a GPU ({KERNEL}, {COPY}, {FILL}), "
            f"got none among {len(raw)}: was the profiler given ProfilerActivity.CUDA?"
        )
    rank = _rank(trace)
    return tuple(
        _timeline(str(path), device, rank, events, top)
        for device, events in sorted(by_device.items())
    )


def _load(path: str | Path) -> Any:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    try:
        text = gzip.decompress(data) if data.startswith(_GZIP) else data
        # times count from 1970 in microseconds: a double would lose the last three digits of them
        return json.loads(text, parse_float=Decimal)
    except (ValueError, EOFError, OSError, zlib.error) as error:
        raise FileFormatError(f"{path} is truncated or no JSON: {error}") from error


def _events(raw: Sequence[Any], source: str) -> Iterable[_Event]:
    """Complete events of GPUs."""
    for event in raw:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        category, name = str(event.get("cat", "")).lower(), str(event.get("name", ""))
        if category not in (KERNEL, COPY, FILL) or name in _WAITS:
            continue
        try:
            start = round(Decimal(event["ts"]) * 1000)
            end = start + round(Decimal(event.get("dur") or 0) * 1000)
            arguments: dict[str, Any] = event.get("args") or {}
            device = int(arguments["device"] if "device" in arguments else event.get("pid") or 0)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise FileFormatError(f"{source}: no time or device in event {name!r}") from error
        if end < start:
            raise FileFormatError(f"{source}: event {name!r} ends before it starts")
        yield _Event(name, category, device, start, end)


def _rank(trace: Any) -> int | None:
    """Of a trace that a process of a group wrote."""
    info = trace.get("distributedInfo") if isinstance(trace, dict) else None
    rank = info.get("rank") if isinstance(info, dict) else None
    return rank if isinstance(rank, int) else None


def _timeline(
    source: str, device: int, rank: int | None, events: Sequence[_Event], top: int
) -> Timeline:
    def of(*categories: str) -> list[_Event]:
        return [event for event in events if event.category in categories]

    kernels = of(KERNEL)
    every = _union(events)
    compute = _union(event for event in kernels if not event.communicates)
    communication = _union(event for event in kernels if event.communicates)
    return Timeline(
        source=source,
        device=device,
        rank=rank,
        kernels=len(kernels),
        copies=len(of(COPY)),
        fills=len(of(FILL)),
        span_s=(every[-1][1] - every[0][0]) / 1e9,
        busy_s=_length(every),
        compute_s=_length(compute),
        communication_s=_length(communication),
        overlapped_s=_length(_both(compute, communication)),
        memory_s=_length(_union(of(COPY, FILL))),
        slowest=_slowest(kernels, top),
    )


def _union(events: Iterable[_Event]) -> list[Interval]:
    """When at least one of the events runs: intervals that do not touch, in order."""
    found: list[Interval] = []
    for start, end in sorted((event.start, event.end) for event in events):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _both(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """Where two unions meet."""
    found, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            found.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return found


def _length(intervals: Iterable[Interval]) -> float:
    """Sum of lengths [s]."""
    return sum(end - start for start, end in intervals) / 1e9


def _slowest(kernels: Iterable[_Event], top: int) -> tuple[KernelTime, ...]:
    """Kernels by the sum of their times."""
    times: dict[str, list[int]] = defaultdict(list)
    for event in kernels:
        times[event.name].append(event.end - event.start)
    found = [KernelTime(name, len(ns), sum(ns) / 1e9) for name, ns in times.items()]
    return tuple(sorted(found, key=lambda kernel: (-kernel.seconds, kernel.name))[:top])
