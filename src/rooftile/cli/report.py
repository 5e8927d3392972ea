"""``rooftile report``"""

from __future__ import annotations

from rooftile.cli import options


def report(
    file: options.RecordFile,
    html_to: options.HtmlTo = None,
    trace_to: options.TraceTo = None,
    sarif_to: options.SarifTo = None,
    csv_to: options.CsvTo = None,
    top: options.Top = None,
    by: options.By = None,
) -> None:
    """Report on a saved audit.

    FILE is what `rooftile audit --json` wrote, here or on another machine; neither torch nor the
    model is needed. Without an option, the table is printed.
    """
    from rooftile.api.load import load
    from rooftile.report.files import hand_out_report
    from rooftile.report.insights import estimate_of
    from rooftile.report.output import check_destinations, hand_out_audit
    from rooftile.report.table import check_selection

    check_destinations((file,), html=html_to, trace=trace_to, sarif=sarif_to, csv=csv_to)
    grouping = check_selection(by, top)
    record = load(file)
    hand_out_report(record, html=html_to, trace=trace_to, sarif=sarif_to)
    asked = any(path is not None for path in (html_to, trace_to, sarif_to))
    hand_out_audit(estimate_of(record), by=grouping, top=top, csv_to=csv_to, table=not asked)
