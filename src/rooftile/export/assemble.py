"""From compiled kernels to the files of a bundle."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rooftile.compile.binary import Binary
from rooftile.compile.kernel import DIVISIBLE
from rooftile.errors import InputError
from rooftile.export.abi import (
    HIDDEN,
    Layout,
    agreed_layout,
    cubin_layout,
    hsaco_layout,
    ptx_layout,
    type_bytes,
)
from rooftile.export.derive import Derived
from rooftile.export.driver import binary_driver, ptx_driver
from rooftile.export.golden import listed
from rooftile.export.ops import RELATIVE, SPECS
from rooftile.records.manifest import BundleFile, ExportedKernel, Parameter, Role, Scratch


def assemble(
    derived: Derived, binary: Binary, keep_binary: bool = True
) -> tuple[ExportedKernel, dict[str, bytes]]:
    """What the manifest says of a kernel, and its files.

    Args:
        derived: The kernel and how it is launched.
        binary: It compiled.
        keep_binary: Whether the binary is written beside the PTX.

    Raises:
        InputError: Signature, PTX and binary disagree on the parameters.
    """
    nvidia = "cubin" in binary.files
    kind = "cubin" if nvidia else "hsaco"
    files = {f"{derived.symbol}.{kind}": binary.files[kind]} if keep_binary else {}
    if nvidia:
        files[f"{derived.symbol}.ptx"] = binary.files["ptx"]
    version, target = _ptx_header(binary.files["ptx"].decode()) if nvidia else ("", "")
    absolute, relative = _tolerances(derived)
    resources, goal = binary.resources, derived.build.target
    kernel = ExportedKernel(
        symbol=derived.symbol,
        op=derived.op,
        dtype=derived.dtype,
        form=derived.form,
        target=goal.name,
        parameters=_parameters(derived, *_layout(derived, binary)),
        sizes=derived.sizes,
        tensors=derived.tensors,
        grid=derived.grid,
        threads=binary.num_warps * goal.warp_size,
        cluster=binary.num_ctas,
        dynamic_shared_bytes=resources.dynamic_shared_bytes,
        static_shared_bytes=resources.static_shared_bytes,
        registers=resources.registers,
        scratch=Scratch(*binary.scratch),
        profile_scratch=Scratch(*binary.profile_scratch),
        cooperative=binary.cooperative,
        dependent_launch=binary.dependent_launch,
        constants=resources.constants,
        options=resources.options,
        ptx_version=version,
        ptx_target=target,
        ptx_driver=ptx_driver(version) if nvidia else "",
        binary_driver=binary_driver(binary.assembler, int(goal.arch)) if nvidia else "",
        binary=_entry(files, f"{derived.symbol}.{kind}"),
        ptx=_entry(files, f"{derived.symbol}.ptx"),
        absolute_tolerance=absolute,
        relative_tolerance=relative,
    )
    return kernel, files


def _layout(derived: Derived, binary: Binary) -> tuple[Layout, int]:
    """Where the parameters lie, and how many the compiler has added."""
    if "cubin" in binary.files:
        ptx = ptx_layout(binary.files["ptx"].decode())
        layouts = {"PTX": ptx, "CUBIN": cubin_layout(binary.files["cubin"])}
    else:
        layouts = {"HSACO": hsaco_layout(binary.files["hsaco"])}
    visible = [(p.name, p.argument.type) for p in derived.parameters]
    return agreed_layout(derived.symbol, visible, layouts)


def _entry(files: Mapping[str, bytes], path: str) -> BundleFile | None:
    return listed(path, files[path]) if path in files else None


def _tolerances(derived: Derived) -> tuple[float | None, float | None]:
    """Absolute and relative, of an op; a user's own kernel has none."""
    if derived.op not in SPECS or not derived.dtype:
        return None, None
    return SPECS[derived.op].absolute[derived.dtype], RELATIVE[derived.dtype]


def _ptx_header(ptx: str) -> tuple[str, str]:
    """Version and target of PTX."""
    version = re.search(r"^\.version (\S+)", ptx, re.MULTILINE)
    target = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
    if version is None or target is None:
        raise InputError("PTX must have a .version and a .target")
    return version[1], target[1]


def _parameters(derived: Derived, layout: Layout, hidden: int) -> tuple[Parameter, ...]:
    """All parameters, those behind the visible ones that the compiler has added included."""
    places: Sequence[tuple[int, int]] = layout.places
    named = [
        Parameter(
            name=p.name,
            type=p.argument.type,
            bytes=type_bytes(p.argument.type),
            offset=offset,
            role=p.role,
            divisible_by=DIVISIBLE if p.argument.divisible else 1,
            tensor=p.tensor,
            formula=p.formula,
            default=p.default,
        )
        for p, (offset, _) in zip(derived.parameters, places, strict=False)
    ]
    roles: tuple[Role, ...] = ("scratch", "profile_scratch")
    assert roles == HIDDEN
    added = [
        Parameter(name=f"__{role}", type="*i8", bytes=8, offset=offset, role=role)
        for role, (offset, _) in zip(roles, places[len(named) : len(named) + hidden], strict=False)
    ]
    return (*named, *added)
