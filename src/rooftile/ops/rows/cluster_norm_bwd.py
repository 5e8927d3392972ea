"""RMS and layer norm of long rows by clusters that stay on the SMs: the backward, in registers.

A warp has its columns of every row that its cluster takes. It keeps their weights as they were
loaded and their column sums of dweight and dbias, and takes a row from memory once.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops.rows.address import edge_lanes
from rooftile.ops.rows.bulk_rows import (
    arrive,
    await_row,
    fetch,
    foretell,
    from_shared,
    receive,
    reload,
    send,
    zero,
)
from rooftile.ops.rows.cluster import row_head, row_start


@gluon.jit
def _row_vectors(row_ptr, offs, live, inside, VEC: gl.constexpr, FULL: gl.constexpr):
    """A warp's vectors of a row, as they lie in memory; zeros outside of the row."""
    itemsize: gl.constexpr = row_ptr.dtype.element_ty.primitive_bitwidth // 8
    ptrs = gl.multiple_of(row_ptr + offs, (1, 1, itemsize, VEC * itemsize))
    if FULL:
        raw = gl.load(ptrs, mask=live)
    else:
        raw = gl.load(ptrs, mask=inside & live, other=0.0)
    return raw


@gluon.jit
def _statistics(mean_ptr, rstd_ptr, row, live):
    """Mean (0 for RMS norm) and 1/deviation of a row."""
    rstd = gl.load(rstd_ptr + row, mask=live, other=0.0)
    mean = 0.0
    if mean_ptr is not None:
        mean = gl.load(mean_ptr + row, mask=live, other=0.0)
    return mean, rstd


@gluon.jit
def _normalized(x, mean, rstd, MEAN: gl.constexpr):
    """x_hat. Of 16-bit elements in one operation: they are coarser than what it loses."""
    wide: gl.constexpr = x.dtype.primitive_bitwidth > 16
    x = x.to(gl.float32)
    if MEAN and wide:
        x = (x - mean) * rstd
    elif MEAN:
        x = x * rstd - mean * rstd
    else:
        x = x * rstd
    return x


@gluon.jit
def _weighted(dy, w, offset):
    """dy * (weight + offset)."""
    if w is not None:
        w = w.to(gl.float32)
        if offset is not None:
            w = w + offset
        dy = dy * w
    return dy


@gluon.jit
def _per_lane(x):
    """Each lane's sum, [WARPS, 32]."""
    return gl.sum(gl.sum(x, 3), 1)


