"""``rooftile roofline``"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rooftile.cli.options import BandwidthGbs, DType, Gpu, PeakTflops


def roofline(
    flops: Annotated[str, typer.Option(help="The work: 12288, 1.5e9, '137 GFLOP'.", metavar="N")],
    bytes_: Annotated[
        str, typer.Option("--bytes", help="What moves: 32768, 3.2G, '192 MiB'.", metavar="N")
    ],
    gpu: Gpu = None,
    dtype: DType = None,
    peak_tflops: PeakTflops = None,
    bandwidth_gbs: BandwidthGbs = None,
    vector: Annotated[
        bool, typer.Option("--vector", help="Pointwise work or a reduction, no matrix product.")
    ] = False,
    time_us: Annotated[
        float | None, typer.Option(help="A measured time in us to set against it.", metavar="N")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Place FLOP and bytes under a GPU's roofline.

    Prints intensity, ridge, attainable FLOP/s, bound and least time.
    """
    from rooftile.api.roofline import roofline as place
    from rooftile.report.columns import write_lines
    from rooftile.report.output import STDOUT, deliver, record_json
    from rooftile.report.roofline import roofline_lines

    point = place(
        flops,
        bytes_,
        gpu=gpu,
        dtype=dtype,
        peak_tflops=peak_tflops,
        bandwidth_gbs=bandwidth_gbs,
        vector=vector,
        time_s=None if time_us is None else time_us * 1e-6,
    )
    if as_json:
        deliver(record_json(point), STDOUT)
    else:
        write_lines(roofline_lines(point), sys.stdout)
