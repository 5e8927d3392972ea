"""Where an op was written, said by whoever runs a graph that has no frames of its own."""

from __future__ import annotations

from contextvars import ContextVar

# module path and line; None where the Python stack tells
place: ContextVar[tuple[str, str] | None] = ContextVar("place", default=None)
