"""RMS and layer norm of long rows by clusters that stay on the SMs: the backward.

A program has its columns of every row that its cluster takes: the column sums of dweight and dbias
stay in its registers, the weights in its shared memory.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from rooftile.ops.rows.address import edge_lanes
from rooftile.ops.rows.cluster import (
    edge_columns,
    narrow,
    row_head,
    row_start,
    vector_ptrs,
)
from rooftile.ops.rows.resident import (
    arrive,
    await_cluster,
    fetch,
    part_of_row,
    part_sums,
    receive,
    send,
)


@gluon.jit
def _weighted(dy, w, offset, LAYOUT: gl.constexpr):
    """dy * (weight + offset); with a layout the weight is in shared memory."""
    if w is not None:
        if LAYOUT is not None:
            w = w.load(LAYOUT)
        w = w.to(gl.float32)
        if offset is not None:
            w = w + offset
        dy = dy * w
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
def _sum_up(
    x_s, dy_s, w_s, x_edge, dy_edge, w_edge, mean, rstd, offset, used, slots, step,
    EDGE: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr, NARROW: gl.constexpr,
    SEND: gl.constexpr,
):  # fmt: skip
    """A part's sums of g * x_hat and of g to the cluster, g being the gradient of x_hat."""
    x = x_s.load(LAYOUT).to(gl.float32) - mean[:, None]
    g = _weighted(dy_s.load(LAYOUT).to(gl.float32), w_s, offset, LAYOUT)
    gx_sum, g_sum = part_sums(g * x, g, LAYOUT)
    if EDGE:
        x = x_edge.to(gl.float32) - narrow(mean, NARROW)
        g = _weighted(dy_edge.to(gl.float32), w_edge, offset, None)
        gx_edge, g_edge = part_sums(g * x, g, LAYOUT)
        gx_sum += gx_edge
        g_sum += g_edge
    gx_sum = gx_sum * rstd
    if CLUSTER > 1:
        send(gx_sum, g_sum, slots, step, SEND)
    return gx_sum, g_sum


