"""Conditions on a report for CI, and two reports beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rooftile.errors import FileFormatError, InputError

if TYPE_CHECKING:
    from pathlib import Path

    from rooftile.records.difference import Difference
    from rooftile.records.estimate import Estimate
    from rooftile.records.gate import GateResult
    from rooftile.records.plan import Plan


def gate(
    report: str | Path | Plan | Estimate,
    conditions: Sequence[str],
    *,
    base: str | Path | Plan | Estimate | None = None,
) -> GateResult:
    """Check conditions on a step's deterministic figures: bytes, FLOP, verdicts, unpriced ops.

    ``rooftile.gate("new.json", ["bytes <= 1.05 * base.bytes"], base="old.json")``. Conditions are
    read by a small parser: no code runs.

    Args:
        report: What ``rooftile audit --json`` or ``--plan`` wrote, or the record itself.
        conditions: Comparisons of numbers and names with + - * / ( ), joined by ``and`` and ``or``.
        base: Another report, whose figures are named ``base.bytes`` and so on.

    Returns:
        Each condition, whether it holds, and the figures.

    Raises:
        InputError: No condition is given, one has an unknown name or is none: the message points
            at the place; or a file cannot be read.
        FileFormatError: A file is truncated, of another schema version, or no report.
    """
    from rooftile.plan.figures import figures
    from rooftile.plan.gate import evaluate
    from rooftile.records.gate import GateResult

    if not conditions:
        raise InputError("conditions must hold at least one, got none")
    plan = _plan(report)
    known = figures(plan)
    if base is not None:
        known |= {f"base.{name}": value for name, value in figures(_plan(base)).items()}
    checked = tuple(evaluate(condition, known) for condition in conditions)
    return GateResult(plan.estimate.graph.target, checked, known)


def diff(before: str | Path | Plan | Estimate, after: str | Path | Plan | Estimate) -> Difference:
    """Say what a change did to the traffic of a step, by op and by line.

    Args:
        before: What ``rooftile audit --json`` or ``--plan`` wrote, or the record itself.
        after: The same after the change.

    Raises:
        InputError: A file cannot be read.
        FileFormatError: A file is truncated, of another schema version, or no report.
    """
    from rooftile.plan.figures import compare

    return compare(_estimate(before), _estimate(after))


def _plan(report: str | Path | Plan | Estimate) -> Plan:
    """The plan of a report; made anew from an estimate."""
    from rooftile.plan.decide import decide
    from rooftile.records.plan import Plan

    record = _record(report)
    return record if isinstance(record, Plan) else decide(record)


def _estimate(report: str | Path | Plan | Estimate) -> Estimate:
    from rooftile.records.plan import Plan

    record = _record(report)
    return record.estimate if isinstance(record, Plan) else record


def _record(report: str | Path | Plan | Estimate) -> Plan | Estimate:
    from rooftile.records.estimate import Estimate
    from rooftile.records.io import read_record
    from rooftile.records.plan import Plan

    if isinstance(report, Plan | Estimate):
        return report
    record = read_record(report)
    if not isinstance(record, Plan | Estimate):
        raise FileFormatError(f"{report} must hold an estimate or a plan, got a {record.kind}")
    return record