@gluon.jit
def _add_pairs(a, b, c, d):
    return a + c, b + d


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
    offset,  # or None for 0
    MEAN: gl.constexpr,
    HAS_DH: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    FULL: gl.constexpr,
    PACKED: gl.constexpr,
    WARPS: gl.constexpr,
    STEPS: gl.constexpr,
    STAGES: gl.constexpr,
    RING: gl.constexpr,
    LAYOUT: gl.constexpr,
    ARRIVE: gl.constexpr,
    ZERO: gl.constexpr,
    FETCH: gl.constexpr,
    FORETELL: gl.constexpr,
    AWAIT: gl.constexpr,
    SEND: gl.constexpr,
    RECEIVE: gl.constexpr,
):
    """Every n_clusters-th row a cluster; with SHIFT n_clusters is a multiple of it: one head."""
    vectors: gl.constexpr = gl.SliceLayout(3, LAYOUT)
    lanes: gl.constexpr = gl.SliceLayout(1, vectors)
    dtype: gl.constexpr = dx_ptr.dtype.element_ty
    size: gl.constexpr = dtype.primitive_bitwidth // 8
    part_bytes: gl.constexpr = STEPS * 512 * gl.num_warps()
    warp = gl.arange(0, WARPS, gl.SliceLayout(1, lanes))
    lane = gl.arange(0, 32, gl.SliceLayout(0, lanes))
    in_lane = gl.arange(0, STEPS, gl.SliceLayout(0, gl.SliceLayout(2, vectors)))[None, :, None]
    at = gl.expand_dims(warp[:, None] * (STEPS * 32) + lane[None, :], 1) + in_lane * 32
    at = gl.expand_dims(at, 3)
    elem = gl.arange(0, VEC, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT))))
    elem = elem[None, None, None, :]
    offs = at * VEC + elem
    slots = warp * 0 + arrive(ARRIVE)
    here = gl.expand_dims((slots + RING + warp % gl.num_warps() * (STEPS * 512))[:, None], 1)
    here = here + gl.expand_dims(lane[None, :] * 16, 1) + in_lane * 512
    here = gl.expand_dims(here, 3) + elem * 0

    first = gl.program_id(0).to(gl.int64)
    stride = gl.num_programs(0)
    mine = gl.cdiv(n_rows - gl.program_id(0), stride)
    head = row_head(first, stride_xo, SHIFT)
    n_vec = (n_cols - head) // VEC
    inside = (at < n_vec) & (elem >= 0)
    per_col = 1.0 / n_cols

    if STAGES > 1:
        if not FULL:
            zero(slots, ZERO)
        for i in gl.static_range(STAGES):
            if i < mine:
                row = first + i * stride
                x_at = x_ptr + row_start(row, x_inner, stride_xo, stride_xi) + head
                dy_at = dy_ptr + row_start(row, dy_inner, stride_dyo, stride_dyi) + head
                fetch(x_at, dy_at, n_vec * 16, slots, warp * 0 + i, FETCH)
                if HAS_DH:
                    dh_at = dh_ptr + row_start(row, dh_inner, stride_dho, stride_dhi) + head
                    foretell(dh_at, n_vec * 16, slots, FORETELL)
    live = mine > 0
    x_row = x_ptr + row_start(first, x_inner, stride_xo, stride_xi)
    dy_row = dy_ptr + row_start(first, dy_inner, stride_dyo, stride_dyi)
    x_raw = offs
    dy_raw = offs
    dh_raw = offs
    if STAGES == 1:
        x_raw = _row_vectors(x_row + head, offs, live, inside, VEC, FULL)
        dy_raw = _row_vectors(dy_row + head, offs, live, inside, VEC, FULL)
    if HAS_DH and STAGES == 1:
        dh_row = dh_ptr + row_start(first, dh_inner, stride_dho, stride_dhi)
        dh_raw = _row_vectors(dh_row + head, offs, live, inside, VEC, FULL)
    mean, rstd = _statistics(mean_ptr, rstd_ptr, first, live)
    w_raw = None
    if w_ptr is not None:
        w_raw = gl.load(w_ptr + head + offs, mask=inside, other=0.0)
    dw = gl.zeros((WARPS, STEPS, 32, VEC), gl.float32, LAYOUT)
    db = gl.zeros((WARPS, STEPS, 32, VEC), gl.float32, LAYOUT)
    x_edge = mean
    dy_edge = mean
    w_edge = None
    if EDGE:
        half: gl.constexpr = edge_lanes(VEC, SHIFT) // 2
        tail = head + n_vec * VEC
        col = gl.where(lane < half, lane, tail + lane - half)
        used = (lane < 2 * half) & (col < gl.where(lane < half, head, n_cols))
        used = (warp == 0)[:, None] & used[None, :]
        col = warp[:, None] * 0 + col[None, :]
        x_edge = gl.load(x_row + col, mask=used & live, other=0.0)
        dy_edge = gl.load(dy_row + col, mask=used & live, other=0.0)
        if w_ptr is not None:
            w_edge = gl.load(w_ptr + col, mask=used, other=0.0)
        dw_edge = gl.zeros((WARPS, 32), gl.float32, lanes)
        db_edge = gl.zeros((WARPS, 32), gl.float32, lanes)
    for i in range(mine):
        row = first + i * stride
        turn = warp * 0 + i
        if STAGES > 1:
            await_row(slots, turn, AWAIT)
            at_row = here + (i & (STAGES - 1)) * (2 * part_bytes)
            x_here = from_shared(at_row, x_ptr, VEC)
            dy_here = from_shared(at_row + part_bytes, dy_ptr, VEC)
        else:
            x_here = x_raw
            dy_here = dy_raw
        w = w_raw
        if w_ptr is not None:
            w = reload(w_raw, PACKED)
        x_hat = _normalized(x_here, mean, rstd, MEAN)
        dy = dy_here.to(gl.float32)
        g = _weighted(dy, w, offset)
        if dw_ptr is not None:
            dw += dy * x_hat
        if db_ptr is not None:
            db += dy
        gx_sum = _per_lane(g * x_hat)
        g_sum = gx_sum
        if MEAN:
            g_sum = _per_lane(g)
        if EDGE:
            x_hat_edge = _normalized(x_edge, mean, rstd, MEAN)
            dy = dy_edge.to(gl.float32)
            g_edge = _weighted(dy, w_edge, offset)
            dw_edge += dy * x_hat_edge
            db_edge += dy
            gx_sum += g_edge * x_hat_edge
            if MEAN:
                g_sum += g_edge
        if MEAN:
            gx_sum, g_sum = gl.reduce((gx_sum, g_sum), 1, _add_pairs)
        else:
            gx_sum = gl.sum(gx_sum, 1)
            g_sum = gx_sum
        send(gx_sum, g_sum, slots, turn, SEND)

        rstd_here = rstd
        dh_here = dh_raw
        if HAS_DH and STAGES > 1:
            dh_row = dh_ptr + row_start(row, dh_inner, stride_dho, stride_dhi)
            dh_here = _row_vectors(dh_row + head, offs, mine > 0, inside, VEC, FULL)
        after = row + stride
        live = i + 1 < mine
        x_row = x_ptr + row_start(after, x_inner, stride_xo, stride_xi)
        dy_row = dy_ptr + row_start(after, dy_inner, stride_dyo, stride_dyi)
        if STAGES == 1:
            x_raw = _row_vectors(x_row + head, offs, live, inside, VEC, FULL)
            dy_raw = _row_vectors(dy_row + head, offs, live, inside, VEC, FULL)
        if HAS_DH and STAGES == 1:
            dh_row = dh_ptr + row_start(after, dh_inner, stride_dho, stride_dhi)
            dh_raw = _row_vectors(dh_row + head, offs, live, inside, VEC, FULL)
        mean, rstd = _statistics(mean_ptr, rstd_ptr, after, live)
        if EDGE:
            x_edge = gl.load(x_row + col, mask=used & live, other=0.0)
            dy_edge = gl.load(dy_row + col, mask=used & live, other=0.0)

        gx_mean, g_mean = receive(slots, turn, RECEIVE)
        if STAGES > 1:  # every warp has this row in registers
            if i + STAGES < mine:
                later = row + STAGES * stride
                x_at = x_ptr + row_start(later, x_inner, stride_xo, stride_xi) + head
                dy_at = dy_ptr + row_start(later, dy_inner, stride_dyo, stride_dyi) + head
                fetch(x_at, dy_at, n_vec * 16, slots, turn + STAGES, FETCH)
                if HAS_DH:
                    dh_at = dh_ptr + row_start(later, dh_inner, stride_dho, stride_dhi) + head
                    foretell(dh_at, n_vec * 16, slots, FORETELL)
        by_x = gx_mean * (-rstd_here * per_col)
        by_one = g_mean * (-rstd_here * per_col)
        slope = gl.expand_dims(gl.expand_dims(by_x[:, None], 1), 3)
        shift = gl.expand_dims(gl.expand_dims(by_one[:, None], 1), 3)
        if MEAN:
            dx = g * rstd_here + (x_hat * slope + shift)
        else:
            dx = g * rstd_here + x_hat * slope
        if HAS_DH:
            dx += dh_here.to(gl.float32)
        dx_row = dx_ptr + row * n_cols
        ptrs = gl.multiple_of(dx_row + head + offs, (1, 1, size, VEC * size))
        gl.store(ptrs, dx.to(dtype), mask=inside)
        if EDGE:
            dx_edge = g_edge * rstd_here + x_hat_edge * by_x[:, None]
            if MEAN:
                dx_edge += by_one[:, None]
            if HAS_DH:
                dh_row = dh_ptr + row_start(row, dh_inner, stride_dho, stride_dhi)
                dx_edge += gl.load(dh_row + col, mask=used, other=0.0).to(gl.float32)
            gl.store(dx_row + col, dx_edge.to(dtype), mask=used)
    place = first * n_cols
    if dw_ptr is not None:
        gl.store(dw_ptr + place + head + offs, dw, mask=inside)
        if EDGE:
            gl.store(dw_ptr + place + col, dw_edge, mask=used)
    if db_ptr is not None:
        gl.store(db_ptr + place + head + offs, db, mask=inside)
        if EDGE:
            gl.store(db_ptr + place + col, db_edge, mask=used)
