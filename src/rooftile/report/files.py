"""The files of a report, by where they go."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rooftile.records.estimate import Estimate
from rooftile.records.plan import Plan
from rooftile.report.output import STDOUT, deliver


def report_files(
    record: Estimate | Plan,
    *,
    html: str | None = None,
    trace: str | None = None,
    sarif: str | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Destination and content of each file that is asked for.

    Args:
        record: The audit.
        html: Where the page goes.
        trace: Where the Chrome trace goes.
        sarif: Where the SARIF log goes.
    """
    # each only where it is asked for: jinja2 alone takes 0.1 s to import
    if html is not None:
        from rooftile.report.html import html_report

        yield html, html_report(record)
    if trace is not None:
        from rooftile.report.trace import chrome_trace

        yield trace, chrome_trace(record)
    if sarif is not None:
        from rooftile.report.sarif import sarif as sarif_log

        yield sarif, sarif_log(record)


def hand_out_report(
    record: Estimate | Plan,
    *,
    html: str | None = None,
    trace: str | None = None,
    sarif: str | None = None,
) -> bool:
    """Write the files that are asked for, and say so on stderr.

    Returns:
        Whether one of them went to stdout, which then has no room for a table.

    Raises:
        InputError: A file cannot be written.
    """
    for path, data in report_files(record, html=html, trace=trace, sarif=sarif):
        deliver(data, path)
        if path != STDOUT:
            print(f"wrote {path}", file=sys.stderr)
    return STDOUT in (html, trace, sarif)
