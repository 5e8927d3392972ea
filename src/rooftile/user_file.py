"""A user's Python file and its neighbours, importable while they are used and no longer."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def importable(files: Iterable[str | Path]) -> Iterator[None]:
    """Let the neighbours of files be imported while it lasts, as when Python runs such a file.

    Afterwards the process finds what it found before: another file may have neighbours of the same
    names.

    Args:
        files: Python files; they need not exist.
    """
    folders = [str(Path(file).resolve().parent) for file in files]
    path, modules = list(sys.path), set(sys.modules)
    sys.path[:0] = dict.fromkeys(folders)
    try:
        yield
    finally:
        sys.path[:] = path
        new = sys.modules.keys() - modules
        theirs = {name for name in new if _stands_in(sys.modules[name], folders)}
        for name in new:
            if name.partition(".")[0] in theirs:
                del sys.modules[name]


def _stands_in(module: Any, folders: list[str]) -> bool:
    """Whether a module or package was found in one of these very folders."""
    file = getattr(module, "__file__", None)
    if file is None:
        return False
    path = Path(file).resolve()
    places = (path.parent, path.parent.parent if path.stem == "__init__" else path.parent)
    return any(str(place) in folders for place in places)


def free_name(path: Path) -> str:
    """What to call the module in a file: ``json.py`` must not stand in for the one of that name."""
    return path.stem if _is_free(path) else f"target_{path.stem}"


def _is_free(path: Path) -> bool:
    """Whether no other module has the file's name; one that has is loaded, so that it is found."""
    name, folder = path.stem, str(path.parent)
    if name in sys.modules:
        return False
    with_us = list(sys.path)
    sys.path[:] = [place for place in with_us if Path(place or ".").resolve() != Path(folder)]
    try:
        importlib.invalidate_caches()
        if importlib.util.find_spec(name) is None:
            return True
        importlib.import_module(name)
    except ImportError:
        return True
    finally:
        sys.path[:] = with_us
    return False


def files_in(targets: Iterable[Any]) -> list[str]:
    """The files of targets such as ``"file.py:name"``; other targets have none."""
    named = (target.rpartition(":")[0] for target in targets if isinstance(target, str))
    return [file for file in named if file.endswith(".py")]
