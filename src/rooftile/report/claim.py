"""Claims as text: each reading with its checks, then the answer."""

from __future__ import annotations

from rooftile import units
from rooftile.records.claim import Check, ClaimReport, ClaimTable, Reading
from rooftile.report.columns import Column, Line, align, pairs

_CHECKS = ("FLOP/s", "traffic", "bandwidth", "printed traffic", "memory", "capacity", "launch")


def claim_lines(table: ClaimTable, width: int | None = None) -> list[Line]:
    """The text of every report.

    Args:
        table: What was checked.
        width: Characters a line of the tables may have; None: no limit.
    """
    lines: list[Line] = []
    for report in table.reports:
        if lines:
            lines.append((("", ""),))
        lines += _report_lines(report, width)
    return lines


def _report_lines(report: ClaimReport, width: int | None) -> list[Line]:
    claim = report.claim
    given = {check.name for reading in report.readings for check in reading.checks}
    shown = [name for name in _CHECKS if name in given]
    columns = [
        Column("reading"),
        *(Column(name, "right") for name in shown),
        Column("answer"),
    ]
    rows = [_cells(reading, shown) for reading in report.readings]
    sizes = " ".join(f"{name}={size}" for name, size in claim.shape.items())
    claimed = [
        units.seconds(claim.time_s) if claim.time_s is not None else "",
        units.bandwidth(claim.bandwidth_bytes_per_s) if claim.bandwidth_bytes_per_s else "",
        units.traffic(claim.memory_bytes) if claim.memory_bytes else "",
    ]
    what = f"{'unfused ' if claim.unfused else ''}{claim.op} {sizes}"
    kindest = report.readings[0]
    return [
        *pairs(
            [
                ("claim", claim.label or what),
                *([("op", what)] if claim.label else []),
                ("GPU", report.gpu_name),
                ("claimed", ", ".join(text for text in claimed if text)),
            ]
        ),
        *align(columns, rows, width),
        *pairs([("answer", _answer(report)), *((c.name, _because(c)) for c in kindest.checks)]),
    ]


def _cells(reading: Reading, shown: list[str]) -> list[str]:
    checks = {check.name: check for check in reading.checks}
    factors = [f"{checks[name].factor:.3g} x" if name in checks else "-" for name in shown]
    return [_read_as(reading), *factors, reading.answer]


def _read_as(reading: Reading) -> str:
    mask = {None: "", True: ", causal", False: ", full"}[reading.causal]
    return reading.dtype + mask


def _answer(report: ClaimReport) -> str:
    kindest = report.readings[0]
    read = f"read as {_read_as(kindest)}"
    if report.answer == "impossible":
        return f"impossible in every reading: {report.factor:.3g} x too good even {read}"
    if report.answer == "suspicious":
        return f"suspicious, and only {read}: {report.factor:.3g} of what is possible"
    return f"possible {read}"


def _because(check: Check) -> str:
    return f"{check.detail} ({check.answer}, {check.factor:.3g} x)"
