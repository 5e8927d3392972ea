"""``rooftile schema``"""

from __future__ import annotations

import json

import typer

from rooftile.cli import options


def schema(record: options.Record = "estimate") -> None:
    """Print the JSON Schema of a written file."""
    from rooftile.api.schema import schema as schema_of

    typer.echo(json.dumps(schema_of(record), indent=2))
