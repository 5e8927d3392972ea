"""Launch parameters and tile schedules of the attention kernels for Hopper.

A persistent block of threads runs on every SM and takes its tiles from a table made here. Tiles go,
one after the other, to the least loaded block; where a mask makes them unequal, the long ones come
first, inside a group of heads whose keys and values stay in the L2 cache together.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from rooftile.errors import InputError

# Of 50 MB of L2: K and V of a group of heads (30 MB and more measured slower); Q, dO and sums of dQ
_KV_BYTES = 15e6
_Q_BYTES = 30e6
WIDTHS = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class FlashForward:
    """How the forward kernel is launched.

    Attributes:
        width: Columns of a tile: the head dimension, rounded up.
        groups: Consumer warpgroups, of ``block_m`` query rows each.
        block_m: Query rows of one warpgroup.
        block_n: Keys of one step.
        stages: Buffers of keys and of values.
        q_registers: Columns of Q that a warpgroup keeps in registers; the others stay in shared
            memory, twice.
        consumer_registers: Registers of a consumer thread.
        producer_registers: Registers of a producer thread.
        poly: One exponential in ``poly`` is a polynomial instead of the special-function unit's; 0
            for none.
    """

    width: int
    groups: int
    block_m: int
    block_n: int
    stages: int
    q_registers: int
    consumer_registers: int
    producer_registers: int
    poly: int = 0

    @property
    def rows(self) -> int:
        """Query rows of a tile."""
        return self.groups * self.block_m


_FORWARD = {
    64: FlashForward(64, 3, 64, 128, 2, 0, 160, 32),
    128: FlashForward(128, 2, 64, 128, 2, 128, 240, 24),
    256: FlashForward(256, 2, 64, 64, 2, 128, 240, 24),
}
# A tile of 192 queries under a mask multiplies much that few of them see, where there are few keys:
# causal, 64 columns on an H200, 273 TFLOP/s for 210 at 512 keys, 371 for 305 at 1,024
_SHORT_KEYS = 640
_SHORT = {64: FlashForward(64, 2, 64, 128, 3, 64, 240, 24)}


@dataclass(frozen=True, slots=True)
class Band:
    """Which keys a query sees: ``q - left <= k <= q + right``; None is no bound."""

    left: int | None = None
    right: int | None = None

    def keys(self, row: int, rows: int, n_keys: int) -> tuple[int, int]:
        """First key and end of the keys that any of some query rows sees."""
        end = n_keys if self.right is None else min(n_keys, row + rows + self.right)
        first = 0 if self.left is None else max(0, row - self.left)
        return first, max(first, end)

    def seen(self, n_queries: int, n_keys: int) -> int:
        """Keys that a query in the middle sees."""
        first, end = self.keys(n_queries // 2, 1, n_keys)
        return end - first

    def queries(self, key: int, keys: int, n_queries: int) -> tuple[int, int]:
        """First query and end of the queries that see any of some keys."""
        first = 0 if self.right is None else max(0, key - self.right)
        end = n_queries if self.left is None else min(n_queries, key + keys + self.left)
        return first, max(first, end)


def width_of(head_dim: int) -> int:
    """Columns of the tile that holds a head dimension.

    Raises:
        InputError: It is above 256.
    """
    for width in WIDTHS:
        if head_dim <= width:
            return width
    raise InputError(f"head_dim must be at most {WIDTHS[-1]}, got {head_dim}")


def flash_forward(head_dim: int, keys: float = float("inf")) -> FlashForward:
    """Launch parameters of the forward for a head dimension.

    Args:
        head_dim: Of the wider operand.
        keys: That a query sees, about.
    """
    width = width_of(head_dim)
    if keys <= _SHORT_KEYS and width in _SHORT:
        return _SHORT[width]
    return _FORWARD[width]


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
    fit = max(1, int(_KV_BYTES // (4 * n_keys * plan.width))) * group
    return _greedy(_in_order(tiles, heads, fit), heads * len(tiles), n_blocks)


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


@dataclass(frozen=True, slots=True)
class FlashBackward:
    """How the backward kernel is launched.

    Attributes:
        width: Columns of a tile: the head dimension, rounded up.
        block_m: Query rows of one step.
        block_n: Keys of one main warpgroup, of which there are two.
        stages: Buffers of Q and of dO.
        ds_stages: Buffers of dS.
        k_stages: Buffers of K.
        v_stages: Buffers of V.
        parts: Pieces of columns in which dQ is made.
        main_registers: Registers of a main thread.
        dq_registers: Registers of a thread of the warpgroup of dQ.
        producer_registers: Registers of a producer thread.
        p_16bit: Keep P as the 16-bit operand alone.
        kv_in_registers: Keep K and V as operands in registers.
        branch: Keep the mask's branch in every case.
        persistent: One block a SM takes tile after tile; else one block a tile.
        skips: Under a causal mask, skip a step of one warpgroup that sees none of its queries.
    """

    width: int
    block_m: int
    block_n: int
    stages: int
    ds_stages: int
    k_stages: int
    v_stages: int
    parts: int
    main_registers: int
    dq_registers: int
    producer_registers: int
    p_16bit: bool
    kv_in_registers: bool
    branch: bool
    persistent: bool = True
    skips: bool = False

    @property
    def keys(self) -> int:
        """Keys of a tile."""
        return 2 * self.block_n


@dataclass(frozen=True, slots=True)
class FlashBackwardWide:
    """How the two backward kernels above 128 columns are launched.

    Attributes:
        width: Columns of a tile.
        block: Query rows and keys of one warpgroup and of one step.
        stages: Buffers of Q and of dO, for dK and dV.
        slots: Buffers of keys and values, for dQ.
        main_registers: Registers of a thread that computes.
        producer_registers: Registers of a producer thread.
    """

    width: int
    block: int
    stages: int
    slots: int
    main_registers: int
    producer_registers: int


BACKWARD_WIDE = FlashBackwardWide(256, 64, 2, 3, 240, 24)
_BACKWARD = {
    64: FlashBackward(64, 64, 64, 2, 2, 2, 2, 1, 208, 72, 24, False, True, False, True, True),
    128: FlashBackward(128, 64, 64, 2, 2, 2, 1, 2, 208, 72, 24, True, False, True),
}
# With as many steps in a tile, the registers for the next one cost more than the time between
_LONG_STEPS = 32
_LONG = {128: FlashBackward(128, 64, 64, 2, 2, 1, 1, 2, 208, 72, 24, True, False, True, False)}
# dK and dV alone
_APART = {
    # not with K and V in registers: ptxas 12.8 gives K's to dP inside the loop
    64: FlashBackward(64, 64, 64, 2, 1, 1, 1, 1, 240, 0, 24, False, False, False, False),
    128: FlashBackward(128, 64, 64, 2, 1, 1, 1, 1, 240, 0, 24, True, False, True, False),
}


def sums_queries(head_dim: int, deterministic: bool) -> bool:
    """Whether one backward kernel makes all three gradients, dQ as sums in no fixed order."""
    return width_of(head_dim) in _BACKWARD and not deterministic


def backward_apart(head_dim: int) -> tuple[FlashBackward | FlashBackwardWide, FlashBackwardWide]:
    """Launch parameters where dQ has a kernel of its own: of dK and dV, and of dQ."""
    width = width_of(head_dim)
    return _APART.get(width, BACKWARD_WIDE), replace(BACKWARD_WIDE, width=width)


def flash_backward(head_dim: int, steps: float = 0) -> FlashBackward:
    """Launch parameters of the backward for a head dimension.

    Args:
        head_dim: Of the wider operand.
        steps: Blocks of queries that a tile of keys sees, about.

    Raises:
        InputError: ``head_dim`` is above 128.
    """
    width = width_of(head_dim)
    if width not in _BACKWARD:
        raise InputError(f"head_dim must be at most 128 for this backward, got {head_dim}")
    if steps >= _LONG_STEPS and width in _LONG:
        return _LONG[width]
    return _BACKWARD[width]


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
    fit = max(1, int(_Q_BYTES // (8 * n_queries * plan.width)))  # 2, 2 and 4 bytes
    ordered = band.left is not None
    return _greedy(_in_order(tiles, heads, fit, ordered), heads * len(tiles), n_blocks)
