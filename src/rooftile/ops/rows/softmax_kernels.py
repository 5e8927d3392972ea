"""Kernels of softmax and log-softmax: whole rows in registers, or long rows in chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from rooftile.ops.rows.address import edge_columns, reload, row_head, row_offset, vector_ptrs

_NEG_INF = tl.constexpr(-float("inf"))


@triton.jit
def _store(ptrs, value, mask):
    tl.store(ptrs, value.to(ptrs.dtype.element_ty), mask=mask)


@triton.jit
def accumulate(lane_max, lane_sum, x, VEC: tl.constexpr):
    """Add a chunk to each lane's maximum and sum of exponentials: 1 + 1/VEC of them an element."""
    x = tl.reshape(x, (lane_max.shape[0], lane_max.shape[1], VEC))
    new_max = tl.maximum(lane_max, tl.max(x, axis=2))
    # while a lane has seen -inf alone, any other shift keeps its sum at 0 instead of NaN
    shift = tl.where(new_max == _NEG_INF, 0.0, new_max)
    scale = tl.exp(tl.where(lane_max == _NEG_INF, _NEG_INF, lane_max - shift))
    return new_max, lane_sum * scale + tl.sum(tl.exp(x - shift[:, :, None]), axis=2)


@triton.jit
def _output(x, row_max, row_sum, LOG: tl.constexpr):
    """Softmax or its logarithm from the row's maximum and sum of exponentials."""
    if LOG:
        y = x - row_max - tl.log(row_sum)
    else:
        y = tl.exp(x - row_max) * (1.0 / row_sum)
    return y


