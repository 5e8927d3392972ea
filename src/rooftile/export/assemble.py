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
    content = binary.files[kind]
    ptx = binary.files["ptx"].decode() if nvidia else ""
    layouts = (
        {"PTX": ptx_layout(ptx), "CUBIN": cubin_layout(content)}
        if nvidia
        else {"HSACO": hsaco_layout(content)}
    )
    visible = [(p.name, p.argument.type) for p in derived.parameters]
    layout, hidden = agreed_layout(derived.symbol, visible, layouts)
    files = {f"{derived.symbol}.{kind}": content} if keep_binary else {}
    version, target = _ptx_header(ptx) if nvidia else ("", "")
    arch = derived.build.target.arch
    if nvidia:
        files[f"{derived.symbol}.ptx"] = ptx.encode()
    tolerances = _tolerances(derived)
    resources = binary.resources
    kernel = ExportedKernel(
        symbol=layout.entry,
        op=derived.op,
        dtype=derived.dtype,
        form=derived.form,
        target=derived.build.target.name,
        parameters=_parameters(derived, layout, hidden),
        sizes=derived.sizes,
        tensors=derived.tensors,
        grid=derived.grid,
        threads=binary.num_warps * derived.build.target.warp_size,
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
        binary_driver=binary_driver(binary.assembler, int(arch)) if nvidia else "",
        binary=_entry(files, f"{derived.symbol}.{kind}"),
        ptx=_entry(files, f"{derived.symbol}.ptx"),
        absolute_tolerance=tolerances[0],
        relative_tolerance=tolerances[1],
    )
    return kernel, files


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
