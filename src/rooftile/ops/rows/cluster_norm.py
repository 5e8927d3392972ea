"""RMS and layer norm of long rows, each shared by a cluster: the forward."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops.rows.cluster import (
    arrive,
    edge_columns,
    exchanged,
    exchanged_moments,
    narrow,
    part_columns,
    part_sum,
    reload,
    row_head,
    row_start,
    vector_ptrs,
    weight_ptrs,
)


@gluon.jit
def _scaled(
    x_hat, w_ptr, b_ptr, stride, head, offs, mask, offset,
    dtype: gl.constexpr, CAST: gl.constexpr, VEC: gl.constexpr,
):  # fmt: skip
    """x_hat * (weight + offset) + bias; with CAST x_hat is rounded to the result's dtype first."""
    y = x_hat
    if CAST:
        y = y.to(dtype).to(gl.float32)
    if w_ptr is not None:
        w = gl.load(weight_ptrs(w_ptr, stride, head, offs, VEC), mask=mask, other=0.0)
        y = y * (w.to(gl.float32) + offset)
    if b_ptr is not None:
        b = gl.load(weight_ptrs(b_ptr, stride, head, offs, VEC), mask=mask, other=0.0)
        y = y + b.to(gl.float32)
    return y.to(dtype)


@gluon.jit
def _counts(n, n_cols, BLOCK_N: gl.constexpr, VEC: gl.constexpr, CLUSTER: gl.constexpr,
            LAYOUT: gl.constexpr):  # fmt: skip
    """Elements of each part, [CLUSTER], of n behind the head; the first has head and tail too."""
    part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))
    in_vectors = n // VEC * VEC
    count = gl.minimum(gl.maximum(in_vectors - part * BLOCK_N, 0), BLOCK_N)
    return count + gl.where(part == 0, n_cols - in_vectors, 0)


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
def _write_row(
    raw, edge, row, y_row, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride_w, eps, offset,
    head, offs, mask, col, used, n_cols, slots,
    MEAN: gl.constexpr, CAST: gl.constexpr, BLOCK_N: gl.constexpr, VEC: gl.constexpr,
    EDGE: gl.constexpr, PACKED: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr,
    NARROW: gl.constexpr, PTX: gl.constexpr,
):  # fmt: skip
    """From a part of a row in registers, and the row's edges, to the normalized part."""
    dtype: gl.constexpr = y_row.dtype.element_ty
    mean = gl.zeros((CLUSTER,), gl.float32, gl.SliceLayout(1, LAYOUT))
    one = mean + 1.0
    if MEAN:  # of the part, and the squares around it: one exchange gives those of the row
        n = _counts(n_cols - head, n_cols, BLOCK_N, VEC, CLUSTER, LAYOUT).to(gl.float32)
        total = part_sum(raw.to(gl.float32), LAYOUT)
        if EDGE:
            total += part_sum(edge, LAYOUT)
        mean = total / gl.maximum(n, 1.0)
    x = gl.where(mask, reload(raw, PACKED).to(gl.float32) - mean[:, None], 0.0)
    squares = part_sum(x * x, LAYOUT)
    if EDGE:
        x_edge = edge
        if MEAN:
            x_edge = gl.where(used, edge - narrow(mean, NARROW), 0.0)
        squares += part_sum(x_edge * x_edge, LAYOUT)
    if MEAN:
        mean, squares = exchanged_moments(n, mean, squares, 1.0 / n_cols, slots, PTX)
        if EDGE:
            edge = edge - narrow(mean, NARROW)
    else:
        squares, _ = exchanged(squares, squares, slots, PTX)
    rstd = gl.div_rn(one, gl.sqrt_rn(squares / n_cols + eps))
    x_hat = (reload(raw, PACKED).to(gl.float32) - mean[:, None]) * rstd[:, None]
    y = _scaled(x_hat, w_ptr, b_ptr, stride_w, head, offs, mask, offset, dtype, CAST, VEC)
    gl.store(vector_ptrs(y_row + head, offs, VEC), y, mask=mask)
    if EDGE:
        edge = edge * narrow(rstd, NARROW)
        y = _scaled(edge, w_ptr, b_ptr, None, 0, col, used, offset, dtype, CAST, VEC)
        gl.store(y_row + col, y, mask=used)
    if rstd_ptr is not None:
        part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))
        gl.store(rstd_ptr + row + part * 0, rstd, mask=part == 0)
        if MEAN:
            gl.store(mean_ptr + row + part * 0, mean, mask=part == 0)


@gluon.jit
def norm_fwd_cluster_kernel(
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
    r_inner,
    stride_ro,
    stride_ri,
    stride_w,
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
    PTX_ARRIVE: gl.constexpr,
):
    """A row a cluster."""
    slots = arrive(PTX_ARRIVE)
    row = gl.program_id(0).to(gl.int64)
    head = row_head(row, stride_xo, SHIFT)
    offs = part_columns(BLOCK_N, CLUSTER, LAYOUT)
    mask = offs // VEC < (n_cols - head) // VEC
    col = offs
    used = mask
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT, CLUSTER, NARROW)
    x_row = x_ptr + row_start(row, x_inner, stride_xo, stride_xi)
    r_row = r_ptr + row_start(row, r_inner, stride_ro, stride_ri)
    h_row = h_ptr + row * n_cols
    raw = _load_sum(
        vector_ptrs(x_row + head, offs, VEC), vector_ptrs(r_row + head, offs, VEC),
        vector_ptrs(h_row + head, offs, VEC), mask, HAS_RES,
    )  # fmt: skip
    edge = mask
    if EDGE:
        edge = _load_sum(x_row + col, r_row + col, h_row + col, used, HAS_RES).to(gl.float32)
    _write_row(
        raw, edge, row, y_ptr + row * n_cols, w_ptr, b_ptr, mean_ptr, rstd_ptr,
        stride_w, eps, offset, head, offs, mask, col, used, n_cols, slots,
        MEAN, CAST, BLOCK_N, VEC, EDGE, PACKED, CLUSTER, LAYOUT, NARROW, PTX,
    )  # fmt: skip
