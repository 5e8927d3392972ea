"""Binary against formula as text."""

from __future__ import annotations

from rooftile import units
from rooftile.records.resources import Traffic
from rooftile.report.columns import Line, pairs


def traffic_lines(found: Traffic) -> list[Line]:
    """What a grid can move, what it must, and what to look at."""
    loads, stores = found.widths
    lines = [
        ("kernel", f"{found.kernel} on {found.target}"),
        ("grid", f"{units.count(found.blocks)} blocks of {found.threads} threads"),
        ("loads", f"{units.traffic(found.loaded_bytes)}{_width(loads)}"),
        ("stores", f"{units.traffic(found.stored_bytes)}{_width(stores)}"),
    ]
    for loop, (loaded, stored) in found.per_iteration.items():
        lines.append(
            (
                f"loop {loop}",
                f"{units.traffic(loaded)} loaded and {units.traffic(stored)} stored an iteration,"
                f" in no total: --trips {loop}=N says how many",
            )
        )
    if found.formula_bytes is not None:
        lines.append(("formula", f"{units.traffic(found.formula_bytes)} must move"))
        ratio = "not known" if found.ratio is None else f"{found.ratio:.2f} of the formula's bytes"
        lines.append(("ratio", ratio))
    lines += [("look at", flag) for flag in found.flags or ("nothing",)]
    return pairs(lines)


def _width(width: int) -> str:
    return f", at most {width} B of a thread at once" if width else ""
