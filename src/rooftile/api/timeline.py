"""What a GPU did over a measured trace: ``rooftile.timeline(...)``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooftile.records.timeline import Timeline


def timeline(path: str | Path, *, top: int = 10) -> tuple[Timeline, ...]:
    """Read a trace of ``torch.profiler`` and say what each GPU did, and when it did nothing.

    Args:
        path: What ``export_chrome_trace`` wrote, gzipped or not.
        top: How many kernels are named.

    Returns:
        One Timeline a GPU: busy and idle time, compute, communication and how much of it compute
        hides, copies and fills, the slowest kernels. Waits on a stream are no work.

    Raises:
        InputError: The file cannot be read, or holds no event of a GPU.
        FileFormatError: It is truncated, or no trace.
    """
    from rooftile.measure.kineto import timelines

    return timelines(path, top)
