"""``rooftile bench``"""

from __future__ import annotations

import sys
from typing import Annotated, Any, cast

import typer


def bench(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Ops of rooftile.ops, or file.py:CASE for a kernel of one's own; all ops where "
            "none is named.",
            metavar="[OP|FILE.py:CASE]...",
        ),
    ] = None,
    shapes: Annotated[
        str | None,
        typer.Option(help="Shapes instead of the case's own.", metavar="65536x4096,8192x8192"),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="bfloat16, float16 or float32; bfloat16 where not given, float32 with "
            "--interpret, which cuts bfloat16 off instead of rounding it.",
            metavar="NAME",
        ),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(
            help="Which passes; all a case has where not given.",
            metavar="forward,backward,forward_backward",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Peers in the same rounds; '' for none, all that have the op where not given.",
            metavar="NAME,...",
        ),
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(
            help="What every own row must satisfy, else exit code 1.",
            metavar="'ratio_to_copy >= 0.95'",
        ),
    ] = None,
    interpret: Annotated[
        bool,
        typer.Option("--interpret", help="Without a GPU: check results at small shapes, no times."),
    ] = False,
    warm: Annotated[
        bool, typer.Option("--warm", help="Leave the L2 as the call before left it.")
    ] = False,
    cold: Annotated[
        bool,
        typer.Option("--cold", help="Fill the L2 by writes alone, which the call must write back."),
    ] = False,
    clean: Annotated[
        bool,
        typer.Option("--clean", help="Fill the L2 by reads, which leave nothing to write back."),
    ] = False,
    rounds: Annotated[int, typer.Option(help="Timed rounds.", metavar="N", min=1)] = 50,
    json_to: Annotated[
        str | None, typer.Option("--json", help="Write one JSON record a line.", metavar="FILE|-")
    ] = None,
    html_to: Annotated[
        str | None, typer.Option("--html", help="Write charts as one page.", metavar="FILE|-")
    ] = None,
    results: Annotated[
        str | None,
        typer.Option(help="Add the rows to DIR/<gpu>/<date>.jsonl.", metavar="DIR"),
    ] = None,
) -> None:
    """Check kernels, then time them beside their peers.

    Results are held to float64 first: a wrong one is never timed. Every provider runs once a round,
    each round starts one further on, and before each call the L2 is filled with something else.
    Times are medians; the spread is the 20th and 80th percentile; '*' marks a median that had not
    settled. Speed is given in parts of a copy of the same bytes (or a large matmul) in the same
    rounds, and of the datasheet. Figures that others have published of the same op and shape are
    checked against physics below the table.
    """
    from rooftile.api.benchmark import benchmark, claims_beside, parse_names, parse_shapes
    from rooftile.cli.progress import stages
    from rooftile.report.output import check_destinations, hand_out_benchmark, source_of

    check_destinations(tuple(map(source_of, targets or ())), json=json_to, html=html_to)
    rows: list[Any] = []
    with stages() as progress:
        try:
            benchmark(
                *(targets or ()),
                shapes=parse_shapes(shapes),
                dtype=dtype,
                directions=None if direction is None else cast(Any, parse_names(direction)),
                against=None if against is None else parse_names(against),
                gate=gate,
                interpret=interpret,
                cache=cache_of(warm=warm, cold=cold, clean=clean),
                rounds=rounds,
                results=results,
                sink=rows.extend,
                progress=progress,
            )
        finally:  # what was measured is shown whatever came of it
            if rows:
                hand_out_benchmark(
                    rows, json_to=json_to, html_to=html_to, claims=claims_beside(rows),
                    out=sys.stdout,
                )  # fmt: skip


def cache_of(**switches: bool) -> Any:
    """The state of the L2 that a switch of its name asks for."""
    from rooftile.errors import InputError

    asked = [name for name, given in switches.items() if given]
    if len(asked) > 1:
        raise InputError(f"only one of {' and '.join(f'--{name}' for name in asked)} can be given")
    return asked[0] if asked else "balanced"
