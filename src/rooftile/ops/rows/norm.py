"""Launches of the norms: what RMS norm and layer norm share, with or without a residual."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from rooftile.ops._launch import (
    compiler_options,
    launch,
    max_cluster,
    sm_count,
    stays_packed,
)
from rooftile.ops._replay import empty
from rooftile.ops.rows.address import VECTOR_BYTES, Rows, Vectors, rows_of, vectors
from rooftile.ops.rows.cluster import cluster_options, exchange_options, n_clusters
from rooftile.ops.rows.cluster_norm import norm_fwd_cluster_kernel
from rooftile.ops.rows.cluster_norm_bwd import norm_bwd_cluster_kernel
from rooftile.ops.rows.norm_bwd_kernels import (
    column_sum_kernel,
    norm_bwd_columns_kernel,
    norm_bwd_dx_loop_kernel,
    norm_bwd_kernel,
)
from rooftile.ops.rows.norm_kernels import (
    norm_fwd_kernel,
    norm_fwd_loop_kernel,
    shifted_copies_kernel,
)
from rooftile.plan.launch import RowLaunch, row_launch

_SUM_ROWS, _SUM_COLS = 32, 64  # a tile of partial sums: 8 KiB
_MIN_ROWS_FOR_COPIES = 64  # a copy of the weights costs as much as some rows


class Norm(NamedTuple):
    """Which norm.

    Attributes:
        n_dims: Trailing dimensions that are normalized together.
        eps: Added to the mean square or the variance.
        mean: Subtract the mean: layer norm.
        offset: Added to the weight in float32.
        cast: Round x_hat to the result's dtype before it meets the weight.
    """

    n_dims: int
    eps: float
    mean: bool
    offset: float = 0.0
    cast: bool = False


class Statistics(NamedTuple):
    """Per row, float32, of shape ``x.shape[:-n_dims]``; None where not wanted."""

    mean: Tensor | None
    rstd: Tensor | None


def statistics_like(x: Tensor, norm: Norm) -> Statistics:
    """Tensors for the statistics that a backward needs."""
    lead = x.shape[: x.dim() - norm.n_dims]
    mean = empty(lead, torch.float32, x.device) if norm.mean else None
    return Statistics(mean, empty(lead, torch.float32, x.device))


def _matrix(t: Tensor, n_dims: int) -> tuple[Tensor, Rows]:
    """The rows of t, its normalized dimensions taken as one."""
    if n_dims > 1:
        t = t.flatten(-n_dims)
    return rows_of(t, t.dim() - 1)


def norm_forward(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    norm: Norm,
    h: Tensor | None,
    y: Tensor,
    stats: Statistics,
) -> None:
    """Write y, the statistics and, with a residual, the sum h = x + residual."""
    if x.numel() == 0:
        return
    n_cols = prod(x.shape[x.dim() - norm.n_dims :])
    n_rows = x.numel() // n_cols
    x, x_rows = _matrix(x, norm.n_dims)
    r, r_rows = (x, x_rows) if residual is None else _matrix(residual, norm.n_dims)
    out_rows = Rows(1, n_cols, 0, 1)
    h = y if h is None else h
    itemsize = max(t.element_size() for t in (x, r, h, y))
    plan = row_launch("norm_fwd", n_cols, itemsize, clusters=max_cluster(x.device))
    if residual is not None:  # its sum is written as soon as it is read: nothing to read ahead
        plan = replace(plan, programs_per_sm=0)
    vec, shift, edge = vectors(
        n_cols, itemsize, (x, x_rows), (r, r_rows), (y, out_rows), line_bytes=plan.line_bytes
    )
    weight, bias = _contiguous(weight), _contiguous(bias)
    stride_w = None
    if shift and n_rows >= _MIN_ROWS_FOR_COPIES and (weight is not None or bias is not None):
        stride_w = -(-n_cols // shift) * shift
        weight, bias = (_shifted_copies(t, vec, stride_w) for t in (weight, bias))
    tensors = (x, r, weight, bias, h, y, stats.mean, stats.rstd)
    flags = {
        "MEAN": norm.mean, "HAS_RES": residual is not None, "CAST": norm.cast,
        "BLOCK_N": plan.block_n, "VEC": vec, "SHIFT": shift, "EDGE": edge,
    }  # fmt: skip
    if plan.kind == "tile":
        launch(
            norm_fwd_kernel, (-(-n_rows // plan.rows),), x.device,
            *tensors, n_rows, n_cols, *x_rows, *r_rows, stride_w, norm.eps, norm.offset,
            ROWS=plan.rows, PACKED=stays_packed(plan, vec, x.device), **flags,
            **compiler_options(plan, x.device),
        )  # fmt: skip
    elif plan.kind == "cluster" and vec * itemsize == VECTOR_BYTES:
        launch(
            norm_fwd_cluster_kernel, (n_clusters(plan, n_rows, shift, x.device),), x.device,
            *tensors, n_rows, n_cols, *x_rows[:3], *r_rows[:3], stride_w, norm.eps, norm.offset,
            PACKED=plan.packed and itemsize == 2,
            PERSISTENT=plan.programs_per_sm > 0,
            **exchange_options(
                plan.cluster, "moments" if norm.mean else "sums", plan.programs_per_sm > 0
            ),
            **flags, **cluster_options(plan, vec, x.device),
        )  # fmt: skip
    else:
        launch(
            norm_fwd_loop_kernel, (n_rows,), x.device,
            *tensors, n_cols, *x_rows, *r_rows, stride_w, norm.eps, norm.offset,
            STAGES=plan.num_stages, **flags, **compiler_options(plan, x.device),
        )  # fmt: skip


def _shifted_copies(parameter: Tensor | None, copies: int, stride: int) -> Tensor | None:
    """Copies of a weight that suit the vectors of rows with any head."""
    if parameter is None:
        return None
    out = empty((copies, stride), parameter.dtype, parameter.device)
    launch(
        shifted_copies_kernel, (-(-stride // 1024), copies), parameter.device,
        parameter, out, parameter.numel(), stride, BLOCK_N=1024, num_warps=4,
    )  # fmt: skip
    return out


def _contiguous(parameter: Tensor | None) -> Tensor | None:
    """A weight is one row: its copy costs nothing beside the rows it scales."""
    return None if parameter is None else parameter.contiguous()


class Wanted(NamedTuple):
    """Where gradients go; None where not wanted."""

    dx: Tensor
    dweight: Tensor | None
    dbias: Tensor | None


def norm_backward(
    dy: Tensor,
    dh: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    stats: Statistics,
    norm: Norm,
    wanted: Wanted,
) -> None:
    """Write dx, dweight and dbias; dh is the gradient of the sum where that is an output."""
    if x.numel() == 0:
        for gradient in (wanted.dweight, wanted.dbias):
            if gradient is not None:
                gradient.zero_()
        return
    n_cols = prod(x.shape[x.dim() - norm.n_dims :])
    x, x_rows = _matrix(x, norm.n_dims)
    dy, dy_rows = _matrix(dy, norm.n_dims)
    g, g_rows = (dy, dy_rows) if dh is None else _matrix(dh, norm.n_dims)
    itemsize = max(t.element_size() for t in (x, dy, g, wanted.dx))
    plan = row_launch("norm_bwd", n_cols, itemsize, clusters=max_cluster(x.device))
    operands = _Operands(dy, g, x, _contiguous(weight), (dy_rows, g_rows, x_rows), dh is not None)
    dx_rows = Rows(1, n_cols, 0, 1)
    pairs = ((x, x_rows), (dy, dy_rows), (g, g_rows), (wanted.dx, dx_rows))
    vec = vectors(n_cols, itemsize, *pairs, line_bytes=plan.line_bytes)
    whole = vec.width * itemsize == VECTOR_BYTES
    if plan.kind == "tile":
        parts = _tile(operands, n_cols, vec, plan, stats, norm, wanted)
    elif plan.kind == "cluster" and whole:
        parts = _cluster(operands, n_cols, vec, plan, stats, norm, wanted)
    else:
        parts = _loop(operands, n_cols, vec, plan, stats, norm, wanted)
    for part, gradient in zip(parts, (wanted.dweight, wanted.dbias), strict=True):
        if part is not None and gradient is not None:
            launch(
                column_sum_kernel, (-(-n_cols // _SUM_COLS),), x.device,
                part, gradient, part.shape[0], n_cols, ROWS=_SUM_ROWS, BLOCK_N=_SUM_COLS,
                num_warps=4,
            )  # fmt: skip


class _Operands(NamedTuple):
    """What the backward reads: dy, dh or dy, x, weight; rows of the first three."""

    dy: Tensor
    dh: Tensor
    x: Tensor
    weight: Tensor | None
    rows: tuple[Rows, Rows, Rows]
    has_dh: bool


_Parts = tuple[Tensor | None, Tensor | None]


def _parts(n_parts: int, n_cols: int, wanted: Wanted) -> _Parts:
    """Column sums of each program, to be summed by ``column_sum_kernel``."""
    like = [wanted.dweight, wanted.dbias]
    dw, db = (t if t is None else empty((n_parts, n_cols), torch.float32, t.device) for t in like)
    return dw, db


def _tile(
    on: _Operands,
    n_cols: int,
    vec: Vectors,
    plan: RowLaunch,
    stats: Statistics,
    norm: Norm,
    wanted: Wanted,
) -> _Parts:
    n_rows = on.x.numel() // n_cols
    dy_rows, dh_rows, x_rows = on.rows
    n_programs = min(-(-n_rows // plan.rows), sm_count(on.x.device) * plan.programs_per_sm)
    if vec.shift:  # rows of a program have one head
        n_programs = max(1, n_programs // vec.shift) * vec.shift
    parts = _parts(n_programs, n_cols, wanted)
    launch(
        norm_bwd_kernel, (n_programs,), on.x.device,
        on.dy, on.dh, on.x, on.weight, stats.mean, stats.rstd, wanted.dx, *parts,
        n_rows, n_cols, *dy_rows, *dh_rows, *x_rows, norm.offset,
        MEAN=norm.mean, HAS_DH=on.has_dh, ROWS=plan.rows, BLOCK_N=plan.block_n, VEC=vec.width,
        SHIFT=vec.shift, EDGE=vec.edge, PREFETCH=plan.num_stages == 2,
        STAGES=1 if plan.num_stages == 2 else plan.num_stages,
        PACKED=stays_packed(plan, vec.width, on.x.device), **compiler_options(plan, on.x.device),
    )  # fmt: skip
    return parts


def _cluster(
    on: _Operands,
    n_cols: int,
    vec: Vectors,
    plan: RowLaunch,
    stats: Statistics,
    norm: Norm,
    wanted: Wanted,
) -> _Parts:
    n_rows = on.x.numel() // n_cols
    dy_rows, dh_rows, x_rows = on.rows
    device = on.x.device
    clusters = n_clusters(plan, n_rows, vec.shift, device)
    parts = _parts(clusters, n_cols, wanted)
    launch(
        norm_bwd_cluster_kernel, (clusters,), device,
        on.dy, on.dh, on.x, on.weight, stats.mean, stats.rstd, wanted.dx, *parts,
        n_rows, n_cols, *dy_rows[:3], *dh_rows[:3], *x_rows[:3], norm.offset,
        MEAN=norm.mean, HAS_DH=on.has_dh, BLOCK_N=plan.block_n, VEC=vec.width, SHIFT=vec.shift,
        EDGE=vec.edge, PACKED=plan.packed and wanted.dx.element_size() == 2,
        **exchange_options(plan.cluster, looped=True),
        **cluster_options(plan, vec.width, device),
    )  # fmt: skip
    return parts


def _loop(
    on: _Operands,
    n_cols: int,
    vec: Vectors,
    plan: RowLaunch,
    stats: Statistics,
    norm: Norm,
    wanted: Wanted,
) -> _Parts:
    n_rows = on.x.numel() // n_cols
    dy_rows, dh_rows, x_rows = on.rows
    launch(
        norm_bwd_dx_loop_kernel, (n_rows,), on.x.device,
        on.dy, on.dh, on.x, on.weight, stats.mean, stats.rstd, wanted.dx,
        n_cols, *dy_rows, *dh_rows, *x_rows, norm.offset,
        MEAN=norm.mean, HAS_DH=on.has_dh, BLOCK_N=plan.block_n, VEC=1 if vec.edge else vec.width,
        STAGES=plan.num_stages, **compiler_options(plan, on.x.device),
    )  # fmt: skip
    if wanted.dweight is None and wanted.dbias is None:
        return None, None
    rows, block_n = 16, 128
    blocks = -(-n_cols // block_n)
    splits = max(1, min(-(-n_rows // rows), 4 * sm_count(on.x.device) // blocks))
    parts = _parts(splits, n_cols, wanted)
    launch(
        norm_bwd_columns_kernel, (blocks, splits), on.x.device,
        on.dy, on.x, stats.mean, stats.rstd, *parts, n_rows, n_cols, *dy_rows, *x_rows,
        MEAN=norm.mean, ROWS=rows, BLOCK_N=block_n, STAGES=plan.num_stages, num_warps=4,
    )  # fmt: skip
    return parts
