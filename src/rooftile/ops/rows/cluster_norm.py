"""RMS and layer norm of long rows, each shared by a cluster: the forward."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops.rows.cluster import row_head, row_start
from rooftile.ops.rows.resident_norm import added, sum_up
from rooftile.ops.rows.warp_exchange import (
    arrive,
    await_start,
    edge_of_part,
    over_threads,
    part_columns,
    receive,
    thread_ids,
    vector_ptrs,
    warp_sum,
    whole_vectors,
    widened,
    widened_after,
)


@gluon.jit
def _scaled(
    x_hat, w_ptr, b_ptr, stride, head, offs, mask, offset,
    dtype: gl.constexpr, CAST: gl.constexpr, VEC: gl.constexpr, PACKED: gl.constexpr,
):  # fmt: skip
    """x_hat * (weight + offset) + bias; with CAST x_hat is rounded to the result's dtype first."""
    y = x_hat
    if CAST:
        y = y.to(dtype).to(gl.float32)
    if w_ptr is not None:
        w = gl.load(_weight_ptrs(w_ptr, stride, head, offs, VEC), mask=mask, other=0.0)
        w = widened(w, PACKED)
        if offset is not None:
            w = w + offset
        y = y * w
    if b_ptr is not None:
        b = gl.load(_weight_ptrs(b_ptr, stride, head, offs, VEC), mask=mask, other=0.0)
        y = y + widened(b, PACKED)
    return y.to(dtype)


@gluon.jit
def _weight_ptrs(w_ptr, stride, head, offs, VEC: gl.constexpr):
    """Pointers to a row's weights; with a stride w holds copies shifted by 0, 1 ... VEC - 1."""
    if stride is None:
        ptrs = w_ptr + head + offs
    else:
        by = head % VEC
        ptrs = vector_ptrs(w_ptr + by * stride + (head - by), offs, VEC)
    return ptrs


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
    offset,  # or None for 0
    MEAN: gl.constexpr,
    HAS_RES: gl.constexpr,
    CAST: gl.constexpr,
    ROUNDS: gl.constexpr,
    THREADS: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    FULL: gl.constexpr,
    CLUSTER: gl.constexpr,
    LAYOUT: gl.constexpr,
    PACKED: gl.constexpr,
    ARRIVE: gl.constexpr,
    STARTED: gl.constexpr,
    SEND: gl.constexpr,
    RECEIVE: gl.constexpr,
):
    """A row a cluster."""
    slots = arrive(ARRIVE)
    own: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, LAYOUT))
    dtype: gl.constexpr = y_ptr.dtype.element_ty
    row = gl.program_id(0).to(gl.int64)
    head = row_head(row, stride_xo, SHIFT)
    n_vec = (n_cols - head) // VEC
    per_part = gl.cdiv(n_vec, 8 * CLUSTER) * 8 * VEC
    if FULL:
        per_part = ROUNDS * THREADS * VEC
    within, start = part_columns(per_part, ROUNDS, THREADS, VEC, CLUSTER, LAYOUT)
    offs = start + within
    part, thread = thread_ids(THREADS, CLUSTER, LAYOUT)
    at = (part + thread) * 0
    zero = gl.zeros((CLUSTER, THREADS), gl.float32, own)
    if FULL:
        inside = gl.full((CLUSTER, ROUNDS, THREADS, VEC), True, gl.int1, LAYOUT)
    else:
        inside = within < gl.minimum(per_part, n_vec * VEC - start)
    x_row = x_ptr + row_start(row, x_inner, stride_xo, stride_xi)
    r_row = r_ptr + row_start(row, r_inner, stride_ro, stride_ri)
    h_row = h_ptr + row * n_cols
    y_row = y_ptr + row * n_cols
    raw = gl.load(vector_ptrs(x_row + head, offs, VEC), mask=inside, other=0.0)
    if HAS_RES:
        raw_r = gl.load(vector_ptrs(r_row + head, offs, VEC), mask=inside, other=0.0)
        raw = added(raw, raw_r, h_ptr.dtype.element_ty, HAS_RES)
        gl.store(vector_ptrs(h_row + head, offs, VEC), raw, mask=inside)
    edge = zero
    col = at
    used = zero > 0.0
    if EDGE:
        col, used = edge_of_part(head, n_vec, n_cols, part, thread, VEC, SHIFT)
        edge = gl.load(x_row + col, mask=used, other=0.0)
        if HAS_RES:
            edge_r = gl.load(r_row + col, mask=used, other=0.0)
            edge = added(edge, edge_r, h_ptr.dtype.element_ty, HAS_RES)
            gl.store(h_row + col, edge, mask=used)
    valid = used
    count = zero + ROUNDS * VEC
    if not FULL:
        valid = whole_vectors(per_part, n_vec * VEC, ROUNDS, THREADS, VEC, CLUSTER, LAYOUT)
        count = gl.sum(gl.where(valid, 1.0 * VEC, 0.0), 1)
        if EDGE:
            count += gl.where(used, 1.0, 0.0)
    warp_count = zero
    if MEAN:
        warp_count = warp_sum(count)
    await_start(STARTED)
    sum_up(
        raw,
        edge,
        valid,
        used,
        count,
        1.0 / gl.maximum(count, 1.0),
        1.0 / gl.maximum(warp_count, 1.0),
        warp_count,
        slots + at,
        at,
        at + 1,
        MEAN,
        FULL,
        EDGE,
        PACKED,
        True,
        SEND,
    )
    mean, squares = receive(zero + 1.0 / n_cols, slots + at, at, RECEIVE)
    rstd = gl.div_rn(zero + 1.0, gl.sqrt_rn(squares / n_cols + eps))
    if not MEAN:
        mean = zero
    x_hat = (widened_after(raw, rstd, PACKED) - over_threads(mean)) * over_threads(rstd)
    y = _scaled(x_hat, w_ptr, b_ptr, stride_w, head, offs, inside, offset, dtype, CAST, VEC, PACKED)
    gl.store(vector_ptrs(y_row + head, offs, VEC), y, mask=inside)
    if EDGE:
        x_hat = (edge.to(gl.float32) - mean) * rstd
        y = _scaled(x_hat, w_ptr, b_ptr, None, 0, col, used, offset, dtype, CAST, VEC, False)
        gl.store(y_row + col, y, mask=used)
    if rstd_ptr is not None:
        one = (part == 0) & (thread == 0)
        gl.store(rstd_ptr + row + at, rstd, mask=one)
        if MEAN:
            gl.store(mean_ptr + row + at, mean, mask=one)
