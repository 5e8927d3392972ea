"""``rooftile audit``"""

from __future__ import annotations

from typing import Any, cast

from rooftile.cli import options


def audit(
    target: options.Target,
    gpu: options.Gpu = None,
    mode: options.Mode = "infer",
    dtype: options.DType = None,
    batch: options.Batch = None,
    seq: options.Seq = None,
    optimizer: options.Optimizer = "none",
    peak_tflops: options.PeakTflops = None,
    bandwidth_gbs: options.BandwidthGbs = None,
    top: options.Top = None,
    by: options.By = None,
    json_to: options.JsonTo = None,
    csv_to: options.CsvTo = None,
    html_to: options.HtmlTo = None,
    trace_to: options.TraceTo = None,
    sarif_to: options.SarifTo = None,
) -> None:
    """Price every op of a model's step.

    One row an op: FLOP, HBM bytes, FLOP/byte, which wall it hits, its least time and share.

    No GPU is needed, and no weights are loaded. --batch and --seq are for a config.json, or for a
    callable with parameters of these names. The GPU is h100-sxm unless you name another. The table
    goes to stdout, unless a file written to - takes its place.
    """
    from rooftile.api.audit import audit as price
    from rooftile.cli.progress import stages
    from rooftile.report.files import hand_out_report
    from rooftile.report.output import check_destinations, hand_out_audit
    from rooftile.report.table import check_selection

    check_destinations(json=json_to, csv=csv_to, html=html_to, trace=trace_to, sarif=sarif_to)
    grouping = check_selection(by, top)
    with stages() as progress:
        estimate = price(
            target,
            gpu=gpu,
            mode=cast(Any, mode),  # the function itself refuses other words
            dtype=dtype,
            batch=batch,
            seq=seq,
            optimizer=cast(Any, optimizer),
            peak_tflops=peak_tflops,
            bandwidth_gbs=bandwidth_gbs,
            progress=progress,
        )
    printed = hand_out_report(estimate, html=html_to, trace=trace_to, sarif=sarif_to)
    hand_out_audit(
        estimate, by=grouping, top=top, json_to=json_to, csv_to=csv_to, table=not printed
    )
