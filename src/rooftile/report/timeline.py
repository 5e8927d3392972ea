"""A GPU's timeline as text."""

from __future__ import annotations

from rooftile import units
from rooftile.records.timeline import Timeline
from rooftile.report.columns import Column, Line, align, pairs


def timeline_lines(found: Timeline) -> list[Line]:
    """How long it worked, at what, and the kernels that took the most time."""
    rank = "" if found.rank is None else f", rank {found.rank}"
    hidden = units.percent(found.overlapped_s, found.communication_s or 1.0)
    memory = f"{units.count(found.copies)} copies, {units.count(found.fills)} fills"
    lines = pairs(
        [
            ("trace", f"{found.source}, GPU {found.device}{rank}"),
            ("span", f"{units.seconds(found.span_s)}, {units.count(found.kernels)} kernels"),
            ("busy", _part(found.busy_s, found)),
            ("idle", _part(found.idle_s, found)),
            ("compute", _part(found.compute_s, found)),
            ("communication", f"{_part(found.communication_s, found)}; {hidden} behind compute"),
            ("memory", f"{_part(found.memory_s, found)}; {memory}"),
        ]
    )
    if not found.slowest:
        return lines
    columns = [Column("kernel", cut="end"), Column("calls", "right"), Column("time", "right")]
    rows = [[k.name, units.count(k.calls), units.seconds(k.seconds)] for k in found.slowest]
    return [*lines, (), *align(columns, rows)]


def _part(seconds: float, found: Timeline) -> str:
    """A time, and in parts of the span."""
    return f"{units.seconds(seconds)}, {units.percent(seconds, found.span_s or 1.0)}"
