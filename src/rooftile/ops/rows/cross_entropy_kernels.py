"""Kernels of cross-entropy: one pass over the logits each way, at any number of classes."""

from __future__ import annotations

import triton
import triton.language as tl

from rooftile.ops.flat.gelu import exp2_of
from rooftile.ops.rows.address import edge_columns, row_head, row_offset, vector_ptrs
from rooftile.ops.rows.overlap import release_next, wait_for_previous

_NEG_INF = tl.constexpr(-float("inf"))
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _exp(x, PTX: tl.constexpr):
    """e^x, 0 below 2^-126: Triton's own takes four operations more for numbers down there."""
    return exp2_of(x * _LOG2_E, PTX)


@triton.jit
def _accumulate(lane_max, lane_sum, x, VEC: tl.constexpr, PTX: tl.constexpr):
    """Add a chunk to each lane's maximum and sum of exponentials: 1 + 1/VEC of them an element."""
    x = tl.reshape(x, (lane_max.shape[0], lane_max.shape[1], VEC))
    new_max = tl.maximum(lane_max, tl.max(x, axis=2))
    # while a lane has seen -inf alone, any other shift keeps its sum at 0 instead of NaN
    shift = tl.where(new_max == _NEG_INF, 0.0, new_max)
    scale = _exp(tl.where(lane_max == _NEG_INF, _NEG_INF, lane_max - shift), PTX)
    return new_max, lane_sum * scale + tl.sum(_exp(x - shift[:, :, None], PTX), axis=2)


@triton.jit
def _tanh(x):
    """Of any size: the exponential of a negative number cannot overflow, and near 0 a series."""
    e = tl.exp(-2.0 * tl.abs(x))
    t = (1.0 - e) / (1.0 + e)
    t = tl.where(x < 0, -t, t)
    # below 1/4, where 1 - e has lost digits: 5 terms are wrong by 8e-9 of x there
    s = x * x
    series = x + x * s * (-1 / 3 + s * (2 / 15 + s * (-17 / 315 + s * (62 / 2835))))
    return tl.where(s < 0.0625, series, t)


@triton.jit
def _capped(x, mask, softcap, SOFTCAP: tl.constexpr):
    """softcap * tanh(x / softcap); a padding lane stays -inf."""
    x = x.to(tl.float32)
    if SOFTCAP:
        x = tl.where(mask, softcap * _tanh(x / softcap), _NEG_INF)
    return x


