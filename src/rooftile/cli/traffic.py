"""``rooftile traffic``"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rooftile.cli.occupancy import Arch, AsJson, Call, Const, NoCache, Signature, settings
from rooftile.errors import InputError

Kernel = Annotated[
    str,
    typer.Argument(
        help="A Triton or Gluon kernel: file.py:name or package.module:name.", metavar="KERNEL"
    ),
]
Grid = Annotated[
    str | None,
    typer.Option(help="Blocks of the launch; those of the call where not given.", metavar="XxYxZ"),
]
Bytes = Annotated[
    float | None, typer.Option("--bytes", help="What must move, in bytes.", metavar="N")
]
CaseName = Annotated[
    str | None,
    typer.Option(
        help="A bench case beside the kernel: it launches the kernel, and its cost is the formula.",
        metavar="NAME",
    ),
]
Shape = Annotated[str | None, typer.Option(help="A shape of the case: 65536x4096.", metavar="MxN")]
Trips = Annotated[
    list[str] | None,
    typer.Option(help="How often a loop runs: 1=4; may be repeated.", metavar="LOOP=N"),
]


def traffic(
    kernel: Kernel,
    arch: Arch = None,
    grid: Grid = None,
    formula: Bytes = None,
    case: CaseName = None,
    shape: Shape = None,
    dtype: Annotated[str, typer.Option(help="Of the case's inputs.", metavar="NAME")] = "bfloat16",
    trips: Trips = None,
    const: Const = None,
    signature: Signature = None,
    call: Call = "example",
    no_cache: NoCache = False,
    as_json: AsJson = False,
) -> None:
    """Set what a kernel's binary can move beside what it must.

    Compiles the kernel without a GPU, adds up its loads and stores over the grid, and flags what is
    read twice or loaded 2 bytes at a time. Loops are numbered in the order of the code; one without
    --trips is given per iteration.
    """
    from rooftile.api.traffic import traffic as reckon
    from rooftile.cli.progress import stages
    from rooftile.report.columns import write_lines
    from rooftile.report.output import STDOUT, deliver, record_json
    from rooftile.report.traffic import traffic_lines

    if case is not None and shape is None:
        raise InputError(f"--shape must be given for --case {case}: one of its shapes, MxN")
    with stages() as progress:
        found = reckon(
            kernel,
            arch or ["sm_90"],
            grid=_extents("--grid", grid) or None,
            formula_bytes=formula,
            case=case,
            shape=_extents("--shape", shape),
            dtype=dtype,
            trips=_trips(trips or []),
            constants=settings([], const or [])[1],
            signature=signature,
            call=call,
            cache=not no_cache,
            progress=progress,
        )
    if as_json:
        deliver(b"".join(record_json(record) for record in found), STDOUT)
        return
    for i, record in enumerate(found):
        if i:
            sys.stdout.write("\n")
        write_lines(traffic_lines(record), sys.stdout)


def _extents(name: str, text: str | None) -> tuple[int, ...]:
    """The numbers of ``64x32``."""
    if text is None:
        return ()
    parts = text.lower().split("x")
    if not all(part.strip().isdigit() and int(part) for part in parts):
        raise InputError(f"{name} must be whole numbers above 0 parted by x, got {text!r}")
    return tuple(int(part) for part in parts)


def _trips(texts: list[str]) -> dict[int, int]:
    """Loop number to how often it runs."""
    found = {}
    for text in texts:
        loop, equals, count = text.partition("=")
        if not equals or not loop.strip().isdigit() or not count.strip().isdigit():
            raise InputError(f"--trips must be LOOP=N, both whole numbers, got {text!r}")
        found[int(loop)] = int(count)
    return found
