"""Softmax of long rows, each shared by a cluster, and its backward."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops.rows.cluster import row_head, row_start
from rooftile.ops.rows.warp_exchange import (
    arrive,
    await_start,
    edge_of_part,
    exp2,
    over_threads,
    own_max,
    own_sum,
    part_columns,
    receive,
    send_pair,
    send_sum,
    thread_ids,
    vector_ptrs,
    widened,
    widened_after,
)

_NEG_INF = gl.constexpr(-float("inf"))
_LEAST = gl.constexpr(-3.4028234663852886e38)
_LOG2_E = gl.constexpr(1.4426950408889634)


@gluon.jit
def _probability(x, row_max, row_sum, LOG: gl.constexpr):
    """Softmax or its logarithm."""
    if LOG:
        y = x - row_max - gl.log(row_sum)
    else:
        y = exp2((x - row_max) * _LOG2_E) * (1.0 / row_sum)
    return y


@gluon.jit
def softmax_fwd_cluster_kernel(
    x_ptr,  # [n_rows, n_cols]
    y_ptr,  # [n_rows, n_cols]
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    y_inner,
    stride_yo,
    stride_yi,
    LOG: gl.constexpr,
    ROUNDS: gl.constexpr,
    THREADS: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    PACKED: gl.constexpr,
    CLUSTER: gl.constexpr,
    LAYOUT: gl.constexpr,
    ARRIVE: gl.constexpr,
    STARTED: gl.constexpr,
    SEND: gl.constexpr,
    RECEIVE: gl.constexpr,
):
    """A row a cluster: each thread's maximum and sum of exponentials relative to it, then all."""
    slots = arrive(ARRIVE)
    own: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, LAYOUT))
    row = gl.program_id(0).to(gl.int64)
    head = row_head(row, stride_xo, SHIFT)
    n_vec = (n_cols - head) // VEC
    per_part = gl.cdiv(n_vec, 8 * CLUSTER) * 8 * VEC
    within, start = part_columns(per_part, ROUNDS, THREADS, VEC, CLUSTER, LAYOUT)
    inside = within < gl.minimum(per_part, n_vec * VEC - start)
    offs = head + start + within
    part, thread = thread_ids(THREADS, CLUSTER, LAYOUT)
    at = (part + thread) * 0
    x_row = x_ptr + row_start(row, x_inner, stride_xo, stride_xi)
    y_row = y_ptr + row_start(row, y_inner, stride_yo, stride_yi)
    raw = gl.load(vector_ptrs(x_row, offs, VEC), mask=inside, other=_NEG_INF)
    zero = gl.zeros((CLUSTER, THREADS), gl.float32, own)
    edge = zero
    col = at
    used = zero > 0.0
    if EDGE:
        col, used = edge_of_part(head, n_vec, n_cols, part, thread, VEC, SHIFT)
        edge = gl.load(x_row + col, mask=used, other=_NEG_INF).to(gl.float32)
    top = gl.maximum(own_max(widened(raw, PACKED)), _LEAST)
    if EDGE:
        top = gl.maximum(top, edge)
    x = widened_after(raw, top, PACKED)
    exp_sum = own_sum(exp2((x - over_threads(top)) * _LOG2_E))
    if EDGE:
        exp_sum += exp2((edge - top) * _LOG2_E)
    await_start(STARTED)
    send_pair(top, exp_sum, slots + at, at, at + 1, SEND)
    row_max, row_sum = receive(zero, slots + at, at, RECEIVE)
    x = widened_after(raw, row_max, PACKED)
    y = _probability(x, over_threads(row_max), over_threads(row_sum), LOG)
    dtype: gl.constexpr = y_ptr.dtype.element_ty
    gl.store(vector_ptrs(y_row, offs, VEC), y.to(dtype), mask=inside)
    if EDGE:
        gl.store(y_row + col, _probability(edge, row_max, row_sum, LOG).to(dtype), mask=used)


@gluon.jit
def _gradient(y, dy, total, LOG: gl.constexpr):
    """dx from a row's sum of dy * y; of dy alone for the logarithm."""
    if LOG:
        dx = dy - exp2(y * _LOG2_E) * total
    else:
        dx = y * (dy - total)
    return dx


@gluon.jit
def softmax_bwd_cluster_kernel(
    y_ptr,  # [n_rows, n_cols], the forward's result
    dy_ptr,  # [n_rows, n_cols]
    dx_ptr,  # [n_rows, n_cols], strides of y
    n_cols,
    y_inner,
    stride_yo,
    stride_yi,
    dy_inner,
    stride_dyo,
    stride_dyi,
    LOG: gl.constexpr,
    ROUNDS: gl.constexpr,
    THREADS: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    PACKED: gl.constexpr,
    CLUSTER: gl.constexpr,
    LAYOUT: gl.constexpr,
    ARRIVE: gl.constexpr,
    STARTED: gl.constexpr,
    SEND: gl.constexpr,
    RECEIVE: gl.constexpr,
):
    slots = arrive(ARRIVE)
    own: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, LAYOUT))
    row = gl.program_id(0).to(gl.int64)
    head = row_head(row, stride_yo, SHIFT)
    n_vec = (n_cols - head) // VEC
    per_part = gl.cdiv(n_vec, 8 * CLUSTER) * 8 * VEC
    within, start = part_columns(per_part, ROUNDS, THREADS, VEC, CLUSTER, LAYOUT)
    inside = within < gl.minimum(per_part, n_vec * VEC - start)
    offs = head + start + within
    part, thread = thread_ids(THREADS, CLUSTER, LAYOUT)
    at = (part + thread) * 0
    y_off = row_start(row, y_inner, stride_yo, stride_yi)
    dy_row = dy_ptr + row_start(row, dy_inner, stride_dyo, stride_dyi)

    y_raw = gl.load(vector_ptrs(y_ptr + y_off, offs, VEC), mask=inside, other=0.0)
    dy_raw = gl.load(vector_ptrs(dy_row, offs, VEC), mask=inside, other=0.0)
    zero = gl.zeros((CLUSTER, THREADS), gl.float32, own)
    y_edge = zero
    dy_edge = zero
    col = at
    used = zero > 0.0
    if EDGE:
        col, used = edge_of_part(head, n_vec, n_cols, part, thread, VEC, SHIFT)
        y_edge = gl.load(y_ptr + y_off + col, mask=used, other=0.0).to(gl.float32)
        dy_edge = gl.load(dy_row + col, mask=used, other=0.0).to(gl.float32)
    dy = widened(dy_raw, PACKED)
    if LOG:
        total = own_sum(dy) + dy_edge
    else:
        total = own_sum(dy * widened(y_raw, PACKED)) + dy_edge * y_edge
    await_start(STARTED)
    send_sum(total, slots + at, at, at + 1, SEND)
    total, _ = receive(zero, slots + at, at, RECEIVE)
    y = widened_after(y_raw, total, PACKED)
    dy = widened_after(dy_raw, total, PACKED)
    dx = _gradient(y, dy, over_threads(total), LOG)
    dtype: gl.constexpr = dx_ptr.dtype.element_ty
    gl.store(vector_ptrs(dx_ptr + y_off, offs, VEC), dx.to(dtype), mask=inside)
    if EDGE:
        dx = _gradient(y_edge, dy_edge, total, LOG)
        gl.store(dx_ptr + y_off + col, dx.to(dtype), mask=used)