@triton.jit
def cross_entropy_fwd_kernel(
    x_ptr,  # [n_rows, n_cols] logits
    target_ptr,  # [n_rows] int32 or int64
    loss_ptr,  # [n_rows] float32
    lse_ptr,  # [n_rows] float32 or None
    n_rows,
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    ignore_index,
    smoothing,
    z_loss,
    softcap,
    SMOOTH: tl.constexpr,
    SOFTCAP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    SHIFT: tl.constexpr,
    EDGE: tl.constexpr,
    STAGES: tl.constexpr,
    PTX: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    release_next(OVERLAPS)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < n_rows
    offs = tl.arange(0, BLOCK_N)[None, :]
    head = row_head(row, stride_xo, SHIFT)
    n_vec = (n_cols - head) // VEC
    x_row = x_ptr + row_offset(row, x_inner, stride_xo, stride_xi)
    target = tl.load(target_ptr + row, mask=live, other=0).to(tl.int64)
    ignored = target == ignore_index
    valid = live & (target >= 0) & (target < n_cols)

    lane_max = tl.full((ROWS, BLOCK_N // VEC), _NEG_INF, tl.float32)
    lane_sum = tl.zeros((ROWS, BLOCK_N // VEC), tl.float32)
    logit_sum = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=STAGES):
        mask = live & ((start + offs) // VEC < n_vec)
        ptrs = vector_ptrs(x_row, head, (start + offs) * stride_xn, VEC)
        x = tl.load(ptrs, mask=mask, other=_NEG_INF, eviction_policy="evict_first")
        x = _capped(x, mask, softcap, SOFTCAP)
        lane_max, lane_sum = _accumulate(lane_max, lane_sum, x, VEC, PTX)
        if SMOOTH:
            logit_sum += tl.where(mask, x, 0.0)
    # only now: its address waits for the target, and all loads behind it would wait too
    x_target = tl.load(x_row + target * stride_xn, mask=valid, other=0.0)
    x_target = _capped(x_target, valid, softcap, SOFTCAP)
    row_max = tl.max(lane_max, axis=1)[:, None]
    total = tl.sum(logit_sum, axis=1)[:, None]
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT)
        used = live & used
        edge = tl.load(x_row + col * stride_xn, mask=used, other=_NEG_INF)
        edge = _capped(edge, used, softcap, SOFTCAP)
        row_max = tl.maximum(row_max, tl.max(edge, axis=1)[:, None])
        if SMOOTH:
            total += tl.sum(tl.where(used, edge, 0.0), axis=1)[:, None]
    row_sum = tl.sum(lane_sum * _exp(lane_max - row_max, PTX), axis=1)[:, None]
    if EDGE:
        row_sum += tl.sum(_exp(edge - row_max, PTX), axis=1)[:, None]
    log_sum = tl.log(row_sum)
    lse = row_max + log_sum

    # large logits leave no digits of log_sum in lse; their difference leaves all
    loss = log_sum + (row_max - x_target)
    if SMOOTH:
        mean = total / n_cols
        loss = log_sum + (1.0 - smoothing) * (row_max - x_target) + smoothing * (row_max - mean)
    loss += z_loss * lse * lse
    # a target outside the classes is read nowhere, and its loss is no number
    loss = tl.where(ignored, 0.0, tl.where(valid, loss, float("nan")))
    tl.store(loss_ptr + row, loss, mask=live)
    if lse_ptr is not None:
        tl.store(lse_ptr + row, lse, mask=live)


@triton.jit
def cross_entropy_sum_kernel(
    loss_ptr,  # [n_rows] float32
    target_ptr,  # [n_rows]
    out_ptr,  # [] float32
    count_ptr,  # [] float32 or None, rows that are not ignored
    n_rows,
    ignore_index,
    MEAN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """The sum or the mean of the losses, in a fixed order. Targets are counted before the wait."""
    if MEAN or count_ptr is not None:
        count = tl.zeros((BLOCK_M,), tl.float32)
        for start in tl.range(0, n_rows, BLOCK_M, num_stages=1):
            row = start + tl.arange(0, BLOCK_M)
            mask = row < n_rows
            target = tl.load(target_ptr + row, mask=mask, other=0).to(tl.int64)
            count += tl.where(mask & (target != ignore_index), 1.0, 0.0)
        n = tl.sum(count, axis=0)
    wait_for_previous(OVERLAPS)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for start in tl.range(0, n_rows, BLOCK_M, num_stages=1):
        row = start + tl.arange(0, BLOCK_M)
        total += tl.load(loss_ptr + row, mask=row < n_rows, other=0.0)
    out = tl.sum(total, axis=0)
    if MEAN:
        out = out / n
    tl.store(out_ptr, out)
    if count_ptr is not None:
        tl.store(count_ptr, n)


@triton.jit
def _gradient(
    x, mask, col, target, lse, scale, smoothing, z_loss, softcap, n_cols,
    SMOOTH: tl.constexpr, SOFTCAP: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """Gradient of the logits in one place of a row; scale is the upstream gradient of its loss."""
    x = _capped(x, mask, softcap, SOFTCAP)
    dx = _exp(x - lse, PTX) * (1.0 + 2.0 * z_loss * lse)
    if SMOOTH:
        dx -= smoothing / n_cols
        dx = tl.where(col == target, dx - (1.0 - smoothing), dx)
    else:
        dx = tl.where(col == target, dx - 1.0, dx)
    if SOFTCAP:
        t = x / softcap
        dx = dx * (1.0 - t * t)
    return dx * scale


@triton.jit
def cross_entropy_bwd_kernel(
    dloss_ptr,  # [n_rows] or [] float32
    x_ptr,  # [n_rows, n_cols] logits
    target_ptr,  # [n_rows]
    lse_ptr,  # [n_rows] float32
    count_ptr,  # [] float32 or None: rows that share the mean
    dx_ptr,  # [n_rows, n_cols]
    n_cols,
    n_chunks,
    stride_dloss,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    dx_inner,
    stride_dxo,
    stride_dxi,
    stride_dxn,
    ignore_index,
    smoothing,
    z_loss,
    softcap,
    SMOOTH: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    SHIFT: tl.constexpr,
    EDGE: tl.constexpr,
    PTX: tl.constexpr,
):
    """A chunk of a row a program: with the row's log-sum-exp known there is nothing to reduce."""
    pid = tl.program_id(0)
    chunk = pid % n_chunks
    row = (pid // n_chunks).to(tl.int64) + tl.zeros((1, 1), tl.int64)
    head = row_head(row, stride_xo, SHIFT)
    n_vec = (n_cols - head) // VEC
    x_row = x_ptr + row_offset(row, x_inner, stride_xo, stride_xi)
    dx_row = dx_ptr + row_offset(row, dx_inner, stride_dxo, stride_dxi)
    offs = chunk * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = offs // VEC < n_vec
    x = tl.load(vector_ptrs(x_row, head, offs * stride_xn, VEC), mask=mask, other=_NEG_INF)

    target = tl.load(target_ptr + row).to(tl.int64)
    lse = tl.load(lse_ptr + row)
    scale = tl.load(dloss_ptr + row * stride_dloss).to(tl.float32)
    if count_ptr is not None:
        scale = scale / tl.load(count_ptr)
    ignored = target == ignore_index
    scale = tl.where((target >= 0) & (target < n_cols), scale, float("nan"))
    scale = tl.where(ignored, 0.0, scale)
    target = target.to(tl.int32)
    dtype: tl.constexpr = dx_ptr.dtype.element_ty
    dx = _gradient(
        x, mask, head + offs, target, lse, scale, smoothing, z_loss, softcap, n_cols,
        SMOOTH, SOFTCAP, PTX,
    )  # fmt: skip
    dx = tl.where(ignored, 0.0, dx)
    tl.store(vector_ptrs(dx_row, head, offs * stride_dxn, VEC), dx.to(dtype), mask=mask)
    if EDGE:
        if chunk == 0:
            col, used = edge_columns(head, n_cols, VEC, SHIFT)
            x_edge = tl.load(x_row + col * stride_xn, mask=used, other=_NEG_INF)
            dx_edge = _gradient(
                x_edge, used, col, target, lse, scale, smoothing, z_loss, softcap, n_cols,
                SMOOTH, SOFTCAP, PTX,
            )  # fmt: skip
            dx_edge = tl.where(ignored, 0.0, dx_edge)
            tl.store(dx_row + col * stride_dxn, dx_edge.to(dtype), mask=used)
