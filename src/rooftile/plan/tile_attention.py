"""Tiles of an attention forward, ranked by how often they read the keys and values."""

from __future__ import annotations

import itertools
from collections import Counter

from rooftile.errors import InputError
from rooftile.plan.tile import (
    buffered_stages,
    check_matrix_dtype,
    most_shared,
    tensor_memory,
    warp_size,
    waves,
)
from rooftile.plan.tile_matmul import unit_of
from rooftile.records.device import Device
from rooftile.records.tile import Tile, TilePlan, Waves
from rooftile.spec.limits import Limits

_QUERIES = (16, 32, 64, 128, 256)
_KEYS = (32, 64, 128, 256)
_STAGES = (1, 2, 3, 4)
_WARPS = (4, 8)
# float32 registers of a thread for the output and one tile of scores. On sm_90 kernels with 128
# compile without spills and with 192 do not; head dimension 256 needs, and stands, 160.
MOST_ACCUMULATORS = 128
MOST_ACCUMULATORS_WIDE = 160
_WIDE_HEAD = 256


def attention_shared_bytes(
    block_m: int, block_n: int, head_dim: int, itemsize: int, num_stages: int,
    unit: Limits | None = None,
) -> int:  # fmt: skip
    """Shared memory of an attention forward [B]: the queries, and keys and values by stage."""
    stages = buffered_stages(unit, num_stages)
    return (block_m + 2 * block_n * stages) * head_dim * itemsize


def attention_tiles(
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    *,
    dtype: str,
    itemsize: int,
    gpu: Device,
    kv_heads: int | None = None,
    top: int = 8,
) -> TilePlan:
    """The tiles of an attention forward that fit, the least traffic over wave efficiency first.

    Args:
        batch: Sequences.
        heads: Heads of queries.
        queries: Tokens that ask.
        keys: Tokens that are asked.
        head_dim: Of queries, keys and values; tiles take the next power of two.
        dtype: Name of the operands' dtype, for the record.
        itemsize: Its bytes.
        gpu: Target and units.
        kv_heads: Heads of keys; None: as many as of queries.
        top: How many to keep.

    Raises:
        InputError: An extent is not positive, no tile can fit, the GPU is not known well enough or
            does not multiply that dtype.
    """
    extents = {"batch": batch, "heads": heads, "queries": queries, "keys": keys}
    for name, value in {**extents, "head_dim": head_dim, "top": top}.items():
        if value < 1:
            raise InputError(f"{name} must be 1 or more, got {value}")
    unit, units = unit_of(gpu)
    check_matrix_dtype(gpu, dtype)
    shared_heads = heads if kv_heads is None else kv_heads
    if shared_heads < 1 or heads % shared_heads:
        raise InputError(f"kv_heads must divide heads ({heads}), got {shared_heads}")
    depth = 1 << (head_dim - 1).bit_length()
    row_bytes = head_dim * itemsize
    found: list[Tile] = []
    refused: Counter[str] = Counter()
    for block_m, *rest in itertools.product(_QUERIES, _KEYS, _STAGES, _WARPS):
        tiles = -(-queries // block_m)
        traffic = batch * heads * (2 * queries + 2 * keys * tiles) * row_bytes
        grid = waves(batch * heads * tiles, units)
        tile = _candidate(unit, depth, itemsize, traffic, grid, block_m, *rest)
        if isinstance(tile, str):
            refused[tile] += 1
        else:
            found.append(tile)
    if not found:
        raise InputError(_nothing_fits(unit, head_dim, depth, itemsize, gpu.id))
    return TilePlan(
        op="attention",
        shape=(batch, heads, queries, keys, head_dim),
        dtype=dtype,
        target=unit.target,
        gpu=gpu.id,
        least_bytes=batch * (2 * heads * queries + 2 * shared_heads * keys) * row_bytes,
        tiles=tuple(_ranked(found)[:top]),
        refused=dict(sorted(refused.items())),
    )


def _nothing_fits(unit: Limits, head_dim: int, depth: int, itemsize: int, gpu: str) -> str:
    """Why there is no tile of a head dimension, and the nearest that has one."""
    shared = attention_shared_bytes(64, min(_KEYS), depth, itemsize, 1, unit)
    registers = 64 * (depth + min(_KEYS)) // (4 * warp_size(unit))
    most = MOST_ACCUMULATORS_WIDE if depth >= _WIDE_HEAD else MOST_ACCUMULATORS
    nearest = next((d for d in _halves(depth) if _any_fits(unit, d, itemsize)), None)
    instead = "and no smaller one does" if nearest is None else f"the nearest that fits: {nearest}"
    return (
        f"head_dim {head_dim} fits no tile on {gpu} ({unit.target}): 64 queries by {min(_KEYS)}"
        f" keys, the smallest, take {shared:,} B of shared memory of {most_shared(unit):,} B and"
        f" {registers} accumulator registers of {most}; {instead}"
    )


def _halves(depth: int) -> list[int]:
    """Powers of two below a depth, the largest first, down to a matrix instruction's 16."""
    return [depth >> i for i in range(1, depth.bit_length()) if depth >> i >= 16]


def _any_fits(unit: Limits, depth: int, itemsize: int) -> bool:
    """Whether there is a tile of a head dimension at all."""
    grid = waves(1, 1)
    return any(
        isinstance(_candidate(unit, depth, itemsize, 0, grid, *rest), Tile)
        for rest in itertools.product(_QUERIES, _KEYS, _STAGES, _WARPS)
    )


def _candidate(
    unit: Limits, depth: int, itemsize: int, traffic: int, grid: Waves,
    block_m: int, block_n: int, stages: int, warps: int,
) -> Tile | str:  # fmt: skip
    """A tile, or why it is none."""
    shared = attention_shared_bytes(block_m, block_n, depth, itemsize, stages, unit)
    accumulators = block_m * (depth + block_n) // (warps * warp_size(unit))
    if reason := _refusal(unit, shared, accumulators, depth, block_m // warps):
        return reason
    return Tile(
        block_m=block_m,
        block_n=block_n,
        block_k=depth,
        num_stages=stages,
        num_warps=warps,
        shared_bytes=shared,
        accumulator_registers=0 if tensor_memory(unit) else accumulators,
        traffic_bytes=traffic,
        waves=grid,
    )


def _refusal(unit: Limits, shared: int, accumulators: int, depth: int, rows: int) -> str:
    """Why a candidate is none; "" if it is one."""
    most = MOST_ACCUMULATORS_WIDE if depth >= _WIDE_HEAD else MOST_ACCUMULATORS
    if shared > most_shared(unit):
        return "shared memory"
    if accumulators > most and not tensor_memory(unit):
        return "accumulator registers"
    if rows < 16:  # of a matrix instruction
        return "a warp without rows"
    return ""


def _ranked(tiles: list[Tile]) -> list[Tile]:
    """Best first, of every block shape its deepest pipeline that fits."""
    deepest: dict[tuple[int, int, int], Tile] = {}
    for tile in tiles:
        key = (tile.block_m, tile.block_n, tile.num_warps)
        if key not in deepest or tile.num_stages > deepest[key].num_stages:
            deepest[key] = tile

    def cost(tile: Tile) -> tuple[float, int, int]:
        # of equals the longest step, then more room for accumulators
        moved = tile.traffic_bytes / tile.waves.efficiency
        return (moved, -tile.block_n, tile.accumulator_registers)

    return sorted(deepest.values(), key=cost)
