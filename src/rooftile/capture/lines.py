"""Which line of the user's code an op belongs to, read off the Python stack."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

import torch

_SKIP, _USER, _LIBRARY, _CALLER = range(4)

_ROOFTILE = str(Path(__file__).parents[1]) + os.sep
_TORCH = str(Path(torch.__file__).parent) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
# A library of models calls its own helpers (activations, attention wrappers): the line that tells
# the reader something is the one in the model's own file.
_MODEL_LIBRARY = f"{os.sep}transformers{os.sep}"
_MODEL_FILES = f"{os.sep}transformers{os.sep}models{os.sep}"
# Frame of torch that runs the autograd engine: above it stand the callers of backward().
_ENGINE = "_engine_run_backward"
# Our own file that calls the model: above it stands whoever asked for the capture.
_STEP = str(Path(__file__).with_name("step.py"))


class LineFinder:
    """Finds the user's frame of an op, remembering each file's kind and short name."""

    def __init__(self) -> None:
        self._root = os.getcwd()
        self._known: dict[str, tuple[int, str]] = {}

    def find(self, depth: int = 2) -> str:
        """The nearest line of the user's own code above the caller, as ``path:line``.

        A frame of a model library outside its models counts only where no better one is found.

        Args:
            depth: Frames to leave out, this one included.

        Returns:
            ``""`` when no such frame stands below a call of the autograd engine: then the op
            belongs to a node of the graph, not to a line.
        """
        frame: FrameType | None = sys._getframe(depth)
        second_best = ""
        while frame is not None:
            code = frame.f_code
            kind, name = self._known.get(code.co_filename) or self._look(code.co_filename)
            if kind == _USER:
                return f"{name}:{frame.f_lineno}"
            if kind == _LIBRARY:
                second_best = second_best or f"{name}:{frame.f_lineno}"
            elif kind == _CALLER or code.co_name == _ENGINE:
                break
            frame = frame.f_back
        return second_best

    def nearest(self, frames: Iterable[tuple[str, int]]) -> str:
        """The same for frames as files and line numbers, the innermost first."""
        second_best = ""
        for filename, number in frames:
            kind, name = self._known.get(filename) or self._look(filename)
            if kind == _USER:
                return f"{name}:{number}"
            if kind == _LIBRARY:
                second_best = second_best or f"{name}:{number}"
        return second_best

    def _look(self, filename: str) -> tuple[int, str]:
        known = self._known[filename] = _kind(filename), shorten(filename, self._root)
        return known


def _kind(filename: str) -> int:
    if filename == _STEP:
        return _CALLER
    if filename.startswith(("<", _ROOFTILE, _TORCH)):
        return _SKIP
    if _MODEL_FILES in filename:
        return _USER
    if _MODEL_LIBRARY in filename:
        return _LIBRARY
    in_stdlib = filename.startswith(_STDLIB) and "site-packages" not in filename
    return _SKIP if in_stdlib else _USER


def shorten(path: str, root: str) -> str:
    """The path from its installed package on, else relative to ``root`` where it lies below it."""
    for marker in (f"site-packages{os.sep}", f"dist-packages{os.sep}"):
        _, found, rest = path.partition(marker)
        if found:
            return rest
    return path[len(root) + 1 :] if path.startswith(root + os.sep) else path
