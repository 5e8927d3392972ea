"""Finds a user's kernel and says what its arguments are."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from rooftile.errors import InputError, TargetError
from rooftile.records.resources import Constant

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
DIVISIBLE = 16  # the alignment that Triton specialises on


@dataclass(frozen=True, slots=True)
class Argument:
    """A run-time argument.

    Attributes:
        type: Triton's word: ``"*bf16"``, ``"i32"``; ``"constexpr"`` within a tuple, ``"tuple"``.
        divisible: Its value, or address, is a multiple of 16.
        parts: Of a tuple.
        value: Of a constant within a tuple.
    """

    type: str
    divisible: bool = False
    parts: tuple[Argument, ...] = ()
    value: Any = None

    def __str__(self) -> str:
        if self.type == "tuple":
            return f"({', '.join(map(str, self.parts))})"
        if self.type == "constexpr":
            return str(self.value)
        return f"{self.type}:{DIVISIBLE}" if self.divisible else self.type


@dataclass(frozen=True, slots=True)
class Call:
    """How a kernel is called: arguments in order, constants and options by name.

    Attributes:
        arguments: Run-time arguments.
        constants: Compile-time arguments.
        options: Of the compiler.
        grid: As the launch has it: extents, or a function of the values; None: not known.
        values: What every argument was given.
    """

    arguments: Mapping[str, Argument]
    constants: Mapping[str, Constant]
    options: Mapping[str, Constant]
    grid: Any = None
    values: Mapping[str, Any] = field(default_factory=dict)


def load_kernel(target: str) -> Any:
    """The JIT function that a target names, bare of autotuners and heuristics.

    Args:
        target: ``"file.py:kernel"`` or ``"package.module:kernel"``.

    Raises:
        TargetError: There is no such file, module or kernel, or importing it fails.
    """
    from triton.runtime.jit import JITFunction

    place, _, name = target.rpartition(":")
    if not place or not name:
        raise TargetError(f"kernel must be file.py:name or package.module:name, got {target!r}")
    found: Any = load_module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            kernels = [key for key, value in vars(found).items() if _bare(value, JITFunction)]
            raise TargetError(
                f"{place} has no kernel {name!r}; it has {', '.join(kernels) or 'none'}"
            )
        found = getattr(found, part)
    kernel = _bare(found, JITFunction)
    if kernel is None:
        raise TargetError(
            f"{target} must be a function under @triton.jit or @gluon.jit, got a"
            f" {type(found).__name__}"
        )
    return kernel


def load_module(place: str) -> ModuleType:
    """The module at a path or under a dotted name.

    Raises:
        TargetError: It is not there, or running it fails; the user's error is the cause.
    """
    try:
        return _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(f"cannot import {place}: {_words(error)}") from error


def _load_file(path: Path) -> ModuleType:
    """The module in a file, once; one in a package is imported as a part of it."""
    if not path.is_file():
        raise TargetError(f"kernel's file {path} does not exist")
    path = path.resolve()
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").is_file():
        folder, name = folder.parent, f"{folder.name}.{name}"
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    sys.path[:0] = dict.fromkeys((str(path.parent), str(folder)))
    if "." in name:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def constant_of(kernel: Any, value: Any) -> Any:
    """A constant as a kernel takes it, out of what JSON and the command line can hold.

    ``"tl.float16"`` is what the kernel's file knows under that name, ``"(2, 3)"`` a tuple,
    ``"acts.py:relu"`` a kernel that is passed as one; other text stays text.

    Args:
        kernel: The JIT function.
        value: A number, text, None or a list.

    Raises:
        InputError: There is no such name or kernel.
    """
    if isinstance(value, list | tuple):
        return tuple(constant_of(kernel, part) for part in value)
    if not isinstance(value, str):
        return value
    if value.startswith("(") and value.endswith(")"):
        return tuple(
            constant_of(kernel, parse_constant(part)) for part in split_entries(value[1:-1])
        )
    if ".py:" in value:
        return load_kernel(value)
    return _named(kernel, value) if _DOTTED.fullmatch(value) else value


def _named(kernel: Any, dotted: str) -> Any:
    """What a kernel's file knows under a dotted name; text whose first part it does not know."""
    first, *rest = dotted.split(".")
    if dotted.startswith("triton.language."):
        found: Any = importlib.import_module("triton.language")
        rest = rest[1:]
    elif first in kernel.fn.__globals__:
        found = kernel.fn.__globals__[first]
    else:
        return dotted
    for part in rest:
        if not hasattr(found, part):
            raise InputError(f"constant {dotted!r} of {kernel.__name__}: there is no {part}")
        found = getattr(found, part)
    return found


def parse_constant(text: str) -> Constant:
    """A constant out of text: a number, True, False, None, or the text itself."""
    words: dict[str, Constant] = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def split_entries(text: str) -> list[str]:
    """Entries at the commas outside of brackets."""
    entries, depth = [""], 0
    for letter in text:
        depth += (letter in "[(<") - (letter in "])>")
        if letter == "," and depth == 0:
            entries.append("")
        else:
            entries[-1] += letter
    return [entry.strip() for entry in entries if entry.strip()]


def _bare(found: Any, kind: type) -> Any:
    """The JIT function under autotuners and heuristics, None where there is none."""
    while found is not None and not isinstance(found, kind):
        inner = getattr(found, "fn", None)
        found = None if inner is found or callable(getattr(found, "__code__", None)) else inner
    return found


def _words(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
