"""RMS and layer norm of long rows, each shared by a cluster: the backward.

A persistent grid of clusters. A program has its columns of every row that its cluster takes, so the
column sums of dweight and dbias stay in its registers, and the next row is on its way while the
cluster adds up the sums of one.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops.rows.address import edge_lanes
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
    wait,
)


@gluon.jit
def _weighted(dy, w_raw, offset, HAS_WEIGHT: gl.constexpr, PACKED: gl.constexpr):
    """The gradient of x_hat."""
    if HAS_WEIGHT:
        dy = dy * (reload(w_raw, PACKED).to(gl.float32) + offset)
    return dy


@gluon.jit
def _statistics(mean_ptr, rstd_ptr, row, n_rows, lane):
    """Mean (0 for RMS norm) and 1/deviation of a row, [CLUSTER]."""
    at = row + lane * 0
    rstd = gl.load(rstd_ptr + at, mask=at < n_rows, other=0.0)
    mean = rstd * 0.0
    if mean_ptr is not None:
        mean = gl.load(mean_ptr + at, mask=at < n_rows, other=0.0)
    return mean, rstd


@gluon.jit
def norm_bwd_cluster_kernel(
    dy_ptr,  # [n_rows, n_cols]
    dh_ptr,  # [n_rows, n_cols], gradient of x + residual, or dy
    x_ptr,  # [n_rows, n_cols], the normalized tensor
    w_ptr,  # [n_cols] or None
    mean_ptr,  # [n_rows] float32 or None
    rstd_ptr,  # [n_rows] float32
    dx_ptr,  # [n_rows, n_cols], contiguous
    dw_ptr,  # [n_clusters, n_cols] float32 or None
    db_ptr,  # [n_clusters, n_cols] float32 or None
    n_rows,
    n_cols,
    dy_inner,
    stride_dyo,
    stride_dyi,
    dh_inner,
    stride_dho,
    stride_dhi,
    x_inner,
    stride_xo,
    stride_xi,
    offset,
    MEAN: gl.constexpr,
    HAS_DH: gl.constexpr,
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
    slots = arrive(PTX_ARRIVE)
    pid = gl.program_id(0).to(gl.int64)
    n_clusters = gl.num_programs(0)
    head = row_head(pid, stride_xo, SHIFT)  # n_clusters is a multiple of SHIFT then
    offs = part_columns(BLOCK_N, CLUSTER, LAYOUT)
    in_row = offs // VEC < (n_cols - head) // VEC
    lane = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))
    dtype: gl.constexpr = dx_ptr.dtype.element_ty
    w_raw = offs
    if w_ptr is not None:
        w_raw = gl.load(w_ptr + head + offs, mask=in_row, other=0.0)
    dw = gl.zeros((CLUSTER, BLOCK_N), gl.float32, LAYOUT)
    db = gl.zeros((CLUSTER, BLOCK_N), gl.float32, LAYOUT)
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT, CLUSTER, NARROW)
        w_edge = col
        if w_ptr is not None:
            w_edge = gl.load(w_ptr + col, mask=used, other=0.0)
        dw_edge = gl.zeros((CLUSTER, edge_lanes(VEC, SHIFT)), gl.float32, NARROW)
        db_edge = gl.zeros((CLUSTER, edge_lanes(VEC, SHIFT)), gl.float32, NARROW)

    x_row = x_ptr + row_start(pid, x_inner, stride_xo, stride_xi)
    dy_row = dy_ptr + row_start(pid, dy_inner, stride_dyo, stride_dyi)
    live = in_row & (pid < n_rows)
    x_next = gl.load(vector_ptrs(x_row + head, offs, VEC), mask=live, other=0.0)
    dy_next = gl.load(vector_ptrs(dy_row + head, offs, VEC), mask=live, other=0.0)
    next_mean, next_rstd = _statistics(mean_ptr, rstd_ptr, pid, n_rows, lane)
    wait()
    for step in range(gl.cdiv(n_rows, n_clusters)):
        row = pid + step * n_clusters
        is_row = row < n_rows
        live = in_row & is_row
        x_here = x_ptr + row_start(row, x_inner, stride_xo, stride_xi)
        dy_here = dy_ptr + row_start(row, dy_inner, stride_dyo, stride_dyi)
        x_raw = x_next
        dy_raw = dy_next
        mean = next_mean
        rstd = next_rstd
        after = row + n_clusters
        x_row = x_ptr + row_start(after, x_inner, stride_xo, stride_xi)
        dy_row = dy_ptr + row_start(after, dy_inner, stride_dyo, stride_dyi)
        ahead = in_row & (after < n_rows)
        x_next = gl.load(vector_ptrs(x_row + head, offs, VEC), mask=ahead, other=0.0)
        dy_next = gl.load(vector_ptrs(dy_row + head, offs, VEC), mask=ahead, other=0.0)
        next_mean, next_rstd = _statistics(mean_ptr, rstd_ptr, after, n_rows, lane)

        dy = dy_raw.to(gl.float32)
        x_hat = (x_raw.to(gl.float32) - mean[:, None]) * rstd[:, None]
        g = _weighted(dy, w_raw, offset, w_ptr is not None, PACKED)
        gx_sum = part_sum(g * x_hat, LAYOUT)
        g_sum = gx_sum
        if MEAN:
            g_sum = part_sum(g, LAYOUT)
        if EDGE:
            edge = used & is_row
            x_edge = gl.load(x_here + col, mask=edge, other=0.0).to(gl.float32)
            dy_edge = gl.load(dy_here + col, mask=edge, other=0.0).to(gl.float32)
            x_edge = (x_edge - narrow(mean, NARROW)) * narrow(rstd, NARROW)
            g_edge = _weighted(dy_edge, w_edge, offset, w_ptr is not None, False)
            gx_sum += part_sum(g_edge * x_edge, LAYOUT)
            if MEAN:
                g_sum += part_sum(g_edge, LAYOUT)
            dw_edge += dy_edge * x_edge
            db_edge += dy_edge
        gx_mean, g_mean = exchanged(gx_sum, g_sum, slots, lane * 0 + step, PTX)
        gx_mean = gx_mean / n_cols
        if MEAN:
            g_mean = g_mean / n_cols
        else:
            g_mean = gx_mean * 0.0

        # from the loaded values again: x_hat and g need no registers while the cluster adds up
        dy = reload(dy_raw, PACKED).to(gl.float32)
        x_hat = (reload(x_raw, PACKED).to(gl.float32) - mean[:, None]) * rstd[:, None]
        g = _weighted(dy, w_raw, offset, w_ptr is not None, PACKED)
        dx = (g - g_mean[:, None] - x_hat * gx_mean[:, None]) * rstd[:, None]
        dh_here = dh_ptr + row_start(row, dh_inner, stride_dho, stride_dhi)
        if HAS_DH:
            dh = gl.load(vector_ptrs(dh_here + head, offs, VEC), mask=live, other=0.0)
            dx += dh.to(gl.float32)
        dx_row = dx_ptr + row * n_cols
        gl.store(vector_ptrs(dx_row + head, offs, VEC), dx.to(dtype), mask=live)
        if EDGE:
            dx = g_edge - narrow(g_mean, NARROW) - x_edge * narrow(gx_mean, NARROW)
            dx = dx * narrow(rstd, NARROW)
            if HAS_DH:
                dx += gl.load(dh_here + col, mask=edge, other=0.0).to(gl.float32)
            gl.store(dx_row + col, dx.to(dtype), mask=edge)
        if dw_ptr is not None:
            dw += dy * x_hat
        if db_ptr is not None:
            db += dy
    if dw_ptr is not None:
        gl.store(dw_ptr + pid * n_cols + head + offs, dw, mask=in_row)
        if EDGE:
            gl.store(dw_ptr + pid * n_cols + col, dw_edge, mask=used)
    if db_ptr is not None:
        gl.store(db_ptr + pid * n_cols + head + offs, db, mask=in_row)
        if EDGE:
            gl.store(db_ptr + pid * n_cols + col, db_edge, mask=used)
