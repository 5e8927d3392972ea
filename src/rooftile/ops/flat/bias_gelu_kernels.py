"""Kernels of bias, GELU, dropout and residual: blocks of columns over tiles of rows."""

from __future__ import annotations

import triton
import triton.language as tl

from rooftile.ops.flat.dropout import kept
from rooftile.ops.flat.gelu import gelu_and_derivative, gelu_of
from rooftile.ops.rows.address import row_offset
from rooftile.ops.rows.overlap import release_next, wait_for_previous


@triton.jit
def _aligned(ptrs, VEC: tl.constexpr):
    """Pointers along rows of whole vectors, known to be aligned to them."""
    if VEC > 1:
        itemsize: tl.constexpr = ptrs.dtype.element_ty.primitive_bitwidth // 8
        ptrs = tl.multiple_of(ptrs, (itemsize, VEC * itemsize))
    return ptrs


@triton.jit
def bias_gelu_dropout_residual_fwd_kernel(
    x_ptr,  # [n_rows, n_cols]
    bias_ptr,  # [n_cols] or None
    r_ptr,  # [n_rows, n_cols] or None
    seed_ptr,  # [1] int64 or None
    y_ptr,  # [n_rows, n_cols], contiguous
    n_rows,
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    r_inner,
    stride_ro,
    stride_ri,
    stride_rn,
    dropped,
    scale,
    ACTIVATION: tl.constexpr,
    FAST: tl.constexpr,
    PTX: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
):
    block = tl.program_id(0)  # three dimensions, so that no thread divides
    tile = tl.program_id(1) + tl.program_id(2) * tl.num_programs(1)
    row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = block * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    in_row = col // VEC < n_cols // VEC
    mask = (row < n_rows) & in_row
    x_ptrs = x_ptr + row_offset(row, x_inner, stride_xo, stride_xi) + col * stride_xn
    x = tl.load(_aligned(x_ptrs, VEC), mask=mask, other=0.0)
    if r_ptr is not None:  # loaded before any work, so that all loads are on their way
        r_ptrs = r_ptr + row_offset(row, r_inner, stride_ro, stride_ri) + col * stride_rn
        residual = tl.load(_aligned(r_ptrs, VEC), mask=mask, other=0.0)
    base = tl.zeros((ROWS, BLOCK_N), tl.float32)
    if r_ptr is not None:
        base = residual.to(tl.float32)
    y = x.to(tl.float32)
    if bias_ptr is not None:
        y += tl.load(bias_ptr + col, mask=in_row, other=0.0).to(tl.float32)
    if ACTIVATION != "none":
        y = gelu_of(y, ACTIVATION == "gelu_tanh", FAST, PTX)
    if seed_ptr is not None:
        first = block * (BLOCK_N // 8) + tl.arange(0, BLOCK_N // 8)[None, :]
        group = row * ((n_cols + 7) // 8) + first
        stays = kept(tl.load(seed_ptr), group, dropped, ROWS, BLOCK_N // 8)
        y = tl.where(stays, y * scale + base, base)
    else:
        y += base
    y_ptrs = _aligned(y_ptr + row * n_cols + col, VEC)
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def bias_gelu_dropout_residual_bwd_kernel(
    dy_ptr,  # [n_rows, n_cols]
    x_ptr,  # [n_rows, n_cols]
    bias_ptr,  # [n_cols] or None
    seed_ptr,  # [1] int64 or None
    dx_ptr,  # [n_rows, n_cols], contiguous
    db_ptr,  # [n_splits, n_cols] float32 or None
    n_rows,
    n_cols,
    n_blocks,  # of columns
    n_splits,  # of rows
    dy_inner,
    stride_dyo,
    stride_dyi,
    stride_dyn,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    dropped,
    scale,
    ACTIVATION: tl.constexpr,
    FAST: tl.constexpr,
    PTX: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """A block of columns and every n_splits-th tile of rows; the bias' gradient in registers."""
    release_next(OVERLAPS)
    pid = tl.program_id(0)
    split = (pid // n_blocks).to(tl.int64)
    col = pid % n_blocks * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    in_row = col // VEC < n_cols // VEC
    first = pid % n_blocks * (BLOCK_N // 8) + tl.arange(0, BLOCK_N // 8)[None, :]
    bias = tl.zeros((1, BLOCK_N), tl.float32)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + col, mask=in_row, other=0.0).to(tl.float32)
    if seed_ptr is not None:
        seed = tl.load(seed_ptr)
    db = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for tile in tl.range(0, tl.cdiv(n_rows, ROWS * n_splits), num_stages=STAGES):
        row = (tile * n_splits + split) * ROWS + tl.arange(0, ROWS)[:, None]
        mask = (row < n_rows) & in_row
        dy_ptrs = dy_ptr + row_offset(row, dy_inner, stride_dyo, stride_dyi) + col * stride_dyn
        dy = tl.load(_aligned(dy_ptrs, VEC), mask=mask, other=0.0)
        if ACTIVATION != "none":
            x_ptrs = x_ptr + row_offset(row, x_inner, stride_xo, stride_xi) + col * stride_xn
            x = tl.load(_aligned(x_ptrs, VEC), mask=mask, other=0.0)
        dx = dy.to(tl.float32)
        if seed_ptr is not None:
            group = row * ((n_cols + 7) // 8) + first
            dx = tl.where(kept(seed, group, dropped, ROWS, BLOCK_N // 8), dx * scale, 0.0)
        if ACTIVATION != "none":
            z = x.to(tl.float32) + bias
            dx *= gelu_and_derivative(z, ACTIVATION == "gelu_tanh", FAST, PTX)[1]
        dx_ptrs = _aligned(dx_ptr + row * n_cols + col, VEC)
        tl.store(dx_ptrs, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        db += dx
    if db_ptr is not None:
        at = db_ptr + split * n_cols + col
        tl.store(at, tl.sum(db, axis=0)[None, :], mask=in_row)


@triton.jit
def bias_grad_sum_kernel(
    part_ptr,  # [n_splits, n_cols] float32
    db_ptr,  # [n_cols]
    n_splits,
    n_cols,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """A block of columns each; programs may start while the backward still runs."""
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    wait_for_previous(OVERLAPS)
    for start in range(0, n_splits, ROWS):
        row = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        mask = (row < n_splits) & (col < n_cols)
        total += tl.load(part_ptr + row * n_cols + col, mask=mask, other=0.0)
    db = tl.sum(total, axis=0)[None, :]
    tl.store(db_ptr + col, db.to(db_ptr.dtype.element_ty), mask=col < n_cols)
