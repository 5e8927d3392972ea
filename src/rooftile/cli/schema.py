"""``rooftile schema``"""

from __future__ import annotations

import json
from typing import Annotated

import typer


def schema(
    record: Annotated[
        str, typer.Argument(help="estimate, graph, device or roofline.", metavar="RECORD")
    ] = "estimate",
) -> None:
    """Print the JSON Schema of a written file."""
    from rooftile.api.schema import schema as schema_of

    typer.echo(json.dumps(schema_of(record), indent=2))
