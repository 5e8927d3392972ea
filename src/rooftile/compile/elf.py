"""Sections of a 64-bit ELF file, which a cubin is."""

from __future__ import annotations

import struct


def sections(data: bytes) -> dict[str, bytes]:
    """Name to contents of every section; a section that only reserves memory is as many zeros.

    Args:
        data: The whole file.

    Raises:
        ValueError: It is no ELF file.
    """
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    names = headers[names_at][4]
    found = {}
    for name_at, kind, _, _, offset, length in headers:
        start = names + name_at
        name = data[start : data.index(0, start)].decode()
        reserved = kind == 8  # SHT_NOBITS
        found[name] = bytes(length) if reserved else data[offset : offset + length]
    return found
