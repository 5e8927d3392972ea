"""RMS and layer norm of long rows, each shared by a cluster: the forward."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops.rows.cluster import (
    arrive,
    edge_columns,
    exchanged,
    narrow,
    part_columns,
    part_sum,
    reload,
    row_head,
    row_start,
    vector_ptrs,
)


@gluon.jit
def _scaled(x_hat, w_ptr, b_ptr, col, mask, offset, dtype: gl.constexpr, CAST: gl.constexpr):
    """x_hat * (weight + offset) + bias; with CAST x_hat is rounded to the result's dtype first."""
    y = x_hat
    if CAST:
        y = y.to(dtype).to(gl.float32)
    if w_ptr is not None:
        y = y * (gl.load(w_ptr + col, mask=mask, other=0.0).to(gl.float32) + offset)
    if b_ptr is not None:
        y = y + gl.load(b_ptr + col, mask=mask, other=0.0).to(gl.float32)
    return y.to(dtype)


@gluon.jit
def _load_sum(x_ptrs, r_ptrs, h_ptrs, mask, HAS_RES: gl.constexpr):
    """x, or x + residual rounded to the dtype in which the sum is written."""
    x = gl.load(x_ptrs, mask=mask, other=0.0)
    if HAS_RES:
        r = gl.load(r_ptrs, mask=mask, other=0.0)
        x = (x.to(gl.float32) + r.to(gl.float32)).to(h_ptrs.dtype.element_ty)
        gl.store(h_ptrs, x, mask=mask)
    return x


@gluon.jit
def norm_fwd_cluster_kernel(
    x_ptr,  # [n_rows, n_cols]
    r_ptr,  # [n_rows, n_cols], the residual, or x
    w_ptr,  # [n_cols] or None
    b_ptr,  # [n_cols] or None
    h_ptr,  # [n_rows, n_cols], contiguous: x + residual, or y
    y_ptr,  # [n_rows, n_cols], contiguous
    mean_ptr,  # [n_rows] float32 or None
    rstd_ptr,  # [n_rows] float32 or None
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    r_inner,
    stride_ro,
    stride_ri,
    eps,
    offset,
    MEAN: gl.constexpr,
    HAS_RES: gl.constexpr,
    CAST: gl.constexpr,
    BLOCK_N: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    PACKED: gl.constexpr,
    CLUSTER: gl.constexpr,
    LAYOUT: gl.constexpr,
    NARROW: gl.constexpr,
    PTX: gl.constexpr,
    PTX_AGAIN: gl.constexpr,
):
    arrive()
    row = gl.program_id(0).to(gl.int64)
    head = row_head(row, stride_xo, VEC, SHIFT)
    offs = part_columns(BLOCK_N, CLUSTER, LAYOUT)
    mask = offs // VEC < (n_cols - head) // VEC
    x_row = x_ptr + row_start(row, x_inner, stride_xo, stride_xi)
    r_row = r_ptr + row_start(row, r_inner, stride_ro, stride_ri)
    h_row = h_ptr + row * n_cols
    y_row = y_ptr + row * n_cols
    dtype: gl.constexpr = y_ptr.dtype.element_ty

    raw = _load_sum(
        vector_ptrs(x_row + head, offs, VEC), vector_ptrs(r_row + head, offs, VEC),
        vector_ptrs(h_row + head, offs, VEC), mask, HAS_RES,
    )  # fmt: skip
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, CLUSTER, NARROW)
        edge = _load_sum(x_row + col, r_row + col, h_row + col, used, HAS_RES).to(gl.float32)
    mean = gl.zeros((CLUSTER,), gl.float32, gl.SliceLayout(1, LAYOUT))
    mean_edge = 0.0
    if MEAN:
        part = part_sum(raw.to(gl.float32), LAYOUT)
        if EDGE:
            part += part_sum(edge, LAYOUT)
        total, _ = exchanged(part, part, PTX)
        mean = total / n_cols
        mean_edge = narrow(mean, NARROW)
    x = gl.where(mask, reload(raw, PACKED).to(gl.float32) - mean[:, None], 0.0)
    part = part_sum(x * x, LAYOUT)
    if EDGE:
        edge = gl.where(used, edge - mean_edge, 0.0)
        part += part_sum(edge * edge, LAYOUT)
    if MEAN:
        total, _ = exchanged(part, part, PTX_AGAIN)
    else:
        total, _ = exchanged(part, part, PTX)
    rstd = gl.rsqrt(total / n_cols + eps)
    x_hat = (reload(raw, PACKED).to(gl.float32) - mean[:, None]) * rstd[:, None]
    y = _scaled(x_hat, w_ptr, b_ptr, head + offs, mask, offset, dtype, CAST)
    gl.store(vector_ptrs(y_row + head, offs, VEC), y, mask=mask)
    if EDGE:
        y = _scaled(edge * narrow(rstd, NARROW), w_ptr, b_ptr, col, used, offset, dtype, CAST)
        gl.store(y_row + col, y, mask=used)
    if rstd_ptr is not None:
        part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))
        gl.store(rstd_ptr + row + part * 0, rstd, mask=part == 0)
        if MEAN:
            gl.store(mean_ptr + row + part * 0, mean, mask=part == 0)
