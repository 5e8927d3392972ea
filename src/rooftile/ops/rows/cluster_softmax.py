"""Softmax of long rows, each shared by a cluster."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops.rows.cluster import (
    arrive,
    edge_columns,
    exchanged,
    narrow,
    part_columns,
    part_max,
    part_sum,
    reload,
    row_head,
    row_start,
    vector_ptrs,
)

_NEG_INF = gl.constexpr(-float("inf"))


@gluon.jit
def _probability(x, row_max, row_sum, LOG: gl.constexpr):
    """Softmax or its logarithm."""
    if LOG:
        y = x - row_max - gl.log(row_sum)
    else:
        y = gl.exp(x - row_max) * (1.0 / row_sum)
    return y


@gluon.jit
def _write_row(
    raw, x_row, y_row, head, offs, mask, n_cols, slots,
    LOG: gl.constexpr, VEC: gl.constexpr, SHIFT: gl.constexpr, EDGE: gl.constexpr,
    PACKED: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr, NARROW: gl.constexpr,
    PTX: gl.constexpr,
):  # fmt: skip
    """From a part of a row in registers to its probabilities."""
    top = part_max(raw.to(gl.float32), LAYOUT)
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT, CLUSTER, NARROW)
        edge = gl.load(x_row + col, mask=used, other=_NEG_INF).to(gl.float32)
        top = gl.maximum(top, part_max(edge, LAYOUT))
    shift = gl.where(top == _NEG_INF, 0.0, top)  # a part of -inf alone sums to 0
    exp_sum = part_sum(gl.exp(reload(raw, PACKED).to(gl.float32) - shift[:, None]), LAYOUT)
    if EDGE:
        exp_sum += part_sum(gl.exp(edge - narrow(shift, NARROW)), LAYOUT)
    row_max, row_sum = exchanged(top, exp_sum, slots, PTX)
    y = _probability(reload(raw, PACKED).to(gl.float32), row_max[:, None], row_sum[:, None], LOG)
    dtype: gl.constexpr = y_row.dtype.element_ty
    gl.store(vector_ptrs(y_row + head, offs, VEC), y.to(dtype), mask=mask)
    if EDGE:
        y_edge = _probability(edge, narrow(row_max, NARROW), narrow(row_sum, NARROW), LOG)
        gl.store(y_row + col, y_edge.to(dtype), mask=used)


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
    x_row = x_ptr + row_start(row, x_inner, stride_xo, stride_xi)
    raw = gl.load(vector_ptrs(x_row + head, offs, VEC), mask=mask, other=_NEG_INF)
    _write_row(
        raw, x_row, y_ptr + row_start(row, y_inner, stride_yo, stride_yi), head, offs, mask, n_cols,
        slots, LOG, VEC, SHIFT, EDGE, PACKED, CLUSTER, LAYOUT, NARROW, PTX,
    )  # fmt: skip


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
    row = gl.program_id(0).to(gl.int64)
    head = row_head(row, stride_yo, SHIFT)
    offs = part_columns(BLOCK_N, CLUSTER, LAYOUT)
    mask = offs // VEC < (n_cols - head) // VEC
    y_off = row_start(row, y_inner, stride_yo, stride_yi)
    dy_row = dy_ptr + row_start(row, dy_inner, stride_dyo, stride_dyi)

    y_raw = gl.load(vector_ptrs(y_ptr + y_off + head, offs, VEC), mask=mask, other=0.0)
    dy_raw = gl.load(vector_ptrs(dy_row + head, offs, VEC), mask=mask, other=0.0)
    dy = dy_raw.to(gl.float32)
    if LOG:
        part = part_sum(dy, LAYOUT)
    else:
        part = part_sum(dy * y_raw.to(gl.float32), LAYOUT)
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT, CLUSTER, NARROW)
        y_edge = gl.load(y_ptr + y_off + col, mask=used, other=0.0).to(gl.float32)
        dy_edge = gl.load(dy_row + col, mask=used, other=0.0).to(gl.float32)
        if LOG:
            part += part_sum(dy_edge, LAYOUT)
        else:
            part += part_sum(dy_edge * y_edge, LAYOUT)
    total, _ = exchanged(part, part, slots, PTX)
    y = reload(y_raw, PACKED).to(gl.float32)
    dy = reload(dy_raw, PACKED).to(gl.float32)
    if LOG:
        dx = dy - gl.exp(y) * total[:, None]
    else:
        dx = y * (dy - total[:, None])
    dtype: gl.constexpr = dx_ptr.dtype.element_ty
    gl.store(vector_ptrs(dx_ptr + y_off + head, offs, VEC), dx.to(dtype), mask=mask)
    if EDGE:
        if LOG:
            dx_edge = dy_edge - gl.exp(y_edge) * narrow(total, NARROW)
        else:
            dx_edge = y_edge * (dy_edge - narrow(total, NARROW))
        gl.store(dx_ptr + y_off + col, dx_edge.to(dtype), mask=used)
