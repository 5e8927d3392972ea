"""The Rust host and the C example as they are written out for a user."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

_BUILT = ("target", "__pycache__")


def crate_files() -> dict[str, bytes]:
    """Path to content of every file of the crate, without what cargo builds beside it."""
    return dict(sorted(_below(resources.files("rooftile.export") / "rust", "")))


def _below(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    files: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name not in _BUILT:
                files += _below(entry, f"{prefix}{entry.name}/")
        else:
            files.append((f"{prefix}{entry.name}", entry.read_bytes()))
    return files
