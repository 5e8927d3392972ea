"""What is being done, on stderr, while it takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """A bar that says the present stage, on a terminal; nothing anywhere else.

    Yields:
        Tells the bar the next stage.
    """
    if not sys.stderr.isatty():
        yield _say_nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=20), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda stage: progress.update(task, description=stage)


def _say_nothing(stage: str) -> None:
    """No terminal, no bar."""
