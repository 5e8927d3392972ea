"""What the Hopper attention kernels do differently where sequences are packed.

A tile's record in the table says its head and first row, and where its sequence lies: no kernel
looks a sequence up. Tiles are read and written through descriptors of five dimensions that end
where the sequence ends, whichever it is: rows past it read as 0 and are not written.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops.flash.hopper_band import tile_place
from rooftile.ops.flash.hopper_tma import FAR, tma_load, tma_store

_FAR = gl.constexpr(FAR)
RECORD = gl.constexpr(8)  # numbers of a record


@gluon.jit
def load_rows(desc, b, h, row, col, start, length, barrier, slot, PACKED: gl.constexpr):
    """Load a tile of a head; of packed sequences, from the rows [start, start + length)."""
    if PACKED:
        tma_load(desc, [_FAR, start + length, h, _FAR - length + row, col], barrier, slot)
    else:
        tma_load(desc, [b, h, row, col], barrier, slot)


@gluon.jit
def store_rows(desc, b, h, row, col, start, length, slot, PACKED: gl.constexpr):
    """Store a tile of a head, likewise."""
    if PACKED:
        tma_store(desc, [_FAR, start + length, h, _FAR - length + row, col], slot)
    else:
        tma_store(desc, [b, h, row, col], slot)


@gluon.jit
def tile_of(sched, code, n_heads, n_queries, n_keys, left, right, PACKED: gl.constexpr,
            BOTTOM: gl.constexpr):  # fmt: skip
    """A tile's place, its sequence and its band.

    sched: its record, if packed; code: the place, else. Returns batch, head, first row or key; the
    sequence's first query, its queries, first key, keys; left and right. BOTTOM: the band's bounds
    count from where the last query stands at the last key.
    """
    if PACKED:
        code = gl.load(sched)
        b = code * 0
        h = code >> 16
        row = (code & 0xFFFF) * 64
        q_start = gl.load(sched + 1)
        n_queries = gl.load(sched + 2)
        k_start = gl.load(sched + 3)
        n_keys = gl.load(sched + 4)
        if BOTTOM:
            left = left - (n_keys - n_queries)
            right = right + (n_keys - n_queries)
    else:
        b, h, row = tile_place(code, n_heads)
        q_start = row * 0
        k_start = row * 0
    return b, h, row, q_start, n_queries, k_start, n_keys, left, right


@gluon.jit
def first_block(sched):
    """Of a tile's sequence, the first block of 64 queries in the vectors of rows."""
    return gl.load(sched + 5)
