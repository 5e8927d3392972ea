"""Gates and differences as text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import rooftile
from rooftile import units
from rooftile.records.difference import Change, Difference
from rooftile.records.gate import GateResult
from rooftile.report.columns import Column, Line, align, pairs
from rooftile.report.sarif import SCHEMA, location

_PLACES = 5  # lines that grew the most, of a gate that fails

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


def gate_sarif(result: GateResult, difference: Difference | None = None) -> bytes:
    """Conditions that do not hold as one SARIF run; no result where all hold.

    Args:
        result: What was checked.
        difference: Against the baseline: a result then stands on the lines whose traffic grew the
            most.
    """
    grown = [] if difference is None else [c.name for c in difference.by_line if c.bytes > 0]
    places = [place for line in grown[:_PLACES] if (place := location(line)) is not None]
    rule = {
        "id": "rooftile/gate",
        "shortDescription": {"text": "A condition on the step's figures does not hold."},
        "defaultConfiguration": {"level": "error"},
    }
    results = [
        {
            "ruleId": rule["id"],
            "ruleIndex": 0,
            "level": "error",
            "message": {
                "text": f"{result.target}: {condition.expression} does not hold: "
                + ", ".join(condition.comparisons)
            },
            "locations": places,
            "partialFingerprints": {
                "rooftile/v1": hashlib.sha256(condition.expression.encode()).hexdigest()[:32]
            },
        }
        for condition in result.conditions
        if not condition.holds
    ]
    driver = {"name": "Rooftile", "semanticVersion": rooftile.__version__, "rules": [rule]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1).encode()


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
