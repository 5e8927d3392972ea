"""Types of a kernel's run-time arguments, as the user or the kernel itself gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rooftile.compile.kernel import DIVISIBLE, Argument, Call, parse_constant, split_entries
from rooftile.errors import InputError
from rooftile.records.resources import Constant


def parse_signature(kernel: Any, text: str) -> dict[str, Argument | Constant]:
    """What a signature says of the arguments.

    An argument that it passes over has the type of its annotation (``n: tl.int32``), else that of
    its default.

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
    entries = split_entries(text)
    positional = [entry for entry in entries if "=" not in entry]
    if len(positional) > len(names):
        raise InputError(
            f"signature has {len(positional)} types, {kernel.__name__} takes {len(names)}:"
            f" {', '.join(names)}"
        )
    given = _said_by_kernel(kernel) | dict(zip(names, positional, strict=False))
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


def called_by_signature(kernel: Any, text: str) -> Call:
    """A call by the types of its arguments; text and errors as of ``parse_signature``."""
    given = parse_signature(kernel, text)
    return Call(
        {name: arg for name, arg in given.items() if isinstance(arg, Argument)},
        {name: arg for name, arg in given.items() if not isinstance(arg, Argument)},
        {},
    )


def is_typed(kernel: Any) -> bool:
    """Whether annotations and defaults give every run-time argument a type."""
    said = _said_by_kernel(kernel)
    return all(param.is_constexpr or param.name in said for param in kernel.params)


def _said_by_kernel(kernel: Any) -> dict[str, str]:
    """Types of the run-time arguments by their annotations and defaults."""
    said = {}
    for param in kernel.params:
        if param.is_constexpr:
            continue
        if param.annotation_type:
            said[param.name] = param.annotation_type
        elif param.has_default and (kind := _type_of(param.default)):
            said[param.name] = kind
    return said


def _type_of(default: Any) -> str:
    """The entry of a signature for a default, by Triton's rules; "" for what has none."""
    if isinstance(default, bool):
        return "u1"
    if default is None or (isinstance(default, int) and default == 1):
        return str(default)  # a constant
    if isinstance(default, int):
        kind = "i32" if -(2**31) <= default < 2**31 else "i64" if default < 2**63 else "u64"
        return f"{kind}:{DIVISIBLE}" if default % DIVISIBLE == 0 else kind
    return "fp32" if isinstance(default, float) else ""


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


def _types() -> Sequence[str]:
    return (
        "i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64",
        "fp8e4nv", "fp8e4b8", "fp8e4b15", "fp8e5", "fp8e5b16", "fp16", "bf16", "fp32", "fp64",
    )  # fmt: skip
