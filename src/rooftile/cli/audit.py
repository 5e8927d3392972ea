"""``rooftile audit``"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, cast

from rooftile.cli import options


@contextmanager
def _uncollected() -> Iterator[None]:
    """Spare the garbage collector: looking through what torch's import allocates takes 1 to 2 s."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def audit(
    target: options.Target,
    gpu: options.Gpus = None,
    mode: options.Mode = "infer",
    dtype: options.WeightDType = None,
    batch: options.Batch = None,
    seq: options.Seq = None,
    optimizer: options.Optimizer = "none",
    peak_tflops: options.PeakTflops = None,
    bandwidth_gbs: options.BandwidthGbs = None,
    top: options.Top = None,
    by: options.By = None,
    json_to: options.JsonTo = None,
    csv_to: options.CsvTo = None,
    plan_to: options.PlanTo = None,
    html_to: options.HtmlTo = None,
    trace_to: options.TraceTo = None,
    sarif_to: options.SarifTo = None,
    hot: options.Hot = 0.01,
    check_inductor: options.CheckInductor = False,
) -> None:
    """Price every op of a model's step.

    One row an op: FLOP, HBM bytes, FLOP/byte, which wall it hits, its least time and share, and
    what to do about it. Then the totals, and the findings that save the most.

    No GPU is needed, and no weights are loaded. --batch and --seq are for a config.json, or for a
    callable with parameters of these names. The GPU is h100-sxm unless you name another. The table
    goes to stdout, unless a file written to - takes its place.
    """
    from rooftile.api.advise import advise, check_gpus, check_hot_share, what_if
    from rooftile.api.audit import audit as price
    from rooftile.api.compiler import check_compiler
    from rooftile.cli.progress import stages
    from rooftile.report.files import hand_out_report
    from rooftile.report.output import (
        check_destinations,
        hand_out_audit,
        hand_out_what_if,
        source_of,
    )
    from rooftile.report.table import check_selection

    check_destinations(
        (source_of(target), gpu),
        json=json_to,
        csv=csv_to,
        plan=plan_to,
        html=html_to,
        trace=trace_to,
        sarif=sarif_to,
    )
    check_hot_share(hot)
    grouping = check_selection(by, top)
    several = check_gpus(gpu, by=by, csv=csv_to, plan=plan_to)
    # stdout is data: what the user's code prints goes to stderr
    with stages() as progress, redirect_stdout(sys.stderr), _uncollected():
        estimate = price(
            target,
            gpu=several[0] if several else gpu,
            mode=cast(Any, mode),  # the function itself refuses other words
            dtype=dtype,
            batch=batch,
            seq=seq,
            optimizer=cast(Any, optimizer),
            peak_tflops=peak_tflops,
            bandwidth_gbs=bandwidth_gbs,
            progress=progress,
        )
    if several:
        hand_out_what_if(what_if(estimate, several, hot_share=hot), top=top, json_to=json_to)
        return
    plan = None
    pages = any(path is not None for path in (html_to, trace_to, sarif_to))
    if pages or plan_to is not None or check_inductor or "-" not in (json_to, csv_to):
        plan = advise(estimate, hot_share=hot)
    agreement = None
    if check_inductor and plan is not None:
        with stages() as progress:
            agreement = check_compiler(plan, progress=progress)
    printed = hand_out_report(plan or estimate, html=html_to, trace=trace_to, sarif=sarif_to)
    hand_out_audit(
        estimate,
        by=grouping,
        top=top,
        json_to=json_to,
        csv_to=csv_to,
        plan=plan,
        plan_to=plan_to,
        agreement=agreement,
        table=not printed,
    )
