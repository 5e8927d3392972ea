"""``rooftile tile``"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rooftile.cli.options import Gpu


def tile(
    op: Annotated[str, typer.Argument(help="What to cut.", metavar="rows|matmul|attention")],
    shape: Annotated[
        str,
        typer.Argument(
            help="rows: 50257. matmul: MxNxK. attention: BATCHxHEADSxTOKENSxHEAD_DIM.",
            metavar="SHAPE",
        ),
    ],
    dtype: Annotated[str, typer.Option(help="Of the operands.", metavar="NAME")] = "bfloat16",
    gpu: Gpu = None,
    family: Annotated[
        str, typer.Option(help="Of a row kernel: softmax_fwd, norm_bwd, ...", metavar="NAME")
    ] = "softmax_fwd",
    kv_heads: Annotated[
        int | None, typer.Option(help="Heads of keys, for attention.", metavar="N")
    ] = None,
    top: Annotated[int, typer.Option(help="Tiles to show.", metavar="N")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how to cut rows, a matmul or an attention.

    Tiles are ranked by what they move over how evenly they fill the GPU; shared memory is that of
    the installed generation of Triton. The GPU is h100-sxm unless you name another.
    """
    from rooftile.api.tile import tile as cut
    from rooftile.report.columns import width_of, write_lines
    from rooftile.report.output import STDOUT, deliver, record_json
    from rooftile.report.tile import tile_lines

    found = cut(op, shape, dtype=dtype, gpu=gpu, family=family, kv_heads=kv_heads, top=top)
    if as_json:
        deliver(record_json(found), STDOUT)
    else:
        write_lines(tile_lines(found, width_of(sys.stdout)), sys.stdout)