@gluon.jit
def _gradients(
    x_raw,
    dy_raw,
    w,
    mean,
    rstd,
    g_mean,
    gx_mean,
    offset,
    MEAN: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """dx, and what a row adds to dweight and to dbias.

    dx = (g - mean(g) - x_hat * mean(g * x_hat)) * rstd, with rstd drawn into dy and the means.
    """
    x = x_raw.to(gl.float32) - mean
    dy = dy_raw.to(gl.float32)
    scaled = dy * rstd
    dx = _weighted(scaled, w, offset, LAYOUT)
    if MEAN:
        dx = dx - g_mean * rstd
    return dx - x * (gx_mean * rstd * rstd), scaled * x, dy


@gluon.jit
def norm_bwd_resident_kernel(
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
    offset,  # or None for 0
    MEAN: gl.constexpr,
    HAS_DH: gl.constexpr,
    BLOCK_N: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    FULL: gl.constexpr,
    STAGES: gl.constexpr,
    CLUSTER: gl.constexpr,
    LAYOUT: gl.constexpr,
    NARROW: gl.constexpr,
    SHARED: gl.constexpr,
    ARRIVE: gl.constexpr,
    SEND: gl.constexpr,
    RECEIVE: gl.constexpr,
):
    """Every n_clusters-th row a cluster; with SHIFT n_clusters is a multiple of it: one head."""
    first = gl.program_id(0).to(gl.int64)
    n_clusters = gl.num_programs(0)
    mine = gl.cdiv(n_rows - gl.program_id(0), n_clusters)
    head = row_head(first, stride_xo, SHIFT)
    offs, inside = part_of_row((n_cols - head) // VEC, BLOCK_N, VEC, FULL, CLUSTER, LAYOUT)
    lane = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))
    dtype: gl.constexpr = dx_ptr.dtype.element_ty
    slots = lane * 0
    if CLUSTER > 1:
        slots = slots + arrive(ARRIVE)

    shape: gl.constexpr = [STAGES, CLUSTER, BLOCK_N]
    x_ring = gl.allocate_shared_memory(x_ptr.dtype.element_ty, shape, SHARED)
    dy_ring = gl.allocate_shared_memory(dy_ptr.dtype.element_ty, shape, SHARED)
    dh_ring = dy_ring
    if HAS_DH:
        dh_ring = gl.allocate_shared_memory(dh_ptr.dtype.element_ty, shape, SHARED)
    for i in gl.static_range(STAGES):
        row = first + i * n_clusters
        mask = inside & (row < n_rows)
        x_row = x_ptr + row_start(row, x_inner, stride_xo, stride_xi)
        dy_row = dy_ptr + row_start(row, dy_inner, stride_dyo, stride_dyi)
        fetch(x_ring.index(i), x_row + head, offs, mask, VEC)
        fetch(dy_ring.index(i), dy_row + head, offs, mask, VEC)
        if HAS_DH:
            dh_row = dh_ptr + row_start(row, dh_inner, stride_dho, stride_dhi)
            fetch(dh_ring.index(i), dh_row + head, offs, mask, VEC)
        async_copy.commit_group()
    after = first + n_clusters
    mean, rstd = _statistics(mean_ptr, rstd_ptr, first, n_rows, lane)
    mean_1, rstd_1 = _statistics(mean_ptr, rstd_ptr, after, n_rows, lane)
    x_edge = offs
    dy_edge = offs
    x_edge_1 = offs
    dy_edge_1 = offs
    col = offs
    used = inside
    w_edge = None
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT, CLUSTER, NARROW)
        live = used & (after < n_rows)
        x_row = x_ptr + row_start(first, x_inner, stride_xo, stride_xi)
        dy_row = dy_ptr + row_start(first, dy_inner, stride_dyo, stride_dyi)
        x_edge = gl.load(x_row + col, mask=used, other=0.0)
        dy_edge = gl.load(dy_row + col, mask=used, other=0.0)
        x_row = x_ptr + row_start(after, x_inner, stride_xo, stride_xi)
        dy_row = dy_ptr + row_start(after, dy_inner, stride_dyo, stride_dyi)
        x_edge_1 = gl.load(x_row + col, mask=live, other=0.0)
        dy_edge_1 = gl.load(dy_row + col, mask=live, other=0.0)
        if w_ptr is not None:
            w_edge = gl.load(w_ptr + col, mask=used, other=0.0)
        dw_edge = gl.zeros((CLUSTER, edge_lanes(VEC, SHIFT)), gl.float32, NARROW)
        db_edge = gl.zeros((CLUSTER, edge_lanes(VEC, SHIFT)), gl.float32, NARROW)
    dw = gl.zeros((CLUSTER, BLOCK_N), gl.float32, LAYOUT)
    db = gl.zeros((CLUSTER, BLOCK_N), gl.float32, LAYOUT)
    w_s = None
    if w_ptr is not None:
        w_s = gl.allocate_shared_memory(w_ptr.dtype.element_ty, [CLUSTER, BLOCK_N], SHARED)
        w_s.store(gl.load(w_ptr + head + offs, mask=inside, other=0.0))

    async_copy.wait_group(STAGES - 1)
    if CLUSTER > 1:
        await_cluster()
    gx_sum, g_sum = _sum_up(
        x_ring.index(0), dy_ring.index(0), w_s, x_edge, dy_edge, w_edge, mean, rstd, offset, used,
        slots, lane * 0, EDGE, CLUSTER, LAYOUT, NARROW, SEND,
    )  # fmt: skip
    for i in range(mine):
        row = first + i * n_clusters
        gx_mean = gx_sum
        g_mean = g_sum
        after = row + 2 * n_clusters
        mean_2, rstd_2 = _statistics(mean_ptr, rstd_ptr, after, n_rows, lane)
        x_edge_2 = x_edge_1
        dy_edge_2 = dy_edge_1
        if EDGE:
            x_row = x_ptr + row_start(after, x_inner, stride_xo, stride_xi)
            dy_row = dy_ptr + row_start(after, dy_inner, stride_dyo, stride_dyi)
            live = used & (after < n_rows)
            x_edge_2 = gl.load(x_row + col, mask=live, other=0.0)
            dy_edge_2 = gl.load(dy_row + col, mask=live, other=0.0)
        async_copy.wait_group(STAGES - 2)
        if i + 1 < mine:
            other = (i + 1) % STAGES
            gx_sum, g_sum = _sum_up(
                x_ring.index(other), dy_ring.index(other), w_s, x_edge_1, dy_edge_1, w_edge,
                mean_1, rstd_1, offset, used, slots, lane * 0 + i + 1,
                EDGE, CLUSTER, LAYOUT, NARROW, SEND,
            )  # fmt: skip
        if CLUSTER > 1:
            gx_mean, g_mean = receive(rstd, slots, lane * 0 + i, RECEIVE)
        gx_mean = gx_mean / n_cols
        g_mean = g_mean / n_cols

        x_here = x_ring.index(i % STAGES)
        dy_here = dy_ring.index(i % STAGES)
        dx, dw_here, db_here = _gradients(
            x_here.load(LAYOUT), dy_here.load(LAYOUT), w_s, mean[:, None], rstd[:, None],
            g_mean[:, None], gx_mean[:, None], offset, MEAN, LAYOUT,
        )  # fmt: skip
        if dw_ptr is not None:
            dw += dw_here
        if db_ptr is not None:
            db += db_here
        if HAS_DH:
            dx += dh_ring.index(i % STAGES).load(LAYOUT).to(gl.float32)
        dx_row = dx_ptr + row * n_cols
        gl.store(vector_ptrs(dx_row + head, offs, VEC), dx.to(dtype), mask=inside)
        if EDGE:
            dx, dw_here, db_here = _gradients(
                x_edge, dy_edge, w_edge, narrow(mean, NARROW), narrow(rstd, NARROW),
                narrow(g_mean, NARROW), narrow(gx_mean, NARROW), offset, MEAN, None,
            )  # fmt: skip
            dw_edge += dw_here
            db_edge += db_here
            if HAS_DH:
                dh_row = dh_ptr + row_start(row, dh_inner, stride_dho, stride_dhi)
                dx += gl.load(dh_row + col, mask=used, other=0.0).to(gl.float32)
            gl.store(dx_row + col, dx.to(dtype), mask=used)
        later = row + STAGES * n_clusters
        mask = inside & (later < n_rows)
        x_row = x_ptr + row_start(later, x_inner, stride_xo, stride_xi)
        dy_row = dy_ptr + row_start(later, dy_inner, stride_dyo, stride_dyi)
        fetch(x_here, x_row + head, offs, mask, VEC)
        fetch(dy_here, dy_row + head, offs, mask, VEC)
        if HAS_DH:
            dh_row = dh_ptr + row_start(later, dh_inner, stride_dho, stride_dhi)
            fetch(dh_ring.index(i % STAGES), dh_row + head, offs, mask, VEC)
        async_copy.commit_group()
        mean = mean_1
        rstd = rstd_1
        mean_1 = mean_2
        rstd_1 = rstd_2
        x_edge = x_edge_1
        dy_edge = dy_edge_1
        x_edge_1 = x_edge_2
        dy_edge_1 = dy_edge_2
    async_copy.wait_group(0)
    if dw_ptr is not None:
        dw_row = dw_ptr + first * n_cols
        gl.store(dw_row + head + offs, dw, mask=inside)
        if EDGE:
            gl.store(dw_row + col, dw_edge, mask=used)
    if db_ptr is not None:
        db_row = db_ptr + first * n_cols
        gl.store(db_row + head + offs, db, mask=inside)
        if EDGE:
            gl.store(db_row + col, db_edge, mask=used)
