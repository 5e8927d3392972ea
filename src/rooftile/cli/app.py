"""All commands in one application. A command loads what it needs when it runs, not before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
import typer.main

from rooftile.cli.audit import audit
from rooftile.cli.bench import bench
from rooftile.cli.claim import claim
from rooftile.cli.export import export
from rooftile.cli.fusion import fusion
from rooftile.cli.gate import diff, gate
from rooftile.cli.gpus import gpus
from rooftile.cli.occupancy import occupancy
from rooftile.cli.report import report
from rooftile.cli.roofline import roofline
from rooftile.cli.schema import schema
from rooftile.cli.tile import tile
from rooftile.cli.timeline import timeline
from rooftile.cli.traffic import traffic

# Rich's help and tracebacks cost 0.1 s of import on every call; --help has 0.3 s in all.
app = typer.Typer(
    name="rooftile",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS = (
    audit,
    report,
    diff,
    gate,
    roofline,
    fusion,
    claim,
    occupancy,
    tile,
    traffic,
    bench,
    timeline,
    export,
    gpus,
    schema,
)
for _function in _COMMANDS:
    app.command()(_function)


def _print_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        from rooftile import __version__

        typer.echo(f"rooftile {__version__}")
        raise typer.Exit


@app.callback()
def rooftile(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Find the memory wall in a PyTorch model, without a GPU, and what to do about it."""


def invoke(args: Sequence[str]) -> None:
    """Run one command; ends in SystemExit. Calling ``app`` itself would set an exception hook."""
    typer.main.get_command(app).main(args=list(args), prog_name="rooftile")
