"""A user's own kernel, ``file.py:name``, as it is exported."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rooftile.compile.build import plan_build
from rooftile.compile.kernel import Argument, Call, load_kernel, load_module
from rooftile.compile.launch import record_call
from rooftile.compile.signature import called_by_signature, is_typed
from rooftile.compile.targets import Target
from rooftile.errors import InputError
from rooftile.export.derive import Derived, Visible
from rooftile.export.formula import evaluate
from rooftile.records.manifest import Form, Size
from rooftile.records.resources import Constant


def derive_own(
    place: str,
    target: Target,
    *,
    signature: str | None,
    call: str,
    constants: Mapping[str, Constant],
    grid: str | None,
    options: Mapping[str, Constant],
) -> Derived:
    """A kernel with the arguments of its signature, or of a function beside it that launches it.

    Args:
        place: ``"file.py:name"``.
        target: What is compiled for.
        signature: Types of the run-time arguments; None: they are taken from ``call``.
        call: A function beside the kernel, without arguments, that launches it.
        constants: Constants and compiler options by name.
        grid: Formulas over the whole-number arguments and constants, parted by commas; None: who
            launches it says.
        options: More compiler options.

    Raises:
        InputError: There is no such kernel, a type is missing, or an argument cannot be passed from
            outside Python.
    """
    kernel = load_kernel(place)
    recorded = _call(kernel, place, signature, call, target)
    build = plan_build(kernel, target, recorded, {**constants, **options})
    parameters = tuple(
        _visible(param.name, build.arguments[param.name])
        for param in kernel.params
        if param.name in build.arguments
    )
    sizes = tuple(
        Size(p.name, 0, None, 16 if p.argument.divisible else 1)
        for p in parameters
        if p.role == "size"
    )
    form: Form = "aligned" if any(p.argument.divisible for p in parameters) else "any"
    name = kernel.__name__
    return Derived(
        op=name,
        dtype="",
        form=form,
        symbol=f"{name}_{target.name.replace('_', '')}",
        build=build,
        parameters=parameters,
        sizes=sizes,
        tensors=(),
        grid=_grid(grid, build.constants, [size.name for size in sizes]),
    )


def _call(kernel: Any, place: str, signature: str | None, call: str, target: Target) -> Call:
    """The arguments by their signature, else by a call in the user's file."""
    if signature is not None:
        return called_by_signature(kernel, signature)
    file = place.rpartition(":")[0]
    module = sys.modules.get(Path(file).stem) if file.endswith(".py") else load_module(file)
    function = getattr(module, call, None)
    if function is None and is_typed(kernel):
        return called_by_signature(kernel, "")
    if function is None:
        raise InputError(
            f"signature of {kernel.__name__} is not known: give --signature, or write a function"
            f" {call}() beside it that launches it"
        )
    return record_call(function, kernel, target)


def _visible(name: str, argument: Argument) -> Visible:
    """An argument by its type alone."""
    if argument.type.startswith("tensordesc"):
        raise InputError(
            f"argument {name} is a TMA descriptor made by the host, and a bundle passes addresses"
            " and numbers alone; descriptors that the kernel itself makes can be exported"
        )
    if argument.type == "tuple":
        raise InputError(f"argument {name} is a tuple, and a bundle passes addresses and numbers")
    if argument.type.startswith("*"):
        return Visible(name, argument, "tensor", tensor=name)
    if argument.type.startswith(("fp", "bf")):
        return Visible(name, argument, "scalar")
    return Visible(name, argument, "size", formula=name)


def _grid(text: str | None, constants: Mapping[str, Constant], sizes: list[str]) -> tuple[str, ...]:
    """Three formulas; constants of the kernel are put in by value."""
    if text is None:
        return ()
    whole = {n: v for n, v in constants.items() if isinstance(v, int) and not isinstance(v, bool)}

    def value(name: re.Match[str]) -> str:
        return str(whole[name[0]]) if name[0] in whole else name[0]

    formulas = [re.sub(r"[A-Za-z_]\w*", value, part).strip() for part in text.split(",")]
    if not 1 <= len(formulas) <= 3:
        raise InputError(f"grid must be one to three formulas parted by commas, got {text!r}")
    for formula in formulas:
        evaluate(formula, dict.fromkeys(sizes, 1))
    return (*formulas, *["1"] * (3 - len(formulas)))
