"""Backward kernels of RMS and layer norm: dx by rows, dweight and dbias by columns.

With x_hat = (x - mean) * rstd and g = dy * (weight + offset), a row's gradient is
``dx = (g - mean(g) - x_hat * mean(g * x_hat)) * rstd``, without ``mean(g)`` for RMS norm.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rooftile.ops.rows.address import (
    edge_columns,
    edge_lanes,
    mean_of,
    reload,
    row_head,
    row_offset,
    vector_ptrs,
)


@triton.jit
def _weighted(dy, w_ptr, col, mask, offset):
    """The gradient of x_hat."""
    if w_ptr is not None:
        dy = dy * (tl.load(w_ptr + col, mask=mask, other=0.0).to(tl.float32) + offset)
    return dy


@triton.jit
def _input_gradient(g, x_hat, rstd, g_mean, gx_mean, dh_ptrs, mask, HAS_DH: tl.constexpr):
    """dx, with the gradient of the sum x + residual where that is an output too."""
    dx = (g - g_mean - x_hat * gx_mean) * rstd
    if HAS_DH:
        dx += tl.load(dh_ptrs, mask=mask, other=0.0).to(tl.float32)
    return dx


@triton.jit
def _tile_rows(tile, pid, n_programs, ROWS: tl.constexpr, SHIFT: tl.constexpr):
    """The rows of a program's tile: neighbours, or with one head."""
    lane = tl.arange(0, ROWS)[:, None]
    if SHIFT:
        row = (tile * ROWS + lane) * n_programs + pid
    else:
        row = (tile * n_programs + pid) * ROWS + lane
    return row


@triton.jit
def _statistics(mean_ptr, rstd_ptr, row, n_rows):
    """Mean (0 for RMS norm) and 1/deviation of rows."""
    rstd = tl.load(rstd_ptr + row, mask=row < n_rows, other=0.0)
    mean = rstd * 0.0
    if mean_ptr is not None:
        mean = tl.load(mean_ptr + row, mask=row < n_rows, other=0.0)
    return mean, rstd


