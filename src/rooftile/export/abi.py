"""A kernel's parameters as its signature, its PTX and its binary have them: all must agree."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from rooftile.compile.elf import sections
from rooftile.errors import InputError

# bytes of a scalar; of a pointer 8. A float32 argument takes 4, though C passes it as a double
SCALAR_BYTES = {
    "i1": 1, "i8": 1, "u1": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
    "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8,
}  # fmt: skip
# what Triton from 3.3 and 3.5 on adds behind the visible parameters, in this order
HIDDEN = ("scratch", "profile_scratch")
_KPARAM_INFO = 0x17
_AMD_METADATA = 32


@dataclass(frozen=True)
class Layout:
    """Where a kernel's parameters lie.

    Attributes:
        entry: The kernel's name in the binary.
        places: Offset and size of each [B], in order.
    """

    entry: str
    places: tuple[tuple[int, int], ...]


def type_bytes(kind: str) -> int:
    """Size of a parameter [B].

    Raises:
        InputError: Values of the type cannot be passed from outside Python.
    """
    if kind.startswith("*"):
        return 8
    if kind not in SCALAR_BYTES:
        raise InputError(f"a parameter of type {kind!r} cannot be exported")
    return SCALAR_BYTES[kind]


def ptx_layout(ptx: str) -> Layout:
    """The parameters that PTX declares.

    Raises:
        InputError: It declares not exactly one kernel.
    """
    entries = re.findall(r"\.visible \.entry (\w+)\(([^)]*)\)", ptx)
    if len(entries) != 1:
        raise InputError(f"PTX must hold one kernel, it holds {len(entries)}")
    entry, text = entries[0]
    places, end = [], 0
    for line in filter(None, (part.strip() for part in text.split(","))):
        block = re.search(r"\.align (\d+) \.b8 \w+\[(\d+)\]", line)
        plain = re.search(r"\.param \.[a-z]+(\d+)\b", line)
        if block:
            alignment, size = int(block[1]), int(block[2])
        elif plain:
            alignment = size = max(1, int(plain[1]) // 8)
        else:
            raise InputError(f"PTX declares a parameter that is not understood: {line!r}")
        end = -(-end // alignment) * alignment
        places.append((end, size))
        end += size
    return Layout(entry, tuple(places))


def cubin_layout(cubin: bytes) -> Layout:
    """The parameters in a CUBIN's own table.

    Raises:
        InputError: It holds not exactly one kernel.
    """
    prefix = ".nv.info."
    tables = {n.removeprefix(prefix): t for n, t in sections(cubin).items() if n.startswith(prefix)}
    if len(tables) != 1:
        raise InputError(f"CUBIN must hold one kernel, it holds {', '.join(tables) or 'none'}")
    ((entry, table),) = tables.items()
    found: dict[int, tuple[int, int]] = {}
    at = 0
    while at < len(table):
        form, attribute, length = struct.unpack_from("<BBH", table, at)
        if form == 4 and attribute == _KPARAM_INFO:
            _, ordinal, offset, bits = struct.unpack_from("<IHHI", table, at + 4)
            found[ordinal] = (offset, bits >> 18)
        at += 4 + (length if form == 4 else 0)
    return Layout(entry, tuple(found[ordinal] for ordinal in sorted(found)))


def hsaco_layout(hsaco: bytes) -> Layout:
    """The parameters in the metadata of an HSACO.

    Raises:
        InputError: It holds not exactly one kernel.
    """
    import msgspec

    note = sections(hsaco).get(".note", b"")
    at = 0
    kernels: list[dict[str, object]] = []
    while at + 12 <= len(note):
        name_bytes, data_bytes, kind = struct.unpack_from("<III", note, at)
        data = at + 12 + -(-name_bytes // 4) * 4
        if kind == _AMD_METADATA:
            kernels = msgspec.msgpack.decode(note[data : data + data_bytes])["amdhsa.kernels"]
        at = data + -(-data_bytes // 4) * 4
    if len(kernels) != 1:
        raise InputError(f"HSACO must hold one kernel, it holds {len(kernels)}")
    arguments = [
        (int(argument[".offset"]), int(argument[".size"]))
        for argument in kernels[0][".args"]  # type: ignore[attr-defined]
        if not str(argument[".value_kind"]).startswith("hidden_")
    ]
    return Layout(str(kernels[0][".name"]), tuple(arguments))


def agreed_layout(
    symbol: str, types: Sequence[tuple[str, str]], layouts: dict[str, Layout]
) -> tuple[Layout, int]:
    """The one layout that signature, PTX and binary agree on.

    Args:
        symbol: The kernel's name.
        types: Name and type of each visible parameter.
        layouts: What each file says: ``{"PTX": ..., "CUBIN": ...}``.

    Returns:
        The layout, and how many parameters the compiler has added.

    Raises:
        InputError: They disagree: a launch would read past the arguments, or the wrong ones.
    """
    visible = [(name, type_bytes(kind)) for name, kind in types]
    wanted = [size for _, size in visible]
    (first, layout), *others = layouts.items()
    for other, second in others:
        if second != layout:
            raise InputError(
                f"{symbol} cannot be exported: {first} has the parameters {layout.places} of"
                f" {layout.entry}, {other} has {second.places} of {second.entry} (offset, bytes)"
            )
    sizes = [size for _, size in layout.places]
    hidden = len(sizes) - len(wanted)
    addresses = all(size == 8 for size in sizes[len(wanted) :])
    agree = layout.entry == symbol and sizes[: len(wanted)] == wanted and addresses
    if not agree or not 0 <= hidden <= len(HIDDEN):
        raise InputError(
            f"{symbol} cannot be exported: its signature wants {visible} and up to {len(HIDDEN)}"
            f" addresses more (bytes), {first} has {sizes} of {layout.entry}: this Triton passes"
            " arguments in a way that is not known"
        )
    return layout, hidden
