"""Forward kernels of RMS and layer norm, with or without a residual, weight and bias.

``MEAN`` tells layer norm from RMS norm; ``HAS_RES`` adds a residual first and writes the sum.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rooftile.ops.rows.address import (
    edge_columns,
    inverse_root,
    mean_of,
    reload,
    row_head,
    row_offset,
    vector_ptrs,
    weight_ptrs,
)


@triton.jit
def _scaled(
    x_hat, w_ptr, b_ptr, stride, head, offs, mask, offset,
    dtype: tl.constexpr, CAST: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """x_hat * (weight + offset) + bias; with CAST x_hat is rounded to the result's dtype first."""
    y = x_hat
    if CAST:
        y = y.to(dtype).to(tl.float32)
    if w_ptr is not None:
        w = tl.load(weight_ptrs(w_ptr, stride, head, offs, VEC), mask=mask, other=0.0)
        y = y * (w.to(tl.float32) + offset)
    if b_ptr is not None:
        b = tl.load(weight_ptrs(b_ptr, stride, head, offs, VEC), mask=mask, other=0.0)
        y = y + b.to(tl.float32)
    return y.to(dtype)


@triton.jit
def shifted_copies_kernel(
    w_ptr,  # [n_cols]
    out_ptr,  # [copies, stride]
    n_cols,
    stride,
    BLOCK_N: tl.constexpr,
):
    """Copy i holds w from its element i on: some copy has every vector of w at a whole vector."""
    shift = tl.program_id(1)
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    w = tl.load(w_ptr + col + shift, mask=col + shift < n_cols, other=0.0)
    tl.store(out_ptr + shift * stride + col, w, mask=col < stride)


@triton.jit
def _load_sum(x_ptrs, r_ptrs, h_ptrs, mask, HAS_RES: tl.constexpr):
    """x, or x + residual rounded to the dtype in which the sum is written."""
    x = tl.load(x_ptrs, mask=mask, other=0.0)
    if HAS_RES:
        r = tl.load(r_ptrs, mask=mask, other=0.0)
        x = (x.to(tl.float32) + r.to(tl.float32)).to(h_ptrs.dtype.element_ty)
        tl.store(h_ptrs, x, mask=mask)
    return x


@triton.jit
def norm_fwd_kernel(
    x_ptr,  # [n_rows, n_cols]
    r_ptr,  # [n_rows, n_cols], the residual, or x
    w_ptr,  # [n_cols], copies of it (stride_w) or None
    b_ptr,  # as w_ptr
    h_ptr,  # [n_rows, n_cols], contiguous: x + residual, or y
    y_ptr,  # [n_rows, n_cols], contiguous
    mean_ptr,  # [n_rows] float32 or None
    rstd_ptr,  # [n_rows] float32 or None
    n_rows,
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    r_inner,
    stride_ro,
    stride_ri,
    stride_rn,
    stride_w,
    eps,
    offset,
    MEAN: tl.constexpr,
    HAS_RES: tl.constexpr,
    CAST: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    SHIFT: tl.constexpr,
    EDGE: tl.constexpr,
    PACKED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < n_rows
    offs = tl.arange(0, BLOCK_N)[None, :]
    head = row_head(row, stride_xo, SHIFT)
    in_row = offs // VEC < (n_cols - head) // VEC
    mask = live & in_row
    x_row = x_ptr + row_offset(row, x_inner, stride_xo, stride_xi)
    r_row = r_ptr + row_offset(row, r_inner, stride_ro, stride_ri)
    y_off = row * n_cols
    dtype: tl.constexpr = y_ptr.dtype.element_ty

    raw = _load_sum(
        vector_ptrs(x_row, head, offs * stride_xn, VEC),
        vector_ptrs(r_row, head, offs * stride_rn, VEC),
        vector_ptrs(h_ptr + y_off, head, offs, VEC),
        mask,
        HAS_RES,
    )
    x = raw.to(tl.float32)
    mean = tl.zeros((ROWS, 1), tl.float32)
    if MEAN:
        mean = tl.sum(x, axis=1)[:, None]
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT)
        used = live & used
        edge = _load_sum(
            x_row + col * stride_xn, r_row + col * stride_rn, h_ptr + y_off + col, used, HAS_RES
        ).to(tl.float32)
        if MEAN:
            mean += tl.sum(edge, axis=1)[:, None]
    if MEAN:
        mean = mean_of(mean, n_cols)
        x = tl.where(mask, reload(raw, PACKED).to(tl.float32) - mean, 0.0)
    rstd = tl.sum(x * x, axis=1)[:, None]
    if EDGE:
        if MEAN:
            edge = tl.where(used, edge - mean, 0.0)
        rstd += tl.sum(edge * edge, axis=1)[:, None]
    rstd = inverse_root(mean_of(rstd, n_cols) + eps)
    if EDGE:
        y = _scaled(edge * rstd, w_ptr, b_ptr, None, 0, col, used, offset, dtype, CAST, VEC)
        tl.store(y_ptr + y_off + col, y, mask=used)
    if PACKED:
        x = reload(raw, PACKED).to(tl.float32) - mean
    y = _scaled(x * rstd, w_ptr, b_ptr, stride_w, head, offs, in_row, offset, dtype, CAST, VEC)
    tl.store(vector_ptrs(y_ptr + y_off, head, offs, VEC), y, mask=mask)
    if rstd_ptr is not None:
        tl.store(rstd_ptr + row, rstd, mask=live)
        if MEAN:
            tl.store(mean_ptr + row, mean, mask=live)


