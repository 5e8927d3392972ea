"""``rooftile audit``"""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from rooftile.cli.options import BandwidthGbs, DType, Gpus, PeakTflops


def audit(
    target: Annotated[
        str,
        typer.Argument(
            help="file.py:callable or package.module:callable (returns model and example inputs), "
            "a .pt2 file, or a transformers config.json.",
            metavar="TARGET",
        ),
    ],
    gpu: Gpus = None,
    mode: Annotated[
        str, typer.Option(help="A forward, or a whole training step.", metavar="infer|train")
    ] = "infer",
    dtype: DType = None,
    batch: Annotated[int | None, typer.Option(help="Batch size.", metavar="N")] = None,
    seq: Annotated[int | None, typer.Option(help="Tokens in a sequence.", metavar="N")] = None,
    optimizer: Annotated[
        str, typer.Option(help="Whose update ends a training step.", metavar="none|sgd|adamw")
    ] = "none",
    peak_tflops: PeakTflops = None,
    bandwidth_gbs: BandwidthGbs = None,
    top: Annotated[
        int | None, typer.Option(help="Only the N rows with the longest least time.", metavar="N")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="One row a group of ops.", metavar="op|module|line")
    ] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", help="Write the estimate as JSON.", metavar="FILE|-")
    ] = None,
    csv_to: Annotated[
        str | None, typer.Option("--csv", help="Write the table as CSV.", metavar="FILE|-")
    ] = None,
    plan_to: Annotated[
        str | None,
        typer.Option("--plan", help="Write groups and verdicts as JSON.", metavar="FILE|-"),
    ] = None,
    hot: Annotated[
        float,
        typer.Option(help="Share of the step from which an op is hot.", metavar="SHARE"),
    ] = 0.01,
    check_inductor: Annotated[
        bool,
        typer.Option("--check-inductor", help="Ask torch.compile where it differs (a minute)."),
    ] = False,
) -> None:
    """Price every op of a model's step.

    One row an op: FLOP, HBM bytes, FLOP/byte, which wall it hits, its least time and share, and
    what to do about it. Then the totals, and the findings that save the most.

    No GPU is needed, and no weights are loaded. --batch and --seq are for a config.json, or for a
    callable with parameters of these names. The GPU is h100-sxm unless you name another. The table
    goes to stdout, unless --json - or --csv - takes its place.
    """
    from rooftile.api.advise import advise, check_gpus, check_hot_share, what_if
    from rooftile.api.audit import audit as price
    from rooftile.api.compiler import check_compiler
    from rooftile.cli.progress import stages
    from rooftile.report.output import check_destinations, hand_out_audit, hand_out_what_if
    from rooftile.report.table import check_selection

    check_destinations(json=json_to, csv=csv_to, plan=plan_to)
    check_hot_share(hot)
    grouping = check_selection(by, top)
    several = check_gpus(gpu, by=by, csv=csv_to, plan=plan_to)
    with stages() as progress:
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
    if plan_to is not None or check_inductor or "-" not in (json_to, csv_to):
        plan = advise(estimate, hot_share=hot)
    agreement = None
    if check_inductor and plan is not None:
        with stages() as progress:
            agreement = check_compiler(plan, progress=progress)
    hand_out_audit(
        estimate,
        by=grouping,
        top=top,
        json_to=json_to,
        csv_to=csv_to,
        plan=plan,
        plan_to=plan_to,
        agreement=agreement,
    )
