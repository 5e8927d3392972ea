"""Tile schedules of the attention kernels for Hopper.

A persistent block of threads runs on every SM and takes its tiles from a table made here. Tiles go,
one after the other, to the least loaded block; where a mask makes them unequal, the long ones come
first, inside a group of heads whose keys and values stay in the L2 cache together.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import lru_cache

from rooftile.plan.launch_hopper import Band, FlashBackward, FlashForward

# Of 50 MB of L2: K and V of a group of heads (30 MB and more measured slower); Q, dO and sums of dQ
KV_BYTES = 15e6
Q_BYTES = 30e6


@lru_cache(maxsize=128)
def forward_schedule(
    plan: FlashForward,
    heads: int,
    group: int,
    n_queries: int,
    n_keys: int,
    band: Band,
    n_blocks: int,
) -> tuple[tuple[int, ...], ...]:
    """Tiles of every persistent block.

    Args:
        plan: Launch parameters.
        heads: Query heads times batch.
        group: Query heads that share a key head.
        n_queries: Query rows.
        n_keys: Keys.
        band: The mask.
        n_blocks: Blocks at a time: SMs.

    Returns:
        A list of tiles for each block, ``head << 16 | first row / 64``.
    """
    starts = range(0, n_queries, plan.rows)
    cost = []
    for row in starts:
        first, end = band.keys(row, plan.rows, n_keys)
        cost.append(max(1, -(-end // plan.block_n) - first // plan.block_n) + 1.0)
    tiles = [(c, row // 64) for c, row in zip(cost, starts, strict=True)]
    fit = max(1, int(KV_BYTES // (4 * n_keys * plan.width))) * group
    return _greedy(_in_order(tiles, heads, fit), heads * len(tiles), n_blocks)


@lru_cache(maxsize=128)
def backward_schedule(
    plan: FlashBackward,
    heads: int,
    n_queries: int,
    n_keys: int,
    band: Band,
    n_blocks: int,
) -> tuple[tuple[int, ...], ...]:
    """Tiles of every persistent block of the backward: as ``forward_schedule``, tiles of keys.

    Groups of heads are small, so that their sums of dQ stay in L2 too: with Q and dO alone counted,
    a causal backward of 512 keys took 1.16 times as long.
    """
    starts = range(0, n_keys, plan.keys)
    tiles = []
    for key in starts:
        first, end = band.queries(key, plan.keys, n_queries)
        steps = max(0, -(-end // plan.block_m) - first // plan.block_m)
        tiles.append((steps + 2.0, key // 64))
    fit = max(1, int(Q_BYTES // (8 * n_queries * plan.width)))  # 2, 2 and 4 bytes
    ordered = band.left is not None
    return _greedy(_in_order(tiles, heads, fit, ordered), heads * len(tiles), n_blocks)


def _in_order(
    tiles: list[tuple[float, int]], heads: int, fit: int, ordered: bool = False
) -> Iterator[tuple[float, int]]:
    """Tiles of all heads, in groups of nearly as many heads as fit, long tiles first.

    The groups are about equal: a small last one would hand out long tiles when nothing is left to
    balance them. Where all tiles are alike, a group is one head. ``ordered`` keeps their order.
    """
    alike = len({cost for cost, _ in tiles}) == 1
    groups = heads if alike else max(1, heads // fit)
    longest = tiles if ordered else sorted(tiles, key=lambda tile: -tile[0])
    for g in range(groups):
        for cost, start in longest:
            for head in range(heads * g // groups, heads * (g + 1) // groups):
                yield cost, head << 16 | start


def _greedy(
    tiles: Iterator[tuple[float, int]], n_tiles: int, n_blocks: int
) -> tuple[tuple[int, ...], ...]:
    """Each tile to the block with the least work so far."""
    lists: list[list[int]] = [[] for _ in range(min(n_blocks, n_tiles))]
    loads = [(0.0, block) for block in range(len(lists))]
    for cost, code in tiles:
        load, block = loads[0]
        lists[block].append(code)
        heapq.heapreplace(loads, (load + cost, block))
    return tuple(map(tuple, lists))
