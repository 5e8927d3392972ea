"""An audit as files for people and tools: ``rooftile.write_report(estimate, html="a.html")``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooftile.records.estimate import Estimate
    from rooftile.records.plan import Plan


def write_report(
    record: Estimate | Plan,
    *,
    html: str | Path | None = None,
    trace: str | Path | None = None,
    sarif: str | Path | None = None,
) -> None:
    """Write an audit's report; each file whole or not at all.

    Args:
        record: What :func:`rooftile.audit` or :func:`rooftile.load` gives.
        html: One self-contained page.
        trace: The predicted timeline as a Chrome trace, for Perfetto.
        sarif: Findings on the user's lines as SARIF 2.1.0.

    Raises:
        InputError: A file cannot be written; then none is.
    """
    from rooftile.report.files import report_files
    from rooftile.report.output import check_destinations, deliver

    given = {"html": html, "trace": trace, "sarif": sarif}
    named = {name: None if path is None else str(path) for name, path in given.items()}
    check_destinations((), **named)
    for path, data in report_files(record, **named):
        deliver(data, path)
