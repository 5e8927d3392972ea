"""The table of tiles of packed sequences, written on the device: nothing waits for their lengths.

It holds what ``forward_schedule`` and ``backward_schedule`` make on the host where all sequences
are alike: tiles of a few heads whose operands stay in the L2 cache together, the long ones first.
Sequences are put in order, those with the most on the other side first; tiles of a part of that
order are sorted, which each does by counting those before it, and dealt out, from the first block
to the last and back, so that every block has as much to do. Rows after the last sequence are one
more, which sees nothing.

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
from rooftile.plan.launch import power_of_two
from rooftile.plan.launch_hopper import Band
from rooftile.plan.launch_packed import most_tiles, sorted_rounds, table_rounds

_RECORD = 8
_FEW = 64  # sequences, at most, that every program of the table's kernel puts in order by itself
_SIZE = 64  # sequences or tiles of a program
_OTHERS = 128  # tiles that they are compared with at a time
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
def _order(own, other, heads, ROWS: tl.constexpr):
    """Tiles of sequences, and those of the sequences before each: longer on the other side."""
    i = tl.arange(0, own.shape[0])
    tiles = tl.cdiv(own, ROWS) * heads
    ahead = other[:, None] > other[None, :]
    ahead = ahead | ((other[:, None] == other[None, :]) & (i[:, None] < i[None, :]))
    return tiles, tl.sum(tl.where(ahead, tiles[:, None], 0), 0)


@triton.jit
def order_sequences_kernel(
    cu_q_ptr,  # (batch + 1,) int32
    cu_k_ptr,  # likewise
    first_ptr,  # (batch + 1,) int32: tiles before a sequence
    out_ptr,  # (batch + 1, 8) int32: its part of a record
    batch, heads, tokens_q, tokens_k,
    ROWS: tl.constexpr, OF_KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Sequences in the order of ``_order``, where they are many; each counts those before it."""
    mine = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    q_start, q_len, k_start, k_len = _spans(
        cu_q_ptr, cu_k_ptr, mine, batch, tokens_q, tokens_k, OF_KEYS
    )
    other = q_len if OF_KEYS else k_len
    rank = tl.zeros([SIZE], tl.int32)
    before = tl.zeros([SIZE], tl.int32)
    for start in range(0, batch + 1, SIZE):
        b = start + tl.arange(0, SIZE)
        _, b_q_len, _, b_k_len = _spans(cu_q_ptr, cu_k_ptr, b, batch, tokens_q, tokens_k, OF_KEYS)
        length = (b_q_len if OF_KEYS else b_k_len)[None, :]
        tiles = tl.cdiv(b_k_len if OF_KEYS else b_q_len, ROWS)[None, :]
        ahead = (length == other[:, None]) & (b[None, :] < mine[:, None])
        ahead = (ahead | (length > other[:, None])) & (b <= batch)[None, :]
        rank += tl.sum(ahead.to(tl.int32), 1)
        before += tl.sum(tl.where(ahead, tiles, 0), 1)
    at = out_ptr + rank * 8
    inside = mine <= batch
    tl.store(first_ptr + rank, before * heads, mask=inside)
    tl.store(at + 1, q_start, mask=inside)
    tl.store(at + 2, q_len, mask=inside)
    tl.store(at + 3, k_start, mask=inside)
    tl.store(at + 4, k_len, mask=inside)
    tl.store(at + 5, q_start // 64 + mine, mask=inside)


@triton.jit
def _searched(first_ptr, seq_ptr, tile, n_sequences, steps):
    """Of many sequences those of tiles, the last that start at a tile or before; where they lie."""
    low = tile * 0
    high = low + n_sequences
    for _ in range(steps):
        middle = (low + high) // 2
        up = tl.load(first_ptr + middle) <= tile
        low = tl.where(up, middle, low)
        high = tl.where(up, high, middle)
    at = seq_ptr + low * 8
    return tile - tl.load(first_ptr + low), tl.load(at + 2), tl.load(at + 4), at


@triton.jit
def _picked(hit, x):
    """Of a few sequences what x says of those of tiles."""
    return tl.sum(tl.where(hit, x[None, :], 0), 1)


@triton.jit
def _head_and_row(inside, own, ROWS: tl.constexpr):
    """Head and first row or key of the tiles of a sequence, counted from its first one."""
    count = tl.maximum(tl.cdiv(own, ROWS), 1)
    head = inside // count
    return head, (inside - head * count) * ROWS


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
    cu_q_ptr,  # (batch + 1,) int32
    cu_k_ptr,  # likewise
    first_ptr,  # of ``order_sequences_kernel``, as is the next; not read where sequences are FEW
    seq_ptr,
    table_ptr,  # (rounds * BLOCKS, 8) int32: records; those of a block lie BLOCKS apart
    count_ptr,  # (BLOCKS,) int32: tiles of every block, one at least
    batch, steps, heads, tokens_q, tokens_k, rounds, left, right,
    BLOCKS: tl.constexpr,  # at a time
    TURNS: tl.constexpr,  # rounds that are sorted together, at least
    FEW: tl.constexpr,  # sequences, at most; 0: many
    SIZE: tl.constexpr, OTHERS: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr, OF_KEYS: tl.constexpr, RIGHT: tl.constexpr,
    LEFT: tl.constexpr, BOTTOM: tl.constexpr, SORT: tl.constexpr, DEAL: tl.constexpr,
):  # fmt: skip
    """The records of SIZE tiles, or empty ones behind the last."""
    if FEW:
        q_starts, q_lens, k_starts, k_lens = _spans(
            cu_q_ptr, cu_k_ptr, tl.arange(0, FEW), batch, tokens_q, tokens_k, OF_KEYS
        )
        tiles, firsts = _order(
            k_lens if OF_KEYS else q_lens, q_lens if OF_KEYS else k_lens, heads, ROWS
        )
        total = tl.sum(tiles, 0)
    else:
        last = seq_ptr + batch * 8
        own = tl.load(last + 4) if OF_KEYS else tl.load(last + 2)
        total = tl.load(first_ptr + batch) + tl.cdiv(own, ROWS) * heads
    total = tl.minimum(total, rounds * BLOCKS)
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    used = place < total
    tile = tl.minimum(place, tl.maximum(total - 1, 0))
    if FEW:
        hit = (firsts[None, :] <= tile[:, None]) & (tile[:, None] < (firsts + tiles)[None, :])
        inside = tile - _picked(hit, firsts)
        q_len, k_len = _picked(hit, q_lens), _picked(hit, k_lens)
        q_start, k_start = _picked(hit, q_starts), _picked(hit, k_starts)
        line = q_start // 64 + _picked(hit, tl.arange(0, FEW))
    else:
        inside, q_len, k_len, at = _searched(first_ptr, seq_ptr, tile, batch + 1, steps)
        q_start, k_start, line = tl.load(at + 1), tl.load(at + 3), tl.load(at + 5)
    head, row = _head_and_row(inside, k_len if OF_KEYS else q_len, ROWS)
    if SORT:
        work = _steps_of(row, q_len, k_len, left, right, ROWS, STEP, OF_KEYS, RIGHT, LEFT, BOTTOM)
        turns = tl.maximum(tl.cdiv(total, BLOCKS), 1)
        parts = tl.maximum(turns // TURNS, 1)
        part = ((tile // BLOCKS + 1) * parts - 1) // turns
        start = turns * part // parts * BLOCKS
        end = tl.minimum(turns * (part + 1) // parts * BLOCKS, total)
        rank = start
        for o in range(tl.min(start, 0), tl.max(end, 0), OTHERS):
            # names of their own: here vectors have another length, which a loop may not change
            other = o + tl.arange(0, OTHERS)
            if FEW:
                is_of = firsts[None, :] <= other[:, None]
                is_of = is_of & (other[:, None] < (firsts + tiles)[None, :])
                within = other - _picked(is_of, firsts)
                q_other, k_other = _picked(is_of, q_lens), _picked(is_of, k_lens)
            else:
                within, q_other, k_other, _ = _searched(first_ptr, seq_ptr, other, batch + 1, steps)
            _, at_other = _head_and_row(within, k_other if OF_KEYS else q_other, ROWS)
            found = _steps_of(
                at_other, q_other, k_other, left, right, ROWS, STEP, OF_KEYS, RIGHT, LEFT, BOTTOM
            )
            ahead = (found[None, :] == work[:, None]) & (other[None, :] < tile[:, None])
            ahead = ahead | (found[None, :] > work[:, None])
            ahead = ahead & (other[None, :] >= start[:, None]) & (other[None, :] < end[:, None])
            rank += tl.sum(ahead.to(tl.int32), 1)
        place = tl.where(used, rank, place)
    to = table_ptr + _dealt(place, BLOCKS, DEAL) * 8
    there = place < rounds * BLOCKS
    tl.store(to, tl.where(used, head << 16 | row // 64, 0), mask=there)
    tl.store(to + 1, tl.where(used, q_start, 0), mask=there)
    tl.store(to + 2, tl.where(used, q_len, 0), mask=there)
    tl.store(to + 3, tl.where(used, k_start, 0), mask=there)
    tl.store(to + 4, tl.where(used, k_len, 0), mask=there)
    tl.store(to + 5, tl.where(used, line, 0), mask=there)
    if tl.program_id(0) == 0:
        block = tl.arange(0, WIDE)
        whole = total // BLOCKS
        rest = total - whole * BLOCKS
        more = block < rest
        if DEAL:
            more = tl.where(whole % 2 == 1, BLOCKS - 1 - block, block) < rest
        count = tl.maximum(whole + more.to(tl.int32), 1)
        tl.store(count_ptr + block, count, mask=block < BLOCKS)


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
    blocks, few = sm_count(device), 0
    own = n_keys if tiling.of_keys else n_queries
    rounds = table_rounds(most_tiles(own, batch, tiling.rows, tiling.heads), blocks, tiling.dealt)
    # one allocation: the table, how many, and what many sequences are put in order in
    size, many = rounds * blocks * _RECORD, batch + 1 > _FEW
    memory = torch.empty(size + blocks + many * (batch + 1) * (_RECORD + 1), dtype=torch.int32,
                         device=device)  # fmt: skip
    table, count, rest = memory[:size], memory[size : size + blocks], memory[size + blocks :]
    first, sequences = rest[: batch + 1], rest[batch + 1 :]
    if many:
        launch(
            order_sequences_kernel, (-(-(batch + 1) // _SIZE),), device,
            packing.cu_q, packing.cu_k, first, sequences, batch, tiling.heads, n_queries, n_keys,
            ROWS=tiling.rows, OF_KEYS=tiling.of_keys, SIZE=_SIZE, num_warps=4,
        )  # fmt: skip
    else:
        few = max(16, power_of_two(batch + 1))
    bounded = band != Band()
    # under a window a tile of keys stays beside the next, whose queries it shares
    sort = bounded and not (tiling.of_keys and band.left is not None)
    launch(
        deal_tiles_kernel, (-(-rounds * blocks // _SIZE),), device,
        packing.cu_q, packing.cu_k, first, sequences, table, count, batch, batch.bit_length(),
        tiling.heads, n_queries, n_keys, rounds, band.left or 0, band.right or 0,
        BLOCKS=blocks, FEW=few, SIZE=_SIZE, OTHERS=_OTHERS, WIDE=power_of_two(blocks),
        TURNS=sorted_rounds(
            tiling.rows, tiling.width, tiling.group, blocks, tiling.of_keys, tiling.dealt
        ),
        ROWS=tiling.rows, STEP=tiling.step, OF_KEYS=tiling.of_keys, RIGHT=band.right is not None,
        LEFT=band.left is not None, BOTTOM=packing.bottom and bounded, SORT=sort,
        DEAL=tiling.dealt, num_warps=4,
    )  # fmt: skip
    return table.view(-1, _RECORD), count


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
