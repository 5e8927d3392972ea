"""Which blocks of keys and queries see each other under a band, and what to mask of a tile.

Query q sees key k where ``q - left <= k <= q + right``; LEFT and RIGHT say which bounds there are.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

_NEG_INF = gl.constexpr(-float("inf"))


@gluon.jit
def key_blocks(row, n_rows, n_keys, left, right, BLOCK_N: gl.constexpr, RIGHT: gl.constexpr,
            LEFT: gl.constexpr, EMPTY: gl.constexpr = False):  # fmt: skip
    """First key block and end of those that rows [row, row + n_rows) see; at least one block.

    EMPTY: there may be no key.
    """
    end = gl.cdiv(n_keys, BLOCK_N)
    if EMPTY:
        end = gl.maximum(end, 1)
    if RIGHT:
        end = gl.minimum(end, gl.maximum(row + n_rows + right + BLOCK_N - 1, BLOCK_N) // BLOCK_N)
    first = row * 0
    if LEFT:
        first = gl.minimum(gl.maximum(row - left, 0) // BLOCK_N, end - 1)
    return first, end


@gluon.jit
def key_span(tile_row, cid: gl.constexpr, n_keys, left, right, BLOCK_M: gl.constexpr,
          BLOCK_N: gl.constexpr, GROUPS: gl.constexpr, RIGHT: gl.constexpr, LEFT: gl.constexpr,
          SKIPS: gl.constexpr, EMPTY: gl.constexpr = False):  # fmt: skip
    """Key blocks of a warpgroup, and how many of the tile's last ones lie wholly above its rows."""
    first, tile_end = key_blocks(
        tile_row, GROUPS * BLOCK_M, n_keys, left, right, BLOCK_N, RIGHT, LEFT, EMPTY
    )
    end = tile_end
    if SKIPS:
        _, end = key_blocks(tile_row + cid * BLOCK_M, BLOCK_M, n_keys, left, right, BLOCK_N, RIGHT,
                         False, EMPTY)  # fmt: skip
    return first, end, tile_end - end


@gluon.jit
def mask_scores(
    s, row, col, n_keys, left, right, rows, cols, TAIL: gl.constexpr, RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
):  # fmt: skip
    """-inf where a query sees no key; row and col: the tile's first ones."""
    last = rows * 0 + (n_keys - 1 - col)
    if RIGHT and TAIL:
        last = gl.minimum(last, rows + (row + right - col))
    elif RIGHT:
        last = rows + (row + right - col)
    seen = gl.expand_dims(cols, 0) <= gl.expand_dims(last, 1)
    if LEFT:
        seen = seen & (gl.expand_dims(cols, 0) >= gl.expand_dims(rows + (row - left - col), 1))
    return gl.where(seen, s, _NEG_INF)


@gluon.jit
def query_blocks(key, n_queries, left, right, BLOCK_M: gl.constexpr, KEYS: gl.constexpr,
             RIGHT: gl.constexpr, LEFT: gl.constexpr):  # fmt: skip
    """First query block and number of those that see any of the keys [key, key + KEYS)."""
    first = key * 0
    end = n_queries
    if RIGHT:
        first = gl.maximum(key - right, 0) // BLOCK_M
    if LEFT:
        end = gl.minimum(end, gl.maximum(key + KEYS + left, 0))
    return first, gl.maximum(gl.cdiv(end, BLOCK_M) - first, 0)


@gluon.jit
def mask_weights(
    p, key, row, n_keys, left, right, rows, cols, TAIL: gl.constexpr, RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
):  # fmt: skip
    """0 where a query (column) does not see a key (row); key and row: the tile's first ones."""
    first = rows * 0
    if RIGHT:
        first = rows + (key - right - row)
    if TAIL:
        first = gl.where(rows < n_keys - key, first, 1 << 30)
    seen = gl.expand_dims(cols, 0) >= gl.expand_dims(first, 1)
    if LEFT:
        seen = seen & (gl.expand_dims(cols, 0) <= gl.expand_dims(rows + (key + left - row), 1))
    return gl.where(seen, p, 0.0)


@gluon.jit
def tile_place(code, n_heads):
    """Batch, head and first row or key of a tile."""
    bh = code >> 16
    b = bh // n_heads
    return b, bh - b * n_heads, (code & 0xFFFF) * 64
