"""Where a program's sequence, head and tile lie in memory."""

from __future__ import annotations

import triton
import triton.language as tl

# Arguments that differ from call to call: a kernel is not compiled anew for a 1 or a 16 among them.
LENGTHS = (
    "batches",
    "heads",
    "group",
    "longest_q",
    "longest_k",
    "tokens_q",
    "tokens_k",
    "window_left",
    "window_right",
    "dropped",
)


@triton.jit
def sequence(cu_ptr, lens_ptr, batch, longest):
    """First row and number of rows of a sequence: packed, with a length of its own, or neither."""
    first = batch * 0
    length = longest
    if cu_ptr is not None:
        first = tl.load(cu_ptr + batch).to(tl.int64)
        length = (tl.load(cu_ptr + batch + 1) - first).to(tl.int32)
    if lens_ptr is not None:
        length = tl.load(lens_ptr + batch).to(tl.int32)
    return first, length


@triton.jit
def tile_ptrs(ptr, rows, cols, start, stride_s, stride_d, WIDE: tl.constexpr):
    """Pointers to rows of a matrix, counted from start, and to its columns."""
    offs = rows.to(tl.int64) if WIDE else rows
    return (
        ptr
        + tl.cast(start, tl.int64) * stride_s
        + offs[:, None] * stride_s
        + cols[None, :] * stride_d
    )


@triton.jit
def load_tile(
    ptr, start, end, stride_s, stride_d,
    ROWS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    MASKED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Rows [start, start + ROWS) of a matrix [end, DIM], 0 beyond DIM and, if MASKED, beyond end.

    WIDE: the tile itself spans more than 2^31 elements.
    """
    rows = tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK_D)
    ptrs = tile_ptrs(ptr, rows, cols, start, stride_s, stride_d, WIDE)
    if MASKED:
        inside = (start + rows < end)[:, None]
        if DIM < BLOCK_D:
            inside = inside & (cols < DIM)[None, :]
        x = tl.load(ptrs, mask=inside, other=0.0)
    elif DIM < BLOCK_D:
        x = tl.load(ptrs, mask=(cols < DIM)[None, :], other=0.0)
    else:
        x = tl.load(ptrs)
    return x


@triton.jit
def store_tile(
    ptr, x, start, end, stride_s, stride_d,
    ROWS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Write the rows of a tile that lie before end, in the pointer's dtype."""
    rows = tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK_D)
    ptrs = tile_ptrs(ptr, rows, cols, start, stride_s, stride_d, WIDE)
    inside = (start + rows < end)[:, None]
    if DIM < BLOCK_D:
        inside = inside & (cols < DIM)[None, :]
    tl.store(ptrs, x.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def clear_rows(
    ptr, first, step, end, stride_s, stride_d,
    ROWS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Write 0 to rows first, first + step ... before end, a tile at each."""
    zeros = tl.zeros((ROWS, BLOCK_D), tl.float32)
    for start in tl.range(first, end, step):
        store_tile(ptr, zeros, start, end, stride_s, stride_d, ROWS, DIM, BLOCK_D, WIDE)


@triton.jit
def mask_pointers(ptr, row, col, stride_m, stride_n):
    """Addresses in a mask of any strides, of rows and columns that broadcast."""
    return ptr + row.to(tl.int64) * stride_m + col.to(tl.int64) * stride_n
