"""What a user's file reads while it is imported: files, folders searched, variables."""

from __future__ import annotations

import itertools
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from rooftile.compile.recall import Depends, file_digest, folder_digest, variable_digest

_INSTALLED = ("site-packages", "dist-packages")
# These read many variables, as others do that look through all for a prefix; those that count have
# names of their own in the question
_WIDE_READERS = ("torch", "triton", "numpy")
_SYSTEM = ("/proc/", "/dev/", "/sys/")


class Watch:
    """Sees what is read between ``watching`` and its end.

    Python tells an audit hook of every file that is opened; variables are seen by a subclass of
    what ``os.environ`` is.
    """

    def __init__(self) -> None:
        self._begun_ns = time.time_ns()
        self._on = False
        self._opened: set[str] = set()
        self._variables: set[str] = set()
        self._stdlib = os.path.realpath(sysconfig.get_paths()["stdlib"])

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what the block reads."""
        sys.addaudithook(self._audit)
        before = type(os.environ)
        os.environ.__class__ = _noting(before, self._variable)
        self._on = True
        try:
            yield
        finally:
            self._on = False
            os.environ.__class__ = before

    def depends(self, kernel: Any) -> Depends | None:
        """All that was read; None where a file changed since: what was read is then not known.

        Args:
            kernel: The JIT function, whose own files count wherever they are.
        """
        modules = [str(getattr(m, "__file__", None) or "") for m in list(sys.modules.values())]
        paths = {path for path in (*modules, *self._opened) if path and self._counts(path)}
        paths |= _own_files(kernel) | _triton_files()
        files = {path: file_digest(path) for path in sorted(paths)}
        if any(self._changed(path) for path in files):
            return None
        folders = {os.path.abspath(path or os.getcwd()) for path in sys.path}
        return Depends(
            files=files,
            folders={path: folder_digest(path) for path in sorted(folders) if self._searched(path)},
            environment={name: variable_digest(name) for name in sorted(self._variables)},
        )

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on or event != "open":
            return
        path, mode, flags = arguments
        writes = any(letter in mode for letter in "wax+") if mode else flags & os.O_ACCMODE
        if isinstance(path, str | bytes) and not writes:
            self._opened.add(os.path.abspath(os.fsdecode(path)))

    def _variable(self, name: str) -> None:
        """A variable was read: by whom decides whether it counts."""
        frame = sys._getframe(2)
        all_of_them = frame.f_code.co_name == "__iter__"
        library = (self._stdlib, "<frozen ")
        while frame.f_back is not None and frame.f_code.co_filename.startswith(library):
            frame = frame.f_back
        parts = frame.f_code.co_filename.split(os.sep)
        wide = any(
            first in _INSTALLED and (all_of_them or second in _WIDE_READERS)
            for first, second in itertools.pairwise(parts)
        )
        if not wide and name != "PYTHONPATH":  # the search path is part of the question
            self._variables.add(name)

    def _counts(self, path: str) -> bool:
        """Neither the standard library nor an installed package: those change by version."""
        installed = any(part in _INSTALLED for part in path.split(os.sep))
        compiled = path.endswith((".pyc", ".zip"))
        nowhere = not os.path.isabs(path) or path.startswith(_SYSTEM)
        return not (installed or compiled or nowhere or self._standard(path))

    def _searched(self, path: str) -> bool:
        installed = any(part in _INSTALLED for part in path.split(os.sep))
        return installed or not self._standard(path)

    def _standard(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self._stdlib)

    def _changed(self, path: str) -> bool:
        try:
            return os.stat(path).st_mtime_ns > self._begun_ns
        except OSError:
            return False


def _noting(kind: type, note: Callable[[str], None]) -> type:
    """What ``os.environ`` is, but each look-up is told."""

    look_up: Callable[[Any, str], str] = vars(kind)["__getitem__"]

    def getitem(self: Any, name: str) -> str:
        note(name)
        return look_up(self, name)

    return type("_Noted", (kind,), {"__getitem__": getitem})


def _own_files(kernel: Any) -> set[str]:
    """Files of a kernel, of the kernels it may call and of the modules it refers to."""
    queue, seen, files = [kernel], set(), set()
    while queue:
        function = queue.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        files.add(os.path.abspath(function.fn.__code__.co_filename))
        for value in function.fn.__globals__.values():
            if isinstance(value, ModuleType):
                files.add(str(getattr(value, "__file__", None) or ""))
            elif hasattr(value, "src") and hasattr(getattr(value, "fn", None), "__code__"):
                queue.append(value)
    return files - {""}


def _triton_files() -> set[str]:
    """The compiler: its version stands in the one file, its work is done by the other."""
    import triton
    import triton._C.libtriton

    return {str(triton.__file__), str(triton._C.libtriton.__file__)}
