"""What to do about a target that is not there; asked before torch is loaded, so it needs none."""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches
from pathlib import Path

from rooftile.errors import InputError

FORMS = (
    "file.py:callable, package.module:callable, a .pt2 exported program, or a transformers "
    "config.json"
)
# owner/name as the Hugging Face hub has them
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SHOWN = 5


def refuse_missing(target: str) -> None:
    """Refuse a target that names no file or names it badly, with what to do.

    Args:
        target: As the user names it. One that may be a module is left to its import.

    Raises:
        InputError: The target cannot be found.
    """
    source, colon, name = target.rpartition(":")
    if colon and source and name:
        if source.endswith(".py"):
            _refuse_missing_file(source, name)
        elif Path(f"{source}.py").is_file() and not source.isidentifier():
            raise InputError(
                f"target {target!r}: no module {source!r}; write {source}.py:{name} for the file"
            )
        return
    path = Path(target)
    if target.endswith((".json", ".pt2")) or path.is_dir():
        return
    if path.is_file():
        raise InputError(f"target {target!r} must be {FORMS}{_callables(path)}")
    if target.endswith(".py"):
        _refuse_missing_file(target, "callable")
    if _HUB_ID.fullmatch(target):
        folder = target.partition("/")[2]
        raise InputError(
            f"target {target!r}: no such file or folder, and nothing is downloaded. If it is a "
            f"model of the Hugging Face hub, its config.json is enough: hf download {target} "
            f"config.json --local-dir {folder}, then rooftile audit {folder}"
        )
    raise InputError(f"target {target!r} must be {FORMS}")


def _refuse_missing_file(source: str, name: str) -> None:
    """Say where a file was looked for, and which is there under a near name."""
    path = Path(source)
    if path.is_file():
        return
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"target file {source!r} does not exist: no folder {str(folder)!r}")
    there = sorted(p.name for p in folder.glob("*.py"))
    near = get_close_matches(path.name, there, n=_SHOWN)
    found = ", ".join(f"{folder / file}:{name}" for file in near)
    where = f"target file {source!r} does not exist in {folder.resolve()}"
    raise InputError(where + (f"; near names: {found}" if found else ""))


def _callables(path: Path) -> str:
    """The functions of a Python file, as targets; empty for a file that is no Python."""
    if path.suffix != ".py":
        return ""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ""
    names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    public = [name for name in names if not name.startswith("_")]
    shown = ", ".join(f"{path}:{name}" for name in public[:_SHOWN])
    more = f" and {len(public) - _SHOWN} more" if len(public) > _SHOWN else ""
    return f"; it has {shown}{more}" if shown else "; it has no function to call"
