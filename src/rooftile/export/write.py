"""A folder written whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rooftile.errors import InputError

MANIFEST = "manifest.json"


class Mark(NamedTuple):
    """A file by whose words a folder of ours is known."""

    file: str
    words: str


BUNDLE = Mark(MANIFEST, '"rooftile.manifest"')
CRATE = Mark("Cargo.toml", 'name = "rooftile-host"')


def check_folder(path: str | Path, force: bool, mark: Mark) -> Path:
    """Refuse a folder that cannot be written, before any work is done for it.

    Args:
        path: The folder to be.
        force: Replace one that is there.
        mark: What a folder that may be replaced holds.

    Returns:
        The path, links followed.

    Raises:
        InputError: Something else is there, or the parent does not exist or cannot be written to.
    """
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {Path(path).parent} does not exist")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"cannot write {path}: no permission in the folder {Path(path).parent}")
    if target.exists() and not target.is_dir():
        raise InputError(f"cannot write {path}: it is a file, a folder is wanted")
    if target.is_dir() and any(target.iterdir()):
        if not _has(target, mark):
            raise InputError(
                f"cannot write {path}: the folder is not empty and has no {mark.file} of ours"
            )
        if not force:
            raise InputError(f"{path} exists and is kept: give --force to replace it")
    return target


def _has(folder: Path, mark: Mark) -> bool:
    file = folder / mark.file
    return file.is_file() and mark.words in file.read_text(errors="replace")


def write_folder(target: Path, files: Mapping[str, bytes], force: bool = False) -> None:
    """Write files into a folder of their own, which no other process ever sees half.

    Args:
        target: As ``check_folder`` gave it.
        files: Path below it to content.
        force: Take the place of what is there, also of what has come since the check.

    Raises:
        InputError: It cannot be written: what was there is there still, and nothing else.
    """
    temporary = ""
    try:
        temporary = tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        for name, content in files.items():
            path = Path(temporary, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # some file systems say only here that the disk is full
        os.chmod(temporary, 0o777 & ~_umask())
        _put(Path(temporary), target, force)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise InputError(
                f"{target} has come into being and is kept: give --force to replace it"
            ) from error
        raise InputError(f"cannot write {target}: {error.strerror}") from error
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


def _put(new: Path, target: Path, force: bool) -> None:
    """Let a folder take the place of another, or of nothing or an empty one."""
    if force and target.exists() and _exchange(new, target):
        return  # what was there has the name of the new one now, and goes with it
    old = new.with_suffix(".old")
    if force and target.exists():
        os.rename(target, old)
    try:
        os.rename(new, target)
    except BaseException:
        if old.exists():
            os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step, so that a name is never without one; False: cannot be had."""
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux's
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return swap is not None and swap(here, bytes(one), here, bytes(other), exchange) == 0


def _umask() -> int:
    """The permissions that new files do not get."""
    umask = os.umask(0)
    os.umask(umask)
    return umask