@triton.jit
def norm_fwd_loop_kernel(
    x_ptr,  # [n_rows, n_cols]
    r_ptr,  # [n_rows, n_cols], the residual, or x
    w_ptr,  # [n_cols], copies of it (stride_w) or None
    b_ptr,  # as w_ptr
    h_ptr,  # [n_rows, n_cols], contiguous: x + residual, or y
    y_ptr,  # [n_rows, n_cols], contiguous
    mean_ptr,  # [n_rows] float32 or None
    rstd_ptr,  # [n_rows] float32 or None
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    r_inner,
    stride_ro,
    stride_ri,
    stride_rn,
    stride_w,
    eps,
    offset,
    MEAN: tl.constexpr,
    HAS_RES: tl.constexpr,
    CAST: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    SHIFT: tl.constexpr,
    EDGE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The mean, the squares around it, the output: each a pass over the row, the first from HBM."""
    row = tl.program_id(0).to(tl.int64) + tl.zeros((1, 1), tl.int64)
    head = row_head(row, stride_xo, SHIFT)
    n_vec = (n_cols - head) // VEC
    x_row = x_ptr + row_offset(row, x_inner, stride_xo, stride_xi)
    r_row = r_ptr + row_offset(row, r_inner, stride_ro, stride_ri)
    y_off = row * n_cols
    offs = tl.arange(0, BLOCK_N)[None, :]
    dtype: tl.constexpr = y_ptr.dtype.element_ty

    mean = tl.zeros((1, 1), tl.float32)
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT)
        edge = _load_sum(
            x_row + col * stride_xn, r_row + col * stride_rn, h_ptr + y_off + col, used, HAS_RES
        ).to(tl.float32)
    if MEAN or HAS_RES:  # the first pass writes x + residual, the others read it
        total = tl.zeros((1, BLOCK_N), tl.float32)
        for start in tl.range(0, n_cols, BLOCK_N, num_stages=STAGES):
            at = start + offs
            total += _load_sum(
                vector_ptrs(x_row, head, at * stride_xn, VEC),
                vector_ptrs(r_row, head, at * stride_rn, VEC),
                vector_ptrs(h_ptr + y_off, head, at, VEC),
                at // VEC < n_vec,
                HAS_RES,
            ).to(tl.float32)
        if MEAN:
            mean = tl.sum(total, axis=1)[:, None]
            if EDGE:
                mean += tl.sum(edge, axis=1)[:, None]
            mean = mean_of(mean, n_cols)
    if HAS_RES:
        tl.debug_barrier()  # a lane reads what another lane of this program has written
        z_row = h_ptr + y_off
        stride_zn = 1
    else:
        z_row = x_row
        stride_zn = stride_xn
    squares = tl.zeros((1, BLOCK_N), tl.float32)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=STAGES):
        at = start + offs
        mask = at // VEC < n_vec
        x = tl.load(
            vector_ptrs(z_row, head, at * stride_zn, VEC),
            mask=mask,
            other=0.0,
            eviction_policy="evict_last",
        )
        x = tl.where(mask, x.to(tl.float32) - mean, 0.0)
        squares += x * x
    rstd = tl.sum(squares, axis=1)[:, None]
    if EDGE:
        edge = tl.where(used, edge - mean, 0.0)
        rstd += tl.sum(edge * edge, axis=1)[:, None]
    rstd = inverse_root(mean_of(rstd, n_cols) + eps)
    if EDGE:
        y_edge = _scaled(edge * rstd, w_ptr, b_ptr, None, 0, col, used, offset, dtype, CAST, VEC)
        tl.store(y_ptr + y_off + col, y_edge, mask=used)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=STAGES):
        at = start + offs
        mask = at // VEC < n_vec
        x = tl.load(
            vector_ptrs(z_row, head, at * stride_zn, VEC),
            mask=mask,
            other=0.0,
            eviction_policy="evict_first",
        )
        x_hat = (x.to(tl.float32) - mean) * rstd
        y = _scaled(x_hat, w_ptr, b_ptr, stride_w, head, at, mask, offset, dtype, CAST, VEC)
        tl.store(vector_ptrs(y_ptr + y_off, head, at, VEC), y, mask=mask)
    if rstd_ptr is not None:
        tl.store(rstd_ptr + row, rstd)
        if MEAN:
            tl.store(mean_ptr + row, mean)
