"""The table of tiles of packed sequences, written on the device: nothing waits for their lengths.

It holds what ``forward_schedule`` and ``backward_schedule`` make on the host where all sequences
are alike: tiles of a few heads whose operands stay in the L2 cache together, the long ones first.
One kernel puts the sequences in order, those with the most on the other side first; one sorts the
tiles of a part of that order and deals them out, from the first block to the last and back, so that
every block has as much to do. Rows after the last sequence are one more, which sees nothing.

A record is 8 numbers: ``head << 16 | first row / 64``, the sequence's first query, its queries,
first key, keys and first block of 64 queries in the vectors of rows, and two spare ones. A record
of zeros is a tile of a sequence without rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from rooftile.ops._launch import launch, sm_count
from rooftile.plan.launch_hopper import Band
from rooftile.plan.launch_packed import SORTED, most_tiles, sorted_rounds, table_rounds

_RECORD = 8
_SEQUENCES = 32  # that one program puts in order
_ROWS = 64  # of a block of the vectors of rows
_FOUND = 256  # such blocks that one program finds


@triton.jit
def _spans(cu_q_ptr, cu_k_ptr, b, batch, tokens_q, tokens_k, OF_KEYS: tl.constexpr):
    """First query, queries, first key and keys of sequences; what follows the last is one more."""
    inside = b < batch
    q_start = tl.load(cu_q_ptr + b, mask=b <= batch, other=0)
    k_start = tl.load(cu_k_ptr + b, mask=b <= batch, other=0)
    q_end = tl.load(cu_q_ptr + b + 1, mask=inside, other=0)
    k_end = tl.load(cu_k_ptr + b + 1, mask=inside, other=0)
    last = b == batch
    # the rows that are there, and none of the other side
    q_len = tl.where(inside, q_end - q_start, tl.where(last, tokens_q - q_start, 0))
    k_len = tl.where(inside, k_end - k_start, tl.where(last, tokens_k - k_start, 0))
    if OF_KEYS:
        q_len = tl.where(last, 0, q_len)
    else:
        k_len = tl.where(last, 0, k_len)
    return q_start, q_len, k_start, k_len


@triton.jit
def order_sequences_kernel(
    cu_q_ptr,  # (batch + 1,) int32
    cu_k_ptr,  # likewise
    out_ptr,  # (batch + 1, 8) int32: tiles before a sequence, and its part of a record
    batch, heads, tokens_q, tokens_k,
    ROWS: tl.constexpr, OF_KEYS: tl.constexpr, MINE: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    """Sequences by length of the other side, the longest first; each counts those before it."""
    mine = tl.program_id(0) * MINE + tl.arange(0, MINE)
    q_start, q_len, k_start, k_len = _spans(
        cu_q_ptr, cu_k_ptr, mine, batch, tokens_q, tokens_k, OF_KEYS
    )
    other_side = q_len if OF_KEYS else k_len
    rank = tl.zeros([MINE], tl.int32)
    before = tl.zeros([MINE], tl.int32)
    for start in range(0, batch + 1, OTHERS):
        b = start + tl.arange(0, OTHERS)
        _, b_q_len, _, b_k_len = _spans(cu_q_ptr, cu_k_ptr, b, batch, tokens_q, tokens_k, OF_KEYS)
        length = (b_q_len if OF_KEYS else b_k_len)[None, :]
        tiles = tl.cdiv(b_k_len if OF_KEYS else b_q_len, ROWS)[None, :]
        ahead = (length > other_side[:, None]) | (
            (length == other_side[:, None]) & (b[None, :] < mine[:, None])
        )
        ahead = ahead & (b <= batch)[None, :]
        rank += tl.sum(ahead.to(tl.int32), 1)
        before += tl.sum(tl.where(ahead, tiles, 0), 1)
    at = out_ptr + rank * 8
    inside = mine <= batch
    tl.store(at, before * heads, mask=inside)
    tl.store(at + 1, q_start, mask=inside)
    tl.store(at + 2, q_len, mask=inside)
    tl.store(at + 3, k_start, mask=inside)
    tl.store(at + 4, k_len, mask=inside)
    tl.store(at + 5, q_start // 64 + mine, mask=inside)


@triton.jit
def _find(seq_ptr, tile, n_sequences, steps, ROWS: tl.constexpr, OF_KEYS: tl.constexpr):
    """Sequence, head and first row or key of tiles: the last that starts at a tile or before."""
    low = tile * 0
    high = low + n_sequences
    for _ in range(steps):
        middle = (low + high) // 2
        up = tl.load(seq_ptr + middle * 8) <= tile
        low = tl.where(up, middle, low)
        high = tl.where(up, high, middle)
    at = seq_ptr + low * 8
    q_len = tl.load(at + 2)
    k_len = tl.load(at + 4)
    count = tl.maximum(tl.cdiv(k_len if OF_KEYS else q_len, ROWS), 1)
    inside = tile - tl.load(at)
    head = inside // count
    return at, head, (inside - head * count) * ROWS, q_len, k_len


@triton.jit
def _steps_of(
    row, q_len, k_len, left, right, ROWS: tl.constexpr, STEP: tl.constexpr, OF_KEYS: tl.constexpr,
    RIGHT: tl.constexpr, LEFT: tl.constexpr, BOTTOM: tl.constexpr,
):  # fmt: skip
    """Blocks of the other side that tiles see."""
    if BOTTOM:
        left = left - (k_len - q_len)
        right = right + (k_len - q_len)
    first = row * 0
    end = q_len if OF_KEYS else k_len
    if OF_KEYS:
        if RIGHT:
            first = tl.maximum(row - right, 0)
        if LEFT:
            end = tl.minimum(end, row + ROWS + left)
    else:
        if RIGHT:
            end = tl.minimum(end, row + ROWS + right)
        if LEFT:
            first = tl.maximum(row - left, 0)
    return tl.maximum(tl.cdiv(tl.maximum(end, 0), STEP) - first // STEP, 0)


@triton.jit
def _dealt(place, BLOCKS: tl.constexpr, DEAL: tl.constexpr):
    """Where the record of a place in the order lies: every other round goes from the last block."""
    if DEAL:
        turn = place // BLOCKS
        block = place - turn * BLOCKS
        place = turn * BLOCKS + tl.where(turn % 2 == 1, BLOCKS - 1 - block, block)
    return place


@triton.jit
def deal_tiles_kernel(
    seq_ptr,  # (n_sequences, 8) int32, of ``order_sequences_kernel``
    table_ptr,  # (rounds * BLOCKS, 8) int32: records; those of a block lie BLOCKS apart
    count_ptr,  # (BLOCKS,) int32: tiles of every block, one at least
    n_sequences, steps, heads, rounds, left, right,
    BLOCKS: tl.constexpr,  # at a time
    TURNS: tl.constexpr,  # rounds that are sorted together, at least
    SIZE: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, OF_KEYS: tl.constexpr,
    RIGHT: tl.constexpr, LEFT: tl.constexpr, BOTTOM: tl.constexpr, SORT: tl.constexpr,
    DEAL: tl.constexpr,
):  # fmt: skip
    """One part of the order, and a part of the records that are left over."""
    part = tl.program_id(0)
    last = seq_ptr + (n_sequences - 1) * 8
    own = tl.load(last + 4) if OF_KEYS else tl.load(last + 2)
    total = tl.load(last) + tl.cdiv(own, ROWS) * heads
    total = tl.minimum(total, rounds * BLOCKS)
    turns = tl.cdiv(total, BLOCKS)
    parts = tl.maximum(turns // TURNS, 1)
    i = tl.arange(0, SIZE)
    if part < parts:
        start = turns * part // parts * BLOCKS
        end = tl.minimum(turns * (part + 1) // parts * BLOCKS, total)
        inside = start + i < end
        tile = tl.minimum(start + i, tl.maximum(end - 1, 0))
        if SORT:
            _, _, row, q_len, k_len = _find(seq_ptr, tile, n_sequences, steps, ROWS, OF_KEYS)
            work = _steps_of(
                row, q_len, k_len, left, right, ROWS, STEP, OF_KEYS, RIGHT, LEFT, BOTTOM
            )
            key = tl.where(inside, (work + 1) * SIZE + (SIZE - 1 - i), 0)
            key = tl.sort(key, descending=True)
            tile = tl.where(inside, start + (SIZE - 1 - key % SIZE), tile)
        at, head, row, _, _ = _find(seq_ptr, tile, n_sequences, steps, ROWS, OF_KEYS)
        to = table_ptr + _dealt(start + i, BLOCKS, DEAL) * 8
        tl.store(to, head << 16 | row // 64, mask=inside)
        for field in tl.static_range(1, 6):
            tl.store(to + field, tl.load(at + field), mask=inside)
    programs = tl.num_programs(0)
    empty = rounds * part // programs * BLOCKS + i
    over = (empty < rounds * (part + 1) // programs * BLOCKS) & (empty >= total)
    to = table_ptr + _dealt(empty, BLOCKS, DEAL) * 8
    for field in tl.static_range(0, 6):
        tl.store(to + field, i * 0, mask=over)
    if part == 0:
        block = _dealt(turns * 0 + i, BLOCKS, False)
        whole = total // BLOCKS
        rest = total - whole * BLOCKS
        more = block < rest
        if DEAL:
            more = tl.where(whole % 2 == 1, BLOCKS - 1 - block, block) < rest
        tl.store(count_ptr + i, tl.maximum(whole + more.to(tl.int32), 1), mask=i < BLOCKS)


@triton.jit
def row_blocks_kernel(
    cu_ptr,  # (batch + 1,) int32
    out_ptr,  # (blocks, 2) int32: first row and number of rows of a block of 64
    batch, tokens, blocks, steps,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Blocks of 64 rows that no sequence shares: sequence b starts at block cu[b] // 64 + b."""
    block = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    low = block * 0
    high = low + batch + 1
    for _ in range(steps):
        middle = (low + high) // 2
        up = tl.load(cu_ptr + middle) // 64 + middle <= block
        low = tl.where(up, middle, low)
        high = tl.where(up, high, middle)
    start = tl.load(cu_ptr + low)
    end = tl.load(cu_ptr + low + 1, mask=low < batch, other=0)
    end = tl.where(low < batch, end, tokens)
    row = start + (block - (start // 64 + low)) * 64
    tl.store(out_ptr + block * 2, row, mask=block < blocks)
    count = tl.maximum(tl.minimum(end - row, 64), 0)
    tl.store(out_ptr + block * 2 + 1, count, mask=block < blocks)


@dataclass(frozen=True, slots=True)
class Packing:
    """Where sequences lie in packed operands (1, H, T, D).

    Attributes:
        cu_q: (batch + 1,) int32: where queries of each sequence start, and the last one's end.
        cu_k: Likewise of keys.
        bottom: The band counts from where a sequence's last query stands at its last key, which is
            not where the first stands at the first.
    """

    cu_q: Tensor
    cu_k: Tensor
    bottom: bool = False

    @property
    def batch(self) -> int:
        """Sequences."""
        return self.cu_q.numel() - 1

    @property
    def apart(self) -> int:
        """Numbers from a block's record to its next."""
        return _RECORD * sm_count(self.cu_q.device)

    def row_blocks(self, tokens: int) -> int:
        """Blocks of 64 queries in the vectors of rows, where no two sequences share one."""
        return tokens // _ROWS + self.batch + 1


@dataclass(frozen=True, slots=True)
class Tiling:
    """What a kernel's tiles are.

    Attributes:
        rows: Queries or keys of a tile.
        step: Keys or queries of a block of the other side.
        heads: Of that side of the tiles.
        group: Query heads that share a key head.
        width: Columns of a tile.
        band: The mask.
        of_keys: Whether tiles are of keys.
        dealt: Whether blocks take tile after tile; else each takes one, in the order of the grid.
    """

    rows: int
    step: int
    heads: int
    group: int
    width: int
    band: Band
    of_keys: bool = False
    dealt: bool = True


def packed_tiles(
    packing: Packing, tiling: Tiling, n_queries: int, n_keys: int
) -> tuple[Tensor, Tensor]:
    """Records of all tiles, (tiles, 8), and how many each block has; both on the device.

    A block's records lie a multiprocessor's number apart. Where blocks take one tile each, every
    record is a tile, empty ones included.
    """
    device, batch, band = packing.cu_q.device, packing.batch, tiling.band
    blocks = sm_count(device)
    own = n_keys if tiling.of_keys else n_queries
    rounds = table_rounds(most_tiles(own, batch, tiling.rows, tiling.heads), blocks)
    turns = sorted_rounds(tiling.rows, tiling.width, tiling.group, blocks, tiling.of_keys)
    sequences = torch.empty(batch + 1, _RECORD, dtype=torch.int32, device=device)
    table = torch.empty(rounds * blocks, _RECORD, dtype=torch.int32, device=device)
    count = torch.empty(blocks, dtype=torch.int32, device=device)
    launch(
        order_sequences_kernel, (-(-(batch + 1) // _SEQUENCES),), device,
        packing.cu_q, packing.cu_k, sequences, batch, tiling.heads, n_queries, n_keys,
        ROWS=tiling.rows, OF_KEYS=tiling.of_keys, MINE=_SEQUENCES, OTHERS=_SEQUENCES, num_warps=4,
    )  # fmt: skip
    bounded = band != Band()
    # under a window a tile of keys stays beside the next, whose queries it shares
    sort = bounded and not (tiling.of_keys and band.left is not None)
    launch(
        deal_tiles_kernel, (max(1, rounds // turns),), device,
        sequences, table, count, batch + 1, batch.bit_length(), tiling.heads, rounds,
        band.left or 0, band.right or 0,
        BLOCKS=blocks, TURNS=turns, SIZE=SORTED, ROWS=tiling.rows, STEP=tiling.step,
        OF_KEYS=tiling.of_keys, RIGHT=band.right is not None, LEFT=band.left is not None,
        BOTTOM=packing.bottom and bounded, SORT=sort, DEAL=tiling.dealt, num_warps=8,
    )  # fmt: skip
    return table, count


def row_blocks(packing: Packing, n_queries: int) -> Tensor:
    """First row and number of rows of every block of the vectors of rows."""
    device, blocks = packing.cu_q.device, packing.row_blocks(n_queries)
    found = torch.empty(blocks, 2, dtype=torch.int32, device=device)
    launch(
        row_blocks_kernel, (-(-blocks // _FOUND),), device,
        packing.cu_q, found, packing.batch, n_queries, blocks, packing.batch.bit_length(),
        SIZE=_FOUND, num_warps=4,
    )  # fmt: skip
    return found
