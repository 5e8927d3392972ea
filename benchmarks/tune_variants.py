"""Launch parameters that ``tune_rows.py`` tries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

Values = dict[str, Any]


def variants(family: str, n: int, itemsize: int) -> Iterator[Values]:
    """Plausible launch parameters of a family at n columns."""
    block = 1 << (n - 1).bit_length()
    makers = {
        "cross_entropy_fwd": _streams, "cross_entropy_bwd": _chunks, "flat": _flats,
        "column_blocks": _column_blocks, "rotary": _heads, "norm_bwd": _persistent,
        "add_norm_bwd": _persistent,
    }  # fmt: skip
    found = list(makers.get(family, _rows)(block, itemsize))
    if "norm" in family:
        found = list((_resident if "bwd" in family else _ahead)(block, itemsize)) + found
    if n * itemsize % 16:  # rows that start anywhere
        found += [{**v, "line_bytes": line} for line in (16, 32) for v in found]
    yield from found


def _streams(block: int, itemsize: int) -> Iterator[Values]:
    for chunk, warps, stages in itertools.product((2048, 4096, 8192), (4, 8, 16), (1, 2, 3, 4)):
        if 8 <= chunk // (warps * 32) <= 32:
            yield {"rows": 1, "block_n": chunk, "num_warps": warps, "num_stages": stages}


def _chunks(block: int, itemsize: int) -> Iterator[Values]:
    for chunk, warps in itertools.product((1024, 2048, 4096, 8192), (4, 8)):
        if 8 <= chunk // (warps * 32) <= 32:
            yield {"block_n": chunk, "num_warps": warps}


def _flats(block: int, itemsize: int) -> Iterator[Values]:
    for chunk, warps in itertools.product((1024, 2048, 4096, 8192), (2, 4, 8)):
        if 8 <= chunk // (warps * 32) <= 32:
            yield {"block_n": chunk, "num_warps": warps}


def _column_blocks(block: int, itemsize: int) -> Iterator[Values]:
    for columns, rows, warps in itertools.product((256, 512, 1024, 2048), (1, 2, 4), (4, 8)):
        if 8 <= columns * rows // (warps * 32) <= 16:
            yield {"block_n": columns, "rows": rows, "num_warps": warps}


def _heads(block: int, itemsize: int) -> Iterator[Values]:
    for rows, warps in itertools.product((8, 16, 32, 64), (2, 4, 8)):
        if 4 <= rows * 64 // (warps * 32) <= 32:
            yield {"rows": rows, "num_warps": warps}


def _rows(block: int, itemsize: int) -> Iterator[Values]:
    """Whole rows in registers, in a cluster or alone."""
    if block >= 4096:
        for cluster, warps in itertools.product((1, 2, 4, 8, 16), (4, 8, 16)):
            each = block // cluster // (warps * 32)
            for registers in {16: (0,), 32: (48, 64), 64: (64, 80)}.get(each, ()):
                yield {"kind": "cluster", "rows": 1, "cluster": cluster, "packed": True,
                       "block_n": block // cluster, "num_warps": warps,
                       "max_registers": registers}  # fmt: skip
    if block <= 65536:
        for warps, each in itertools.product((1, 2, 4, 8, 16, 32), (8, 16, 32, 64)):
            rows = warps * 32 * each // block
            if rows < 1 or (rows > 1 and warps > 4):
                continue
            tile = {"kind": "tile", "rows": rows, "block_n": block, "num_warps": warps}
            if each <= 32:
                yield {**tile, "packed": False, "max_registers": 0}
            for registers in {32: (48,), 64: (64, 80)}.get(each, ()):
                if registers * warps * 32 <= 65536:
                    yield {**tile, "packed": True, "max_registers": registers}


def _persistent(block: int, itemsize: int) -> Iterator[Values]:
    """Column sums in registers: 8 to 32 elements of a row a thread."""
    for warps, each in itertools.product((1, 2, 4, 8, 16, 32), (8, 16, 32)):
        rows = warps * 32 * each // block
        if rows < 1 or (rows > 1 and warps > 4):
            continue
        for per_sm, stages in itertools.product((1, 2, 3, 4, 6, 8, 12, 16, 24), (2, 3, 4)):
            registers = 65536 // (per_sm * warps * 32) // 8 * 8
            if 12 <= per_sm * warps <= 32 and 4 * each <= registers:
                yield {"kind": "tile", "rows": rows, "block_n": block, "num_warps": warps,
                       "num_stages": stages, "programs_per_sm": per_sm, "packed": True,
                       "max_registers": min(registers, 168)}  # fmt: skip
    if block >= 8192:
        for cluster, warps, per_sm in itertools.product((8, 4, 2, 16), (4, 8, 16), (1, 2, 3, 4)):
            each = block // cluster // (warps * 32)
            if each in (8, 16) and 8 <= per_sm * warps <= 24:
                limit = 65536 // (per_sm * warps * 32) // 8 * 8
                yield {"kind": "cluster", "rows": 1, "cluster": cluster,
                       "block_n": block // cluster, "num_warps": warps, "packed": True,
                       "programs_per_sm": per_sm, "max_registers": min(limit, 168)}  # fmt: skip


def _resident(block: int, itemsize: int) -> Iterator[Values]:
    """Rows through shared memory: parts of 16 or 32 KiB, one or two programs an SM."""
    for part, warps, per_sm, stages in (
        (32768, 16, 1, 6), (16384, 8, 2, 4), (32768, 8, 1, 6), (16384, 16, 2, 4),
        (16384, 16, 1, 8),
    ):  # fmt: skip
        cluster = block * itemsize // part
        if 1 <= cluster <= 16:
            yield _staying(block, cluster, warps, per_sm, stages)
    if block * itemsize <= 16384:
        for each, in_flight in itertools.product((16, 32), (8, 16)):
            warps = max(1, block // (32 * each))
            yield _staying(block, 1, warps, max(1, in_flight // warps), 4)


def _ahead(block: int, itemsize: int) -> Iterator[Values]:
    """Norms' forward: rows ahead in shared memory, or one in registers."""
    for (each, warps, per_sm), stages in itertools.product(
        ((64, 8, 1), (64, 4, 2), (64, 16, 1), (32, 16, 1), (32, 8, 2), (32, 4, 4)), (8, 0)
    ):
        cluster = block // (warps * 32 * each)
        if 1 <= cluster <= 16:
            yield _staying(block, cluster, warps, per_sm, stages)


def _staying(block: int, cluster: int, warps: int, per_sm: int, stages: int) -> Values:
    return {
        "kind": "resident", "rows": 1, "cluster": cluster, "packed": False,
        "block_n": block // cluster, "num_warps": warps, "num_stages": stages,
        "programs_per_sm": per_sm, "line_bytes": 32,
        "max_registers": min(255, 2048 // (warps * per_sm)),
    }  # fmt: skip
