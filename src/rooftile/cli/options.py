"""Options that more than one command has."""

from __future__ import annotations

from typing import Annotated

import typer

Gpu = Annotated[
    str | None,
    typer.Option(
        help="A GPU of `rooftile gpus`, or a JSON file of one's own.", metavar="NAME|FILE"
    ),
]
Gpus = Annotated[
    str | None,
    typer.Option(
        help="A GPU of `rooftile gpus`, or a JSON file of one's own. Several, parted by commas: "
        "where the verdict flips.",
        metavar="NAME|FILE[,...]",
    ),
]
DType = Annotated[str | None, typer.Option(help="bf16, fp16, fp32, tf32, fp8, ...", metavar="NAME")]
PeakTflops = Annotated[
    float | None,
    typer.Option(help="Dense peak in TFLOP/s instead of the GPU's own.", metavar="N"),
]
BandwidthGbs = Annotated[
    float | None,
    typer.Option(help="Memory bandwidth in GB/s (1e9) instead of the GPU's own.", metavar="N"),
]
