"""Exports ops and kernels: what is to be compiled, and the files of the bundle it becomes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import triton

from rooftile.compile.binary import Binary, compile_binaries
from rooftile.compile.run import TIMEOUT_S
from rooftile.compile.targets import Target, target_of
from rooftile.errors import InputError
from rooftile.export.assemble import assemble
from rooftile.export.derive import Derived, derive
from rooftile.export.driver import check_ptx_version
from rooftile.export.golden import golden_of
from rooftile.export.header import HEADER, header
from rooftile.export.ops import DTYPES, OpSpec, op_spec
from rooftile.export.own import derive_own
from rooftile.export.trace import DescriptorError
from rooftile.export.write import MANIFEST
from rooftile.records.io import to_json
from rooftile.records.manifest import ExportedKernel, Form, Golden, Manifest
from rooftile.records.resources import Constant

PORTABLE = "sm_80"  # its PTX runs on every later GPU
_REGISTER_BYTES = 255 * 4  # all that a thread can have; what spills more is far from its tile


@dataclass(frozen=True)
class Request:
    """What is to be exported.

    Attributes:
        names: Ops, and kernels as ``file.py:name``.
        targets: ``"sm_90"``, ``"gfx942"``.
        dtypes: ``"bfloat16"``; of ops.
        sizes: Tuned size to its values.
        ptx_version: 84 for PTX 8.4; None: the newest that the assembler writes.
        fp_fusion: Let the compiler make one multiply-add of a product and a sum.
        signature: Of a user's own kernel; None: taken from ``call``.
        call: A function beside such a kernel that launches it.
        constants: Constants and options of such a kernel.
        grid: Its grid as formulas.
        cores: Compiles at once; None: one a core.
    """

    names: Sequence[str]
    targets: Sequence[str]
    dtypes: Sequence[str] = ("bfloat16",)
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ptx_version: int | None = None
    fp_fusion: bool = True
    signature: str | None = None
    call: str = "example"
    constants: Mapping[str, Constant] = field(default_factory=dict)
    grid: str | None = None
    cores: int | None = None


def make_bundle(
    request: Request, version: str, progress: Callable[[str], None] | None = None
) -> tuple[Manifest, dict[str, bytes]]:
    """Compile what is asked for, without a GPU.

    Args:
        request: What is to be exported.
        version: Of Rooftile.
        progress: Told what is being done.

    Returns:
        The manifest and every file of the bundle, the manifest's included.

    Raises:
        InputError: There is no such op, kernel, target or dtype, one cannot be exported, or
            signature, PTX and binary of one disagree.
    """
    _check(request)
    if progress:
        progress("planning")
    plans, notes = plans_of(request)
    builds = [(derived.build, derived.symbol) for derived, _ in plans]
    binaries = compile_binaries(
        builds,
        cores=request.cores or len(os.sched_getaffinity(0)),
        timeout_s=TIMEOUT_S,
        progress=progress,
    )
    kernels: list[ExportedKernel] = []
    files: dict[str, bytes] = {}
    for (derived, keep), binary in zip(plans, binaries, strict=True):
        if isinstance(binary, str):
            raise InputError(f"{derived.symbol} cannot be exported: {binary}")
        kernel, content = assemble(derived, binary, keep)
        kernels.append(kernel)
        files.update(content)
        spilled = binary.resources.spill_store_bytes
        if spilled > _REGISTER_BYTES:
            notes.append(
                f"{derived.symbol} keeps {spilled:,} bytes of a thread in memory, for want of"
                " registers: its results are right, and it is slow"
            )
    golden, exact = _golden(request)
    files.update(exact)
    manifest = Manifest(
        tools=_tools(version, [b for b in binaries if isinstance(b, Binary)]),
        kernels=tuple(sorted(kernels, key=lambda kernel: kernel.symbol)),
        golden=tuple(sorted(golden, key=lambda g: (g.op, g.dtype, sorted(g.sizes.items())))),
        notes=tuple(notes),
    )
    texts = {MANIFEST: _readable(manifest), HEADER: header(manifest.kernels)}
    return manifest, {**texts, **dict(sorted(files.items()))}


def _check(request: Request) -> None:
    """Refuse what can be refused before any work."""
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "y", "yes"):
        raise InputError("TRITON_INTERPRET must not be set to export: there would be no binary")
    if not request.names:
        raise InputError("op must be given: the name of one, or file.py:kernel")
    for what, given in (("op", request.names), ("arch", request.targets)):
        twice = sorted({name for name in given if list(given).count(name) > 1})
        if twice:
            raise InputError(f"{what} {', '.join(twice)} is given twice")
    for dtype in request.dtypes:
        if dtype not in DTYPES:
            raise InputError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    for target in request.targets:
        target_of(target)
    tuned = {op_spec(name).tuned.size for name in request.names if ":" not in name}
    for size, values in request.sizes.items():
        if size not in tuned:
            known = ", ".join(sorted(tuned)) or "none"
            raise InputError(f"size must be one of {known}, got {size!r}")
        if any(value < 1 for value in values):
            raise InputError(f"size {size} must be 1 or more, got {min(values)}")
    check_ptx_version(request.ptx_version)


def plans_of(request: Request) -> tuple[list[tuple[Derived, bool]], list[str]]:
    """Every kernel to compile and whether its binary is kept; what is left out and why."""
    targets = [(target_of(name), True) for name in request.targets]
    nvidia = any(target.backend == "cuda" for target, _ in targets)
    if nvidia and all(target.name != PORTABLE for target, _ in targets):
        targets.append((target_of(PORTABLE), False))
    plans, notes = [], []
    for target, keep in targets:
        options: dict[str, Constant] = {"enable_fp_fusion": request.fp_fusion}
        if request.ptx_version is not None and target.backend == "cuda":
            options["ptx_version"] = request.ptx_version
        for name in request.names:
            if ":" in name:
                found = [
                    derive_own(
                        name, target, signature=request.signature, call=request.call,
                        constants=request.constants, grid=request.grid, options=options,
                    )
                ]  # fmt: skip
            else:
                found, left_out = _of_op(name, request, target, options)
                notes += left_out
            plans += [(derived, keep) for derived in found]
    return plans, notes


def _of_op(
    name: str, request: Request, target: Target, options: dict[str, Constant]
) -> tuple[list[Derived], list[str]]:
    """An op's kernels for a target, and which of them are left out."""
    spec = op_spec(name)
    found: list[Derived] = []
    notes: list[str] = []
    for dtype in request.dtypes:
        for tuned in request.sizes.get(spec.tuned.size, (spec.tuned.default,)):
            for form in spec.forms():
                try:
                    found.append(derive(name, spec, dtype, tuned, target, form, options))
                except DescriptorError as error:
                    plain = _without_descriptors(
                        name, spec, dtype, tuned, target, form, options, error
                    )
                    found += plain
                    what = f"that of {PORTABLE} stands in" if plain else "it is left out"
                    notes.append(f"{name} for {target.name}, form {form}: {what}, as {error}")
    return found, list(dict.fromkeys(notes))


