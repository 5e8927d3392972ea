"""``rooftile claim``"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rooftile.cli.options import DType, Gpu


def claim(
    table: Annotated[
        str | None,
        typer.Argument(
            help="A CSV, JSON or YAML table of claims, in place of the options. Columns: label, "
            "op, shape, gpu, dtype, time, bandwidth, memory, causal, unfused, sparse.",
            metavar="[TABLE]",
        ),
    ] = None,
    op: Annotated[
        str | None,
        typer.Option(help="attention, matmul, softmax, rms_norm, layer_norm or copy."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="batch=16,heads=32,seq=4096,dim=128; m=,n=,k=; rows=,cols=; elements="),
    ] = None,
    gpu: Gpu = None,
    time: Annotated[str | None, typer.Option(help="Of one call: '1.14 ms'.")] = None,
    dtype: DType = None,
    bandwidth: Annotated[str | None, typer.Option(help="As printed: '2.0 TB/s'.")] = None,
    memory: Annotated[str | None, typer.Option(help="Peak, as printed: '64 MB'.")] = None,
    causal: Annotated[
        bool | None, typer.Option("--causal/--full", help="The mask, where the claim says.")
    ] = None,
    unfused: Annotated[
        bool, typer.Option("--unfused", help="Attention that writes its scores to memory.")
    ] = False,
    sparse: Annotated[
        bool, typer.Option("--sparse", help="The claim says that it uses 2:4 sparsity.")
    ] = False,
    json_to: Annotated[
        str | None, typer.Option("--json", help="Write the answers as JSON.", metavar="FILE|-")
    ] = None,
) -> None:
    """Check a published benchmark against physics.

    Implied FLOP/s against the dense peak, least traffic against the memory's bandwidth, printed
    bandwidth and memory against both. Where the claim is silent, every reading is checked. Exit
    code 1 if a claim is impossible in every one.
    """
    from rooftile.api.claim import claims_from_arguments, claims_from_file
    from rooftile.errors import GateError, InputError
    from rooftile.report.claim import claim_lines
    from rooftile.report.columns import write_lines
    from rooftile.report.output import STDOUT, check_destinations, deliver, record_json

    check_destinations((table,), json=json_to)
    if table is not None:
        options = (op, shape, gpu, time, dtype, bandwidth, memory, causal)
        if any(given is not None for given in options) or unfused or sparse:
            raise InputError("give a table or the options of one claim, not both")
        found = claims_from_file(table)
    else:
        found = claims_from_arguments(
            op=op, shape=shape, gpu=gpu, time=time, dtype=dtype, bandwidth=bandwidth,
            memory=memory, causal=causal, unfused=unfused, sparse=sparse,
        )  # fmt: skip
    if json_to is not None:
        deliver(record_json(found), json_to)
    if json_to != STDOUT:
        write_lines(claim_lines(found), sys.stdout)
    bad = sum(report.answer == "impossible" for report in found.reports)
    if bad:
        raise GateError(f"{bad} of {len(found.reports)} claims impossible")
