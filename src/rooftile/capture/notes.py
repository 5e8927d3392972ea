"""What a capture takes for granted while it runs, said to the user afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_notes: ContextVar[dict[str, None] | None] = ContextVar("notes", default=None)


def note(text: str) -> None:
    """Say once what is assumed, in words for the user; outside of a capture nobody listens."""
    known = _notes.get()
    if known is not None:
        known[text] = None


@contextmanager
def noting() -> Iterator[dict[str, None]]:
    """Collect what is noted while it lasts, in order."""
    known: dict[str, None] = {}
    token = _notes.set(known)
    try:
        yield known
    finally:
        _notes.reset(token)
