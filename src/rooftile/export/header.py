"""The C header of a bundle: what its manifest says, as tables and functions."""

from __future__ import annotations

import functools
import json
import re
from importlib import resources

from rooftile.export.formula import factors_of
from rooftile.records.manifest import ExportedKernel, Parameter

HEADER = "bundle.h"
_ROLES = {
    "tensor": "ROOFTILE_TENSOR",
    "size": "ROOFTILE_WHOLE",
    "stride": "ROOFTILE_WHOLE",
    "fixed": "ROOFTILE_WHOLE",
    "scalar": "ROOFTILE_SCALAR",
    "scratch": "ROOFTILE_SCRATCH",
    "profile_scratch": "ROOFTILE_PROFILE_SCRATCH",
}


def header(kernels: tuple[ExportedKernel, ...]) -> bytes:
    """The text of the header.

    Args:
        kernels: Of the bundle; those of AMD are left out, cuLaunchKernel knows none.
    """
    nvidia = [kernel for kernel in kernels if kernel.target.startswith("sm_")]
    fixed = (resources.files("rooftile.export") / "c" / "rooftile.h").read_text()
    parts = [fixed, *map(_kernel, nvidia)]
    listed = "".join(f"    &{kernel.symbol},\n" for kernel in nvidia)
    parts.append(
        f"static const rooftile_kernel *const rooftile_kernels[] = {{\n{listed}    0\n}};\n"
    )
    parts.append("#endif\n")
    return "\n".join(parts).encode()


def _kernel(kernel: ExportedKernel) -> str:
    """Tables and functions of one kernel."""
    symbol = kernel.symbol
    sizes = [size.name for size in kernel.sizes]
    tensors = _tensors(kernel)
    parameters = "".join(f"    {_parameter(p, tensors)},\n" for p in kernel.parameters)
    limits = "".join(
        f"    {{{_text(s.name)}, {s.least}, {s.most or 0}, {s.multiple_of}}},\n"
        for s in kernel.sizes
    )
    wholes = "".join(
        f"    values[{i}] = {_expression(p.formula, sizes)};\n"
        for i, p in enumerate(kernel.parameters)
        if p.formula
    )
    blocks = "".join(
        f"    blocks[{i}] = {_expression(formula, sizes)};\n"
        for i, formula in enumerate(kernel.grid)
    )
    names = ", ".join(map(_text, tensors)) or "0"
    grid = f"{symbol}_grid" if kernel.grid else "0"
    functions = _function(f"{symbol}_wholes", "values", wholes)
    if kernel.grid:
        functions += _function(f"{symbol}_grid", "blocks", blocks)
    return (
        f"static const rooftile_parameter {symbol}_parameters[] = {{\n{parameters}}};\n"
        f"static const rooftile_size {symbol}_sizes[] = {{\n{limits or '    {0, 0, 0, 1},'}}};\n"
        f"static const char *const {symbol}_tensors[] = {{{names}}};\n"
        f"{functions}"
        f"static const rooftile_kernel {symbol} = {{\n"
        f"    {_text(symbol)}, {_text(kernel.op)}, {_text(kernel.dtype)}, {_text(kernel.form)},"
        f" {_text(kernel.target)},\n"
        f"    {_path(kernel.binary)}, {_path(kernel.ptx)},\n"
        f"    {len(kernel.parameters)}, {len(sizes)}, {len(tensors)},\n"
        f"    {symbol}_parameters, {symbol}_sizes, {symbol}_tensors,\n"
        f"    {kernel.threads}, {kernel.cluster}, {kernel.dynamic_shared_bytes},\n"
        f"    {kernel.scratch.bytes_per_block}, {kernel.profile_scratch.bytes_per_block},\n"
        f"    {symbol}_wholes, {grid}\n"
        "};\n"
    )


def _function(name: str, result: str, body: str) -> str:
    return (
        f"static void {name}(const int64_t *s, int64_t *{result})\n{{\n    (void)s;"
        f" (void){result};\n{body}}}\n"
    )


def _tensors(kernel: ExportedKernel) -> list[str]:
    """Names in the order of the manifest; a user's own kernel names them by its parameters."""
    named = [tensor.name for tensor in kernel.tensors]
    return list(dict.fromkeys([*named, *(p.tensor for p in kernel.parameters if p.tensor)]))


def _parameter(parameter: Parameter, tensors: list[str]) -> str:
    place = tensors.index(parameter.tensor) if parameter.tensor else -1
    default = 0.0 if parameter.default is None else parameter.default
    return (
        f"{{{_text(parameter.name)}, {_text(parameter.type)}, {parameter.bytes},"
        f" {parameter.offset}, {parameter.divisible_by}, {_role(parameter)}, {place},"
        f" {default!r}}}"
    )


def _role(parameter: Parameter) -> str:
    """A fixed number without a formula is no whole one."""
    if parameter.role == "fixed" and not parameter.formula:
        return "ROOFTILE_NUMBER"
    return _ROLES[parameter.role]


def _expression(formula: str, sizes: list[str]) -> str:
    """A formula in C, over an array of the sizes; what passes 64 bits stays at their end."""
    factors = [_factor(factor, sizes) for factor in factors_of(formula)]
    return functools.reduce(lambda product, factor: f"rooftile_times({product}, {factor})", factors)


def _factor(factor: str, sizes: list[str]) -> str:
    ceil = re.fullmatch(r"ceil\s*\((.*)/\s*(\d+)\s*\)", factor)
    if ceil:
        return f"rooftile_ceil({_expression(ceil[1], sizes)}, {ceil[2]})"
    return f"s[{sizes.index(factor)}]" if factor in sizes else factor


def _text(text: str) -> str:
    return json.dumps(text)


def _path(file: object) -> str:
    return _text(str(getattr(file, "path", ""))) if file else "0"
