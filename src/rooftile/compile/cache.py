"""Compiled kernels' resources on disk, by a hash of source and options."""

from __future__ import annotations

import os
from pathlib import Path

from rooftile.errors import FileFormatError, InputError
from rooftile.records.files import write_whole
from rooftile.records.io import from_json, to_json
from rooftile.records.resources import KernelResources

READER = 3  # raised when the same binary reads differently: what is cached is then void


def cache_folder() -> Path:
    """``rooftile/kernels`` under the user's cache folder: XDG_CACHE_HOME, else ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "rooftile" / "kernels"


def cached(folder: Path, key: str) -> KernelResources | None:
    """What is kept under a key; None for nothing, or a file of another edition or cut short."""
    try:
        return from_json(_path(folder, key).read_bytes(), KernelResources)
    except (FileNotFoundError, FileFormatError):
        return None


def keep(folder: Path, key: str, resources: KernelResources) -> bool:
    """Keep a kernel's resources.

    Returns:
        Whether it could be written: a full or read-only disk costs the next time, not this one.
    """
    path = _path(folder, key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, to_json(resources))
    except (OSError, InputError):
        return False
    return True


def _path(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key}.json"
