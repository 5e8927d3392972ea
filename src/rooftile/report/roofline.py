"""One piece of work under a roofline, as text."""

from __future__ import annotations

from rooftile import units
from rooftile.records.roofline import Achieved, Roofline
from rooftile.report.columns import Line, pairs


def roofline_lines(point: Roofline) -> list[Line]:
    """What the work is, the roof above it, which wall it hits and the least time."""
    roof = units.flop_rate(point.peak_flops_per_s)
    rate = units.bandwidth(point.bandwidth_bytes_per_s)
    intensity = "none: nothing moves"
    if point.intensity is not None:
        intensity = f"{units.intensity(point.intensity)} FLOP/byte"
    lines = [
        ("GPU", f"{point.gpu_name} ({point.gpu})"),
        ("peak", f"{roof}{f' {point.math}' if point.math else ''}, dense ({point.peak_source})"),
        ("bandwidth", f"{rate} ({point.bandwidth_source})"),
        ("work", f"{units.flop(point.flops)}, {units.traffic(point.bytes)}"),
        ("intensity", intensity),
        ("ridge", f"{units.intensity(point.ridge)} FLOP/byte"),
        (
            "attainable",
            f"{units.flop_rate(point.attainable_flops_per_s)}, "
            f"{units.percent(point.fraction_of_peak)} of the peak",
        ),
        ("bound", point.bound + (", below the launch floor" if point.launch_bound else "")),
        ("least time", _least_time(point)),
    ]
    return pairs(lines + ([] if point.achieved is None else _achieved(point.achieved)))


def _least_time(point: Roofline) -> str:
    """The least time and the floors it is the largest of."""
    floors = [
        f"FLOP {units.seconds(point.compute_s)}",
        f"bytes {units.seconds(point.hbm_s)}",
        f"launch {units.seconds(point.launch_s)}",
    ]
    if point.l2_s is not None:
        floors.insert(2, f"bytes in the L2 {units.seconds(point.l2_s)}")
    return f"{units.seconds(point.least_s)} ({', '.join(floors)})"


def _achieved(achieved: Achieved) -> list[tuple[str, str]]:
    """What a measured time makes of the work."""
    return [
        ("measured", units.seconds(achieved.time_s)),
        (
            "achieved",
            f"{units.flop_rate(achieved.flops_per_s)}, "
            f"{units.percent(achieved.fraction_of_peak)} of the peak; "
            f"{units.bandwidth(achieved.bytes_per_s)}, "
            f"{units.percent(achieved.fraction_of_bandwidth)} of the bandwidth; "
            f"{units.percent(achieved.fraction_of_attainable)} of the attainable",
        ),
    ]