def _without_descriptors(
    name: str, spec: OpSpec, dtype: str, tuned: int, target: Target, form: Form,
    options: dict[str, Constant], error: DescriptorError,
) -> list[Derived]:  # fmt: skip
    """The kernel that the op takes on the portable target, compiled for this one.

    None where that one passes descriptors too, unless nothing would be left: then it is raised.
    """
    try:
        portable = target_of(PORTABLE)
        return [derive(name, spec, dtype, tuned, target, form, options, portable)]
    except DescriptorError:
        if form == spec.forms()[-1]:
            raise error from None
        return []


def _golden(request: Request) -> tuple[list[Golden], dict[str, bytes]]:
    """A result of every op, dtype and size."""
    found, files = [], {}
    for name in request.names:
        if ":" in name:
            continue
        spec = op_spec(name)
        for dtype in request.dtypes:
            for tuned in request.sizes.get(spec.tuned.size, (spec.tuned.default,)):
                golden, content = golden_of(name, spec, dtype, tuned)
                found.append(golden)
                files.update(content)
    return found, files


def _tools(version: str, binaries: Sequence[Binary]) -> dict[str, str]:
    """What made the bundle."""
    assemblers = sorted({binary.assembler for binary in binaries if binary.assembler})
    tools = {"rooftile": version, "torch": str(torch.__version__), "triton": triton.__version__}
    return {**tools, "ptxas": ", ".join(assemblers)} if assemblers else tools


def _readable(manifest: Manifest) -> bytes:
    """The manifest as JSON over many lines."""
    import msgspec

    return msgspec.json.format(to_json(manifest), indent=1)
