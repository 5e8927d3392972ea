"""Write docs/cli.md from the command line's own help: ``python docs/make_cli.py``.

A test compares the page with what this gives, so it cannot go stale.
"""

from __future__ import annotations

from pathlib import Path

import typer
import typer.main

from rooftile.cli.app import app

PAGE = Path(__file__).with_name("cli.md")
WIDTH = 88  # characters of a help line, whatever terminal this runs in
HEAD = """# Command line

Made from `--help` by `make docs`. Data goes to stdout, words and progress to stderr. Exit codes: 0;
1 a gate does not hold, or a fault of Rooftile; 2 bad input; 130 Ctrl-C.
"""


def page() -> str:
    """The whole page."""
    group = typer.main.get_command(app)
    width = {"terminal_width": WIDTH, "max_content_width": WIDTH}
    top = typer.Context(group, info_name="rooftile", **width, **group.context_settings)
    within = [
        typer.Context(command, info_name=name, parent=top, **width)
        for name, command in group.commands.items()
    ]
    return "\n".join([HEAD, *(_section(context) for context in (top, *within))])


def _section(context: typer.Context) -> str:
    """One command's help under its name."""
    return f"## {context.command_path}\n\n```text\n{context.get_help()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page())
