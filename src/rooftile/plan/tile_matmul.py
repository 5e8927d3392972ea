"""Tiles of a matmul, ranked by what they move and how evenly they fill the GPU."""

from __future__ import annotations

import itertools
from collections import Counter

from rooftile.errors import InputError
from rooftile.plan.tile import (
    buffered_stages,
    check_dot,
    check_fits,
    check_matrix_dtype,
    most_shared,
    tensor_memory,
    warp_size,
    waves,
)
from rooftile.records.device import Device
from rooftile.records.tile import Tile, TilePlan, Waves
from rooftile.spec.limits import Limits, limits

_BLOCKS = (16, 32, 64, 128, 256)
_DEPTHS = (32, 64, 128)
_STAGES = (2, 3, 4, 5)
_WARPS = (4, 8)
# Half of a thread's registers: the rest holds operands, addresses and what the epilogue needs
MOST_ACCUMULATORS = 128
_FLOAT32 = 4


def pipeline_shared_bytes(
    block_m: int, block_n: int, block_k: int, itemsize: int, num_stages: int,
    unit: Limits | None = None,
) -> int:  # fmt: skip
    """Shared memory of a pipelined matmul [B]: one buffer of A and B a stage that is kept.

    Args:
        block_m: Rows of the output tile.
        block_n: Columns of it.
        block_k: Depth of a step.
        itemsize: Bytes of an element of A and B.
        num_stages: Stages of the pipeline.
        unit: Limits of the target, which decides how many stages have a buffer; None: all.
    """
    buffer = (block_m + block_n) * block_k * itemsize
    return buffer * buffered_stages(unit, num_stages)


def matmul_traffic(
    m: int, n: int, k: int, block_m: int, block_n: int, itemsize: int, out_itemsize: int
) -> int:
    """Bytes that all tiles load and store: A once a column of tiles, B once a row of them."""
    columns, rows = -(-n // block_n), -(-m // block_m)
    return (m * k * columns + k * n * rows) * itemsize + m * n * out_itemsize


def matmul_tiles(
    m: int,
    n: int,
    k: int,
    *,
    dtype: str,
    itemsize: int,
    gpu: Device,
    out_itemsize: int | None = None,
    top: int = 8,
) -> TilePlan:
    """The tiles of an M x N x K matmul that fit, the least traffic over wave efficiency first.

    Args:
        m: Rows of A.
        n: Columns of B.
        k: Columns of A.
        dtype: Name of the operands' dtype, for the record.
        itemsize: Its bytes.
        gpu: Target and units.
        out_itemsize: Bytes of an element of C; None: the operands'.
        top: How many to keep.

    Raises:
        InputError: An extent is not positive, the GPU's target or units are not known, or it does
            not multiply that dtype.
    """
    for name, value in (("m", m), ("n", n), ("k", k), ("top", top)):
        if value < 1:
            raise InputError(f"{name} must be 1 or more, got {value}")
    unit, units = unit_of(gpu)
    check_matrix_dtype(gpu, dtype)
    out = itemsize if out_itemsize is None else out_itemsize
    depth = min(_DEPTHS) if itemsize > 1 else 2 * min(_DEPTHS)
    check_dot(16, 16, depth, itemsize)
    check_fits(unit, pipeline_shared_bytes(16, 16, depth, itemsize, 2, unit), "the smallest tile")
    found: list[Tile] = []
    refused: Counter[str] = Counter()
    for block_m, block_n, *rest in itertools.product(_BLOCKS, _BLOCKS, _DEPTHS, _STAGES, _WARPS):
        traffic = matmul_traffic(m, n, k, block_m, block_n, itemsize, out)
        grid = waves(-(-m // block_m) * -(-n // block_n), units)
        tile = _candidate(unit, itemsize, traffic, grid, block_m, block_n, *rest)
        if isinstance(tile, str):
            refused[tile] += 1
        else:
            found.append(tile)
    return TilePlan(
        op="matmul",
        shape=(m, n, k),
        dtype=dtype,
        target=unit.target,
        gpu=gpu.id,
        least_bytes=(m * k + k * n) * itemsize + m * n * out,
        tiles=tuple(ranked(found)[:top]),
        refused=dict(sorted(refused.items())),
    )


def ranked(tiles: list[Tile]) -> list[Tile]:
    """Best first, of every block shape its deepest pipeline with the longest step that fits."""
    best: dict[tuple[int, int, int], Tile] = {}
    for tile in tiles:
        key = (tile.block_m, tile.block_n, tile.num_warps)
        if key not in best or _depth(tile) > _depth(best[key]):
            best[key] = tile

    def cost(tile: Tile) -> tuple[float, int, int]:
        # of equals the one with more room for accumulators, then the smaller block
        return (
            tile.traffic_bytes / tile.waves.efficiency,
            tile.accumulator_registers,
            tile.num_warps,
        )

    return sorted(best.values(), key=cost)


def unit_of(gpu: Device) -> tuple[Limits, int]:
    """Limits and number of a GPU's SMs or CUs.

    Raises:
        InputError: One of them is not known.
    """
    if not gpu.target or not gpu.units.value:
        raise InputError(f"gpu must have a known target and number of SMs, {gpu.id} has not")
    return limits(gpu.target), int(gpu.units.value)


def _candidate(
    unit: Limits, itemsize: int, traffic: int, grid: Waves,
    block_m: int, block_n: int, block_k: int, stages: int, warps: int,
) -> Tile | str:  # fmt: skip
    """A tile, or why it is none."""
    shared = pipeline_shared_bytes(block_m, block_n, block_k, itemsize, stages, unit)
    accumulators = block_m * block_n // (warps * warp_size(unit))
    if reason := _refusal(unit, shared, accumulators, block_k * itemsize):
        return reason
    return Tile(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        num_stages=stages,
        num_warps=warps,
        shared_bytes=shared,
        accumulator_registers=0 if tensor_memory(unit) else accumulators,
        traffic_bytes=traffic,
        waves=grid,
    )


def _depth(tile: Tile) -> tuple[int, int]:
    """What is in flight, then the length of a step."""
    return (tile.num_stages * tile.block_k, tile.block_k)


def _refusal(unit: Limits, shared: int, accumulators: int, step_bytes: int) -> str:
    """Why a candidate is none; "" if it is one."""
    if shared > most_shared(unit):
        return "shared memory"
    if not tensor_memory(unit) and accumulators > MOST_ACCUMULATORS:
        return "accumulator registers"
    if accumulators < 1:
        return "more threads than elements"
    if step_bytes < 32:  # a row of a step below a sector of memory is read twice
        return "rows of a step below 32 B"
    return ""
