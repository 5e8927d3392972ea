"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from rooftile.errors import InputError


def write_whole(path: str | Path, data: bytes) -> None:
    """Write bytes to a file, whole or not at all: another file beside it takes its place.

    Raises:
        InputError: The folder does not exist or cannot be written to.
    """
    target = Path(path)
    check_destination(target)
    if str(target).startswith(("/dev/", "/proc/")) or (target.exists() and not target.is_file()):
        _pour(target, data)
        return
    target = target.resolve()  # a link stays, the file it names is written
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name}.", suffix=".part", delete=False
        ) as file:
            temporary = file.name
            file.write(data)
        os.chmod(temporary, _mode_of(target))
        os.replace(temporary, target)
    except BaseException as error:  # Ctrl-C too must leave nothing behind
        if temporary:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise InputError(f"cannot write {target}: {error.strerror}") from error
        raise


def _pour(target: Path, data: bytes) -> None:
    """Write into a device or a pipe, which nothing can take the place of."""
    try:
        with open(target, "wb") as file:
            file.write(data)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}") from error


def check_destination(path: str | Path) -> None:
    """Refuse a file that cannot be written, before any work is done for it.

    Raises:
        InputError: The folder does not exist, or the path is a folder itself.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"cannot write {target}: the folder {target.parent} does not exist")
    if target.is_dir():
        raise InputError(f"cannot write {target}: it is a folder, a file is wanted")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"cannot write {target}: no permission in the folder {target.parent}")


def _mode_of(target: Path) -> int:
    """The permissions of the file to be replaced, else those a new file gets."""
    if target.exists():
        return target.stat().st_mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
