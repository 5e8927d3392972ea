"""Rule and compiler beside each other as text."""

from __future__ import annotations

from rooftile import units
from rooftile.records.agreement import Agreement
from rooftile.report.columns import Line, pairs

_NAMED = 8


def agreement_lines(found: Agreement) -> list[Line]:
    """How many groups agree, and each difference."""
    version = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    lines = [
        (
            "Inductor",
            f"{version} for {found.device} makes one kernel of {units.count(found.agreed)} of "
            f"{units.count(found.groups)} groups that the rules say it fuses "
            f"({', '.join(found.passes)})",
        )
    ]
    for item in found.disagreements:
        more = f" and {len(item.names) - _NAMED} more" if len(item.names) > _NAMED else ""
        times = f"{units.count(item.times)} x " if item.times > 1 else ""
        place = f" at {item.line}" if item.line else ""
        names = ", ".join(item.names[:_NAMED])
        lines.append(("  differs", f"{times}{names}{more}{place}: {item.detail}"))
    return pairs(lines)
