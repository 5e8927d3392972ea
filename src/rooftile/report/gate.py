"""Gates and differences as text."""

from __future__ import annotations

from collections.abc import Sequence

from rooftile import units
from rooftile.records.difference import Change, Difference
from rooftile.records.gate import GateResult
from rooftile.report.columns import Column, Line, align, pairs

_COLUMNS = (
    Column("ops", "right"),
    Column("now", "right"),
    Column("bytes", "right"),
    Column("now", "right"),
    Column("change", "right"),
    Column("", "right"),
    Column("FLOP", "right"),
    Column("now", "right"),
)


def gate_lines(result: GateResult) -> list[Line]:
    """One line a condition: whether it holds, and the figures."""
    rows = [
        ["ok" if condition.holds else "FAILED", condition.expression,
         ", ".join(condition.comparisons)]
        for condition in result.conditions
    ]  # fmt: skip
    return align([Column("gate"), Column("condition"), Column("figures")], rows)


def difference_lines(difference: Difference, top: int | None = None) -> list[Line]:
    """The totals, then what changed by op and by line.

    Args:
        difference: What changed.
        top: Only so many rows of each table.
    """
    blank: Line = (("", ""),)
    lines = pairs([("before", difference.before), ("after", difference.after)])
    lines += [blank, *_table("step", [difference.total])]
    for title, changes in (("op", difference.by_op), ("line", difference.by_line)):
        lines.append(blank)
        lines += _table(title, changes[:top]) if changes else pairs([(title, "no change")])
    return lines


def _table(title: str, changes: Sequence[Change]) -> list[Line]:
    return align((Column(title), *_COLUMNS), [_cells(change) for change in changes])


def _cells(change: Change) -> list[str]:
    moved = f"{'+' if change.bytes > 0 else '-' if change.bytes < 0 else ''}"
    part = units.percent(abs(change.bytes), change.before_bytes) if change.before_bytes else "new"
    return [
        change.name,
        units.count(change.before_ops),
        units.count(change.after_ops),
        units.traffic(change.before_bytes),
        units.traffic(change.after_bytes),
        moved + units.traffic(abs(change.bytes)),
        moved + part if change.bytes else "",
        units.flop(change.before_flops).removesuffix("FLOP").strip(),
        units.flop(change.after_flops).removesuffix("FLOP").strip(),
    ]
