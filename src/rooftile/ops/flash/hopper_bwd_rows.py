"""Before and after the Hopper attention backward: vectors of rows, and dQ out of its sums."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _rows_of(rows_ptr, block, n_queries):
    """First row and number of rows of a block of 64; packed, no two sequences share one."""
    if rows_ptr is None:
        row = block * 64
        count = n_queries - row
    else:
        row = tl.load(rows_ptr + block * 2)
        count = tl.load(rows_ptr + block * 2 + 1)
    return row, count


@triton.jit
def before_kernel(o_ptr, do_ptr, lse_ptr, nlse_ptr, ndelta_ptr, acc_ptr, rows_ptr, n_heads,
                  n_queries, n_columns, stride_ob, stride_oh, stride_om, stride_db, stride_dh,
                  stride_dm, inv_scale, D: tl.constexpr, SUMS: tl.constexpr):  # fmt: skip
    """-rowsum(o do), -lse in units of the raw product, and zeros for dQ; 64 queries a program."""
    block, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = bh // n_heads, bh % n_heads
    row, count = _rows_of(rows_ptr, block, n_queries)
    i = tl.arange(0, 64)
    offs_m = row + i
    offs_d = tl.arange(0, D)
    mask_m = i < count
    mask = mask_m[:, None] & (offs_d < n_columns)[None, :]
    rows = offs_m.to(tl.int64)[:, None]
    o = tl.load(o_ptr + b * stride_ob + h * stride_oh + rows * stride_om + offs_d[None, :],
                mask=mask, other=0.0).to(tl.float32)  # fmt: skip
    do = tl.load(do_ptr + b * stride_db + h * stride_dh + rows * stride_dm + offs_d[None, :],
                 mask=mask, other=0.0).to(tl.float32)  # fmt: skip
    at = bh * tl.num_programs(0) + block
    flat = at * 64 + i
    lse = tl.load(lse_ptr + bh * n_queries + offs_m, mask=mask_m, other=float("-inf"))
    # a row past the end or one that sees no key: every weight is exp2(-inf) = 0
    nlse = tl.where(lse == float("-inf"), lse, -lse * inv_scale)
    tl.store(nlse_ptr + flat, nlse)
    tl.store(ndelta_ptr + flat, -tl.sum(o * do, 1))
    if SUMS:
        zeros = tl.zeros([64 * D], tl.float32)
        tl.store(acc_ptr + at * (64 * D) + tl.arange(0, 64 * D), zeros)


@triton.jit
def after_kernel(acc_ptr, dq_ptr, rows_ptr, n_heads, n_queries, n_columns, stride_b, stride_h,
                 stride_m, scale, D: tl.constexpr, PARTS: tl.constexpr):  # fmt: skip
    """dQ in fragment order to scaled rows; 64 rows and D / PARTS columns a program."""
    W: tl.constexpr = D // PARTS
    block, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // n_heads, bh % n_heads
    at = bh * tl.num_programs(0) + tl.program_id(0)
    x = tl.load(acc_ptr + at * (64 * W) + tl.arange(0, 64 * W))
    y = tl.permute(tl.reshape(x, [4, W // 8, 4, 2, 4, 2, 2]), (0, 5, 2, 3, 1, 4, 6))
    y = tl.reshape(y, [64, W]) * scale
    row, count = _rows_of(rows_ptr, block, n_queries)
    i = tl.arange(0, 64)
    offs_d = part * W + tl.arange(0, W)
    rows = (row + i).to(tl.int64)[:, None] * stride_m
    mask = (i < count)[:, None] & (offs_d < n_columns)[None, :]
    tl.store(dq_ptr + b * stride_b + h * stride_h + rows + offs_d[None, :],
             y.to(dq_ptr.dtype.element_ty), mask=mask)  # fmt: skip
