"""``rooftile fusion``"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rooftile.cli.options import Gpu


def fusion(
    elements: Annotated[
        str, typer.Option(help="Of the tensor: 67108864, 8192x8192, 64M.", metavar="N")
    ],
    ops: Annotated[int, typer.Option(help="Pointwise ops of the chain.", metavar="K")],
    dtype: Annotated[str, typer.Option(help="Of the elements.", metavar="NAME")] = "bf16",
    gpu: Gpu = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what one kernel saves of a chain of pointwise ops.

    Each op reads the tensor once and writes it once; one kernel reads the first and writes the
    last. For a model's own chains: rooftile audit.
    """
    from rooftile.api.fusion import fusion as chain
    from rooftile.report.chain import chain_lines
    from rooftile.report.columns import write_lines
    from rooftile.report.output import STDOUT, deliver, record_json

    found = chain(elements, ops, dtype=dtype, gpu=gpu)
    if as_json:
        deliver(record_json(found), STDOUT)
    else:
        write_lines(chain_lines(found), sys.stdout)
