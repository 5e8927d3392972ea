"""``rooftile gate`` and ``rooftile diff``"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

_Json = Annotated[
    str | None, typer.Option("--json", help="Write the result as JSON.", metavar="FILE|-")
]


def gate(
    report: Annotated[
        str, typer.Argument(help="What rooftile audit --json or --plan wrote.", metavar="REPORT")
    ],
    conditions: Annotated[
        list[str],
        typer.Argument(help='Such as "bytes <= 1.05 * base.bytes".', metavar="CONDITION..."),
    ],
    base: Annotated[
        str | None,
        typer.Option(help="Another report, whose figures are base.bytes ...", metavar="REPORT"),
    ] = None,
    json_to: _Json = None,
    sarif_to: Annotated[
        str | None,
        typer.Option("--sarif", help="Write what does not hold as SARIF.", metavar="FILE|-"),
    ] = None,
) -> None:
    """Fail if a condition on bytes, FLOP or verdicts does not hold.

    Figures are the same on every machine: ops, bytes, flops, matrix_flops, unpriced_share,
    saved_bytes, hand_write ... An unknown name lists them all. Exit code 1 if a condition does not
    hold, 2 if it is none.
    """
    from rooftile.api.gate import diff as compare
    from rooftile.api.gate import gate as check
    from rooftile.errors import GateError
    from rooftile.report.columns import write_lines
    from rooftile.report.gate import gate_lines, gate_sarif
    from rooftile.report.output import STDOUT, check_destinations, deliver, record_json

    check_destinations((report, base), json=json_to, sarif=sarif_to)
    result = check(report, conditions, base=base)
    if json_to is not None:
        deliver(record_json(result), json_to)
    if sarif_to is not None:
        grown = None if base is None else compare(base, report)
        deliver(gate_sarif(result, grown), sarif_to)
    if STDOUT not in (json_to, sarif_to):
        write_lines(gate_lines(result), sys.stdout)
    failed = sum(not condition.holds for condition in result.conditions)
    if failed:
        raise GateError(f"{failed} of {len(result.conditions)} conditions do not hold")


def diff(
    before: Annotated[
        str, typer.Argument(help="What rooftile audit --json or --plan wrote.", metavar="BEFORE")
    ],
    after: Annotated[str, typer.Argument(help="The same after a change.", metavar="AFTER")],
    top: Annotated[
        int | None, typer.Option(help="Only N rows of each table.", metavar="N", min=1)
    ] = None,
    json_to: _Json = None,
) -> None:
    """Say what a change did to the traffic, by op and by line."""
    from rooftile.api.gate import diff as compare
    from rooftile.report.columns import write_lines
    from rooftile.report.gate import difference_lines
    from rooftile.report.output import STDOUT, check_destinations, deliver, record_json

    check_destinations((before, after), json=json_to)
    found = compare(before, after)
    if json_to is not None:
        deliver(record_json(found), json_to)
    if json_to != STDOUT:
        write_lines(difference_lines(found, top), sys.stdout)