@triton.jit
def norm_bwd_kernel(
    dy_ptr,  # [n_rows, n_cols]
    dh_ptr,  # [n_rows, n_cols], gradient of x + residual, or dy
    x_ptr,  # [n_rows, n_cols], the normalized tensor
    w_ptr,  # [n_cols] or None
    mean_ptr,  # [n_rows] float32 or None
    rstd_ptr,  # [n_rows] float32
    dx_ptr,  # [n_rows, n_cols], contiguous
    dw_ptr,  # [n_programs, n_cols] float32 or None
    db_ptr,  # [n_programs, n_cols] float32 or None
    n_rows,
    n_cols,
    dy_inner,
    stride_dyo,
    stride_dyi,
    stride_dyn,
    dh_inner,
    stride_dho,
    stride_dhi,
    stride_dhn,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    offset,
    MEAN: tl.constexpr,
    HAS_DH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    SHIFT: tl.constexpr,
    EDGE: tl.constexpr,
    PACKED: tl.constexpr,
    PREFETCH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A persistent grid; each program keeps the column sums of its rows in registers.

    With SHIFT a program takes every n_programs-th row, n_programs a multiple of SHIFT: all its rows
    then have one head, and a lane's sums belong to one column.
    """
    pid = tl.program_id(0).to(tl.int64)
    n_programs = tl.num_programs(0)
    offs = tl.arange(0, BLOCK_N)[None, :]
    head = row_head(pid + tl.zeros((1, 1), tl.int64), stride_xo, SHIFT)
    in_row = offs // VEC < (n_cols - head) // VEC
    dw = tl.zeros((ROWS, BLOCK_N), tl.float32)
    db = tl.zeros((ROWS, BLOCK_N), tl.float32)
    if EDGE:
        col, used = edge_columns(head, n_cols, VEC, SHIFT)
        dw_edge = tl.zeros((ROWS, edge_lanes(VEC, SHIFT)), tl.float32)
        db_edge = tl.zeros((ROWS, edge_lanes(VEC, SHIFT)), tl.float32)

    w_raw = tl.full((1, 1), 1.0, tl.float32)
    if w_ptr is not None:
        w_raw = tl.load(w_ptr + head + offs, mask=in_row, other=0.0)

    # with PREFETCH the next tile is on its way in registers while one is worked on; with stages
    # the compiler loads tiles ahead into shared memory
    first = pid * 0  # int64: every row index is
    if PREFETCH:
        row = _tile_rows(first, pid, n_programs, ROWS, SHIFT)
        mask = (row < n_rows) & in_row
        x_row = x_ptr + row_offset(row, x_inner, stride_xo, stride_xi)
        dy_row = dy_ptr + row_offset(row, dy_inner, stride_dyo, stride_dyi)
        x_next = tl.load(vector_ptrs(x_row, head, offs * stride_xn, VEC), mask=mask, other=0.0)
        dy_next = tl.load(vector_ptrs(dy_row, head, offs * stride_dyn, VEC), mask=mask, other=0.0)
        mean_next, rstd_next = _statistics(mean_ptr, rstd_ptr, row, n_rows)
    for tile in tl.range(0, tl.cdiv(n_rows, ROWS * n_programs), num_stages=STAGES):
        if PREFETCH:
            x_raw = x_next
            dy_raw = dy_next
            mean = mean_next
            rstd = rstd_next
            after = _tile_rows(first + tile + 1, pid, n_programs, ROWS, SHIFT)
            ahead = (after < n_rows) & in_row
            x_at = x_ptr + row_offset(after, x_inner, stride_xo, stride_xi)
            dy_at = dy_ptr + row_offset(after, dy_inner, stride_dyo, stride_dyi)
            x_next = tl.load(vector_ptrs(x_at, head, offs * stride_xn, VEC), mask=ahead, other=0.0)
            dy_ptrs = vector_ptrs(dy_at, head, offs * stride_dyn, VEC)
            dy_next = tl.load(dy_ptrs, mask=ahead, other=0.0)
            mean_next, rstd_next = _statistics(mean_ptr, rstd_ptr, after, n_rows)
        here = _tile_rows(first + tile, pid, n_programs, ROWS, SHIFT)
        live = here < n_rows
        mask_here = live & in_row
        x_here = x_ptr + row_offset(here, x_inner, stride_xo, stride_xi)
        dy_here = dy_ptr + row_offset(here, dy_inner, stride_dyo, stride_dyi)
        if not PREFETCH:
            x_ptrs = vector_ptrs(x_here, head, offs * stride_xn, VEC)
            x_raw = tl.load(x_ptrs, mask=mask_here, other=0.0)
            dy_at = vector_ptrs(dy_here, head, offs * stride_dyn, VEC)
            dy_raw = tl.load(dy_at, mask=mask_here, other=0.0)
            mean, rstd = _statistics(mean_ptr, rstd_ptr, here, n_rows)
        dh_row = dh_ptr + row_offset(here, dh_inner, stride_dho, stride_dhi)
        dx_row = dx_ptr + here * n_cols
        dy = dy_raw.to(tl.float32)
        x_hat = (x_raw.to(tl.float32) - mean) * rstd
        g = dy
        if w_ptr is not None:
            g = dy * (reload(w_raw, PACKED).to(tl.float32) + offset)
        gx_mean = tl.sum(g * x_hat, axis=1)[:, None]
        g_mean = tl.zeros((ROWS, 1), tl.float32)
        if MEAN:
            g_mean = tl.sum(g, axis=1)[:, None]
        if EDGE:
            live_edge = live & used
            x_edge = tl.load(x_here + col * stride_xn, mask=live_edge, other=0.0).to(tl.float32)
            dy_edge = tl.load(dy_here + col * stride_dyn, mask=live_edge, other=0.0).to(tl.float32)
            x_edge = (x_edge - mean) * rstd
            g_edge = _weighted(dy_edge, w_ptr, col, used, offset)
            gx_mean += tl.sum(g_edge * x_edge, axis=1)[:, None]
            if MEAN:
                g_mean += tl.sum(g_edge, axis=1)[:, None]
            dw_edge += dy_edge * x_edge
            db_edge += dy_edge
        gx_mean = mean_of(gx_mean, n_cols)
        g_mean = mean_of(g_mean, n_cols)
        if EDGE:
            dx_edge = _input_gradient(
                g_edge, x_edge, rstd, g_mean, gx_mean, dh_row + col * stride_dhn, live_edge, HAS_DH
            )
            tl.store(dx_row + col, dx_edge.to(dx_ptr.dtype.element_ty), mask=live_edge)
        dh_ptrs = vector_ptrs(dh_row, head, offs * stride_dhn, VEC)
        dx = _input_gradient(g, x_hat, rstd, g_mean, gx_mean, dh_ptrs, mask_here, HAS_DH)
        dx = dx.to(dx_ptr.dtype.element_ty)
        tl.store(vector_ptrs(dx_row, head, offs, VEC), dx, mask=mask_here)
        if dw_ptr is not None:
            dw += dy * x_hat
        if db_ptr is not None:
            db += dy
    if dw_ptr is not None:
        at = dw_ptr + pid * n_cols + head
        tl.store(at + offs, tl.sum(dw, axis=0)[None, :], mask=in_row)
        if EDGE:
            at = dw_ptr + pid * n_cols
            tl.store(at + col, tl.sum(dw_edge, axis=0)[None, :], mask=used)
    if db_ptr is not None:
        at = db_ptr + pid * n_cols + head
        tl.store(at + offs, tl.sum(db, axis=0)[None, :], mask=in_row)
        if EDGE:
            at = db_ptr + pid * n_cols
            tl.store(at + col, tl.sum(db_edge, axis=0)[None, :], mask=used)


@triton.jit
def norm_bwd_dx_loop_kernel(
    dy_ptr,  # [n_rows, n_cols]
    dh_ptr,  # [n_rows, n_cols], gradient of x + residual, or dy
    x_ptr,  # [n_rows, n_cols], the normalized tensor
    w_ptr,  # [n_cols] or None
    mean_ptr,  # [n_rows] float32 or None
    rstd_ptr,  # [n_rows] float32
    dx_ptr,  # [n_rows, n_cols], contiguous
    n_cols,
    dy_inner,
    stride_dyo,
    stride_dyi,
    stride_dyn,
    dh_inner,
    stride_dho,
    stride_dhi,
    stride_dhn,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    offset,
    MEAN: tl.constexpr,
    HAS_DH: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    STAGES: tl.constexpr,
):
    """dx of one long row: its sums, then the row again out of L2. No head: VEC divides the row."""
    row = tl.program_id(0).to(tl.int64) + tl.zeros((1, 1), tl.int64)
    offs = tl.arange(0, BLOCK_N)[None, :]
    n_vec = n_cols // VEC
    x_row = x_ptr + row_offset(row, x_inner, stride_xo, stride_xi)
    dy_row = dy_ptr + row_offset(row, dy_inner, stride_dyo, stride_dyi)
    dh_row = dh_ptr + row_offset(row, dh_inner, stride_dho, stride_dhi)
    dx_row = dx_ptr + row * n_cols
    rstd = tl.load(rstd_ptr + row)
    mean = tl.zeros((1, 1), tl.float32)
    if MEAN:
        mean = tl.load(mean_ptr + row)
    gx_sum = tl.zeros((1, BLOCK_N), tl.float32)
    g_sum = tl.zeros((1, BLOCK_N), tl.float32)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=STAGES):
        at = start + offs
        mask = at // VEC < n_vec
        x = tl.load(
            vector_ptrs(x_row, 0, at * stride_xn, VEC),
            mask=mask,
            other=0.0,
            eviction_policy="evict_last",
        )
        dy = tl.load(
            vector_ptrs(dy_row, 0, at * stride_dyn, VEC),
            mask=mask,
            other=0.0,
            eviction_policy="evict_last",
        )
        g = _weighted(dy.to(tl.float32), w_ptr, at, mask, offset)
        gx_sum += g * (x.to(tl.float32) - mean)
        g_sum += g
    gx_mean = mean_of(tl.sum(gx_sum, axis=1)[:, None] * rstd, n_cols)
    g_mean = tl.zeros((1, 1), tl.float32)
    if MEAN:
        g_mean = mean_of(tl.sum(g_sum, axis=1)[:, None], n_cols)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=STAGES):
        at = start + offs
        mask = at // VEC < n_vec
        x = tl.load(
            vector_ptrs(x_row, 0, at * stride_xn, VEC),
            mask=mask,
            other=0.0,
            eviction_policy="evict_first",
        )
        dy = tl.load(
            vector_ptrs(dy_row, 0, at * stride_dyn, VEC),
            mask=mask,
            other=0.0,
            eviction_policy="evict_first",
        )
        g = _weighted(dy.to(tl.float32), w_ptr, at, mask, offset)
        x_hat = (x.to(tl.float32) - mean) * rstd
        dh_ptrs = vector_ptrs(dh_row, 0, at * stride_dhn, VEC)
        dx = _input_gradient(g, x_hat, rstd, g_mean, gx_mean, dh_ptrs, mask, HAS_DH)
        tl.store(vector_ptrs(dx_row, 0, at, VEC), dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def norm_bwd_columns_kernel(
    dy_ptr,  # [n_rows, n_cols]
    x_ptr,  # [n_rows, n_cols], the normalized tensor
    mean_ptr,  # [n_rows] float32 or None
    rstd_ptr,  # [n_rows] float32
    dw_ptr,  # [n_splits, n_cols] float32 or None
    db_ptr,  # [n_splits, n_cols] float32 or None
    n_rows,
    n_cols,
    dy_inner,
    stride_dyo,
    stride_dyi,
    stride_dyn,
    x_inner,
    stride_xo,
    stride_xi,
    stride_xn,
    MEAN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Column sums of dy * x_hat and dy where rows are too long for ``norm_bwd_kernel``."""
    pid_m = tl.program_id(1).to(tl.int64)
    n_splits = tl.num_programs(1)
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    dw = tl.zeros((ROWS, BLOCK_N), tl.float32)
    db = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for tile in tl.range(0, tl.cdiv(n_rows, ROWS * n_splits), num_stages=STAGES):
        row = (tile * n_splits + pid_m) * ROWS + tl.arange(0, ROWS)[:, None]
        mask = (row < n_rows) & (col < n_cols)
        x_off = row_offset(row, x_inner, stride_xo, stride_xi)
        dy_off = row_offset(row, dy_inner, stride_dyo, stride_dyi)
        x = tl.load(x_ptr + x_off + col * stride_xn, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + dy_off + col * stride_dyn, mask=mask, other=0.0).to(tl.float32)
        if MEAN:
            x = x - tl.load(mean_ptr + row, mask=row < n_rows, other=0.0)
        dw += dy * x * tl.load(rstd_ptr + row, mask=row < n_rows, other=0.0)
        db += dy
    if dw_ptr is not None:
        at = dw_ptr + pid_m * n_cols + col
        tl.store(at, tl.sum(dw, axis=0)[None, :], mask=col < n_cols)
    if db_ptr is not None:
        at = db_ptr + pid_m * n_cols + col
        tl.store(at, tl.sum(db, axis=0)[None, :], mask=col < n_cols)


@triton.jit
def _column_sum(part_ptr, out_ptr, n_parts, n_cols, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):
    """Sum the programs' parts in a fixed order."""
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in range(0, n_parts, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        mask = (row < n_parts) & (col < n_cols)
        total += tl.load(part_ptr + row.to(tl.int64) * n_cols + col, mask=mask, other=0.0)
    out = tl.sum(total, axis=0)[None, :].to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + col, out, mask=col < n_cols)


@triton.jit
def column_sum_kernel(
    part_ptr,  # [n_parts, n_cols] float32
    out_ptr,  # [n_cols]
    n_parts,
    n_cols,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    _column_sum(part_ptr, out_ptr, n_parts, n_cols, ROWS, BLOCK_N)


@triton.jit
def two_column_sums_kernel(
    a_ptr,  # [n_parts, n_cols] float32
    b_ptr,  # [n_parts, n_cols] float32
    a_out_ptr,  # [n_cols]
    b_out_ptr,  # [n_cols]
    n_parts,
    n_cols,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Both at a time: alone neither fills the GPU."""
    if tl.program_id(1) == 0:
        _column_sum(a_ptr, a_out_ptr, n_parts, n_cols, ROWS, BLOCK_N)
    else:
        _column_sum(b_ptr, b_out_ptr, n_parts, n_cols, ROWS, BLOCK_N)
