"""Finds a user's kernel and says what its arguments are."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rooftile.errors import InputError, TargetError
from rooftile.records.resources import Constant

DIVISIBLE = 16  # the alignment that Triton specialises on


@dataclass(frozen=True, slots=True)
class Argument:
    """A run-time argument.

    Attributes:
        type: Triton's word: ``"*bf16"``, ``"i32"``.
        divisible: Its value, or address, is a multiple of 16.
    """

    type: str
    divisible: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{DIVISIBLE}" if self.divisible else self.type


@dataclass(frozen=True, slots=True)
class Call:
    """How a kernel is called: arguments in order, constants and options by name."""

    arguments: Mapping[str, Argument]
    constants: Mapping[str, Constant]
    options: Mapping[str, Constant]


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


def parse_signature(kernel: Any, text: str) -> dict[str, Argument | Constant]:
    """What a signature says of the arguments.

    Args:
        kernel: The JIT function.
        text: Types in order or by name, parted by commas: ``"*bf16:16, *bf16:16, i32"``,
            ``"x_ptr=*bf16:16, n_cols=i32:16"``. A plain number fixes an argument's value.

    Returns:
        By name; a plain value is a constant.

    Raises:
        InputError: There is no such argument, or one has no type.
    """
    names = [param.name for param in kernel.params if not param.is_constexpr]
    entries = _split(text)
    positional = [entry for entry in entries if "=" not in entry]
    if len(positional) > len(names):
        raise InputError(
            f"signature has {len(positional)} types, {kernel.__name__} takes {len(names)}:"
            f" {', '.join(names)}"
        )
    given = dict(zip(names, positional, strict=False))
    for entry in entries:
        if "=" in entry:
            name, _, kind = entry.partition("=")
            if name.strip() not in names:
                raise InputError(
                    f"signature names {name.strip()!r}, {kernel.__name__} takes {', '.join(names)}"
                )
            given[name.strip()] = kind.strip()
    missing = [name for name in names if name not in given]
    if missing:
        raise InputError(f"signature of {kernel.__name__} lacks a type for {', '.join(missing)}")
    return {name: _argument(name, given[name]) for name in names}


def _argument(name: str, text: str) -> Argument | Constant:
    """One entry of a signature."""
    kind, _, alignment = text.rpartition(":") if text.count(":") == 1 else (text, "", "")
    if alignment and alignment != str(DIVISIBLE):
        raise InputError(f"signature: {name} may be marked :16, got {text!r}")
    if not alignment:
        kind = text
    if kind in ("None", "True", "False") or kind.lstrip("-").isdigit():
        return parse_constant(kind)
    bare = kind.removeprefix("*").removeprefix("k")
    if kind.startswith("tensordesc") or bare in _types():
        return Argument(kind, bool(alignment))
    raise InputError(
        f"signature: type of {name} must be *T or T with T one of {', '.join(_types())}, got"
        f" {text!r}"
    )


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


def _types() -> Sequence[str]:
    return (
        "i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64",
        "fp8e4nv", "fp8e4b8", "fp8e4b15", "fp8e5", "fp8e5b16", "fp16", "bf16", "fp32", "fp64",
    )  # fmt: skip


def _split(text: str) -> list[str]:
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