@triton.jit
def softmax_fwd_kernel(
    x_ptr,  # [n_rows, n_cols]
    y_ptr,  # [n_rows, n_cols]
    n_rows,
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    y_inner,
    stride_yo,
    stride_yi,
    stride_yn,
    LOG: tl.constexpr,
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
    mask = live & (offs // VEC < (n_cols - head) // VEC)
    x_row = x_ptr + row_offset(row, x_inner, stride_xo, stride_xi)
    y_row = y_ptr + row_offset(row, y_inner, stride_yo, stride_yi)

    x_raw = tl.load(vector_ptrs(x_row, head, offs * stride_xn, VEC), mask=mask, other=_NEG_INF)
    row_max = tl.max(x_raw.to(tl.float32), axis=1)[:, None]
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT)
        edge = tl.load(x_row + col * stride_xn, mask=live & used, other=_NEG_INF).to(tl.float32)
        row_max = tl.maximum(row_max, tl.max(edge, axis=1)[:, None])
    row_sum = tl.sum(tl.exp(reload(x_raw, PACKED).to(tl.float32) - row_max), axis=1)[:, None]
    if EDGE:
        row_sum += tl.sum(tl.exp(edge - row_max), axis=1)[:, None]
        _store(y_row + col * stride_yn, _output(edge, row_max, row_sum, LOG), live & used)
    y = _output(reload(x_raw, PACKED).to(tl.float32), row_max, row_sum, LOG)
    _store(vector_ptrs(y_row, head, offs * stride_yn, VEC), y, mask)


@triton.jit
def softmax_fwd_loop_kernel(
    x_ptr,  # [n_rows, n_cols]
    y_ptr,  # [n_rows, n_cols]
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    y_inner,
    stride_yo,
    stride_yi,
    stride_yn,
    LOG: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    SHIFT: tl.constexpr,
    EDGE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Each lane keeps a maximum and a sum of its own; the row is read again for the output."""
    row = tl.program_id(0).to(tl.int64) + tl.zeros((1, 1), tl.int64)
    head = row_head(row, stride_xo, SHIFT)
    n_vec = (n_cols - head) // VEC
    x_row = x_ptr + row_offset(row, x_inner, stride_xo, stride_xi)
    y_row = y_ptr + row_offset(row, y_inner, stride_yo, stride_yi)
    offs = tl.arange(0, BLOCK_N)[None, :]

    lane_max = tl.full((1, BLOCK_N // VEC), _NEG_INF, tl.float32)
    lane_sum = tl.zeros((1, BLOCK_N // VEC), tl.float32)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=STAGES):
        x = tl.load(
            vector_ptrs(x_row, head, (start + offs) * stride_xn, VEC),
            mask=(start + offs) // VEC < n_vec,
            other=_NEG_INF,
            eviction_policy="evict_last",
        )
        lane_max, lane_sum = accumulate(lane_max, lane_sum, x.to(tl.float32), VEC)
    row_max = tl.max(lane_max, axis=1)[:, None]
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT)
        edge = tl.load(x_row + col * stride_xn, mask=used, other=_NEG_INF).to(tl.float32)
        row_max = tl.maximum(row_max, tl.max(edge, axis=1)[:, None])
    row_sum = tl.sum(lane_sum * tl.exp(lane_max - row_max), axis=1)[:, None]
    if EDGE:
        row_sum += tl.sum(tl.exp(edge - row_max), axis=1)[:, None]
        _store(y_row + col * stride_yn, _output(edge, row_max, row_sum, LOG), used)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=STAGES):
        mask = (start + offs) // VEC < n_vec
        x = tl.load(
            vector_ptrs(x_row, head, (start + offs) * stride_xn, VEC),
            mask=mask,
            other=_NEG_INF,
            eviction_policy="evict_first",
        )
        y = _output(x.to(tl.float32), row_max, row_sum, LOG)
        _store(vector_ptrs(y_row, head, (start + offs) * stride_yn, VEC), y, mask)


@triton.jit
def _gradient(y, dy, row_sum, LOG: tl.constexpr):
    """dx from the row's sum of dy * y; of dy alone for the logarithm."""
    if LOG:
        dx = dy - tl.exp(y) * row_sum
    else:
        dx = y * (dy - row_sum)
    return dx


@triton.jit
def _term(y, dy, LOG: tl.constexpr):
    """What a row's sum adds up."""
    if LOG:
        term = dy
    else:
        term = dy * y
    return term


@triton.jit
def softmax_bwd_kernel(
    y_ptr,  # [n_rows, n_cols], the forward's result
    dy_ptr,  # [n_rows, n_cols]
    dx_ptr,  # [n_rows, n_cols], strides of y
    n_rows,
    n_cols,
    y_inner,
    stride_yo,
    stride_yi,
    stride_yn,
    dy_inner,
    stride_dyo,
    stride_dyi,
    stride_dyn,
    LOG: tl.constexpr,
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
    head = row_head(row, stride_yo, SHIFT)
    mask = live & (offs // VEC < (n_cols - head) // VEC)
    y_off = row_offset(row, y_inner, stride_yo, stride_yi)
    dy_row = dy_ptr + row_offset(row, dy_inner, stride_dyo, stride_dyi)

    y_raw = tl.load(vector_ptrs(y_ptr + y_off, head, offs * stride_yn, VEC), mask=mask, other=0.0)
    dy_raw = tl.load(vector_ptrs(dy_row, head, offs * stride_dyn, VEC), mask=mask, other=0.0)
    row_sum = tl.sum(_term(y_raw.to(tl.float32), dy_raw.to(tl.float32), LOG), axis=1)[:, None]
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT)
        used = live & used
        y_edge = tl.load(y_ptr + y_off + col * stride_yn, mask=used, other=0.0).to(tl.float32)
        dy_edge = tl.load(dy_row + col * stride_dyn, mask=used, other=0.0).to(tl.float32)
        row_sum += tl.sum(_term(y_edge, dy_edge, LOG), axis=1)[:, None]
        dx_edge = _gradient(y_edge, dy_edge, row_sum, LOG)
        _store(dx_ptr + y_off + col * stride_yn, dx_edge, used)
    y = reload(y_raw, PACKED).to(tl.float32)
    dx = _gradient(y, reload(dy_raw, PACKED).to(tl.float32), row_sum, LOG)
    _store(vector_ptrs(dx_ptr + y_off, head, offs * stride_yn, VEC), dx, mask)


@triton.jit
def softmax_bwd_loop_kernel(
    y_ptr,  # [n_rows, n_cols], the forward's result
    dy_ptr,  # [n_rows, n_cols]
    dx_ptr,  # [n_rows, n_cols], strides of y
    n_cols,
    y_inner,
    stride_yo,
    stride_yi,
    stride_yn,
    dy_inner,
    stride_dyo,
    stride_dyi,
    stride_dyn,
    LOG: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    SHIFT: tl.constexpr,
    EDGE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The row's sum first, then the row again, out of L2."""
    row = tl.program_id(0).to(tl.int64) + tl.zeros((1, 1), tl.int64)
    head = row_head(row, stride_yo, SHIFT)
    n_vec = (n_cols - head) // VEC
    y_off = row_offset(row, y_inner, stride_yo, stride_yi)
    dy_row = dy_ptr + row_offset(row, dy_inner, stride_dyo, stride_dyi)
    y_row = y_ptr + y_off
    offs = tl.arange(0, BLOCK_N)[None, :]

    total = tl.zeros((1, BLOCK_N), tl.float32)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=STAGES):
        col = start + offs
        mask = col // VEC < n_vec
        dy = tl.load(
            vector_ptrs(dy_row, head, col * stride_dyn, VEC),
            mask=mask,
            other=0.0,
            eviction_policy="evict_last",
        )
        if LOG:
            total += dy.to(tl.float32)
        else:
            y = tl.load(
                vector_ptrs(y_row, head, col * stride_yn, VEC),
                mask=mask,
                other=0.0,
                eviction_policy="evict_last",
            )
            total += dy.to(tl.float32) * y.to(tl.float32)
    row_sum = tl.sum(total, axis=1)[:, None]
    if EDGE:
        at, used = edge_columns(head, n_cols, VEC, SHIFT)
        y_edge = tl.load(y_ptr + y_off + at * stride_yn, mask=used, other=0.0).to(tl.float32)
        dy_edge = tl.load(dy_row + at * stride_dyn, mask=used, other=0.0).to(tl.float32)
        row_sum += tl.sum(_term(y_edge, dy_edge, LOG), axis=1)[:, None]
        dx_edge = _gradient(y_edge, dy_edge, row_sum, LOG)
        _store(dx_ptr + y_off + at * stride_yn, dx_edge, used)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=STAGES):
        col = start + offs
        mask = col // VEC < n_vec
        y = tl.load(
            vector_ptrs(y_row, head, col * stride_yn, VEC),
            mask=mask,
            other=0.0,
            eviction_policy="evict_first",
        )
        dy = tl.load(
            vector_ptrs(dy_row, head, col * stride_dyn, VEC),
            mask=mask,
            other=0.0,
            eviction_policy="evict_first",
        )
        dx = _gradient(y.to(tl.float32), dy.to(tl.float32), row_sum, LOG)
        _store(vector_ptrs(dx_ptr + y_off, head, col * stride_yn, VEC), dx, mask)
