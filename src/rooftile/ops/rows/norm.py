"""Launches of the norms' forward: RMS norm and layer norm, with or without a residual."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from rooftile.ops._launch import compiler_options, launch, max_cluster, stays_packed
from rooftile.ops._replay import empty
from rooftile.ops.rows.address import VECTOR_BYTES, Rows, Vectors, rows_of, vectors
from rooftile.ops.rows.cluster_norm import norm_fwd_cluster_kernel
from rooftile.ops.rows.norm_kernels import (
    norm_fwd_kernel,
    norm_fwd_loop_kernel,
    shifted_copies_kernel,
)
from rooftile.ops.rows.resident import full_parts, may_stay
from rooftile.ops.rows.resident_norm import norm_fwd_resident_kernel
from rooftile.ops.rows.staying import n_clusters, stages_that_fit
from rooftile.ops.rows.warp_exchange import layout_options, ring_layout
from rooftile.ops.rows.warp_ptx import exchange_options
from rooftile.plan.launch import RowLaunch, row_launch

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


def matrix(t: Tensor, n_dims: int) -> tuple[Tensor, Rows]:
    """The rows of t, its normalized dimensions taken as one."""
    if n_dims > 1:
        t = t.flatten(-n_dims)
    return rows_of(t, t.dim() - 1)


class _Forward(NamedTuple):
    """What a forward reads and writes, how its rows lie and are cut, and what it computes."""

    x: Tensor
    r: Tensor
    weight: Tensor | None
    bias: Tensor | None
    h: Tensor
    y: Tensor
    stats: Statistics
    rows: tuple[Rows, Rows]
    cut: Vectors
    size: tuple[int, int]
    norm: Norm
    has_residual: bool


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
    size = x.numel() // n_cols, n_cols
    x, x_rows = matrix(x, norm.n_dims)
    r, r_rows = (x, x_rows) if residual is None else matrix(residual, norm.n_dims)
    h = y if h is None else h
    itemsize = max(t.element_size() for t in (x, r, h, y))
    family = "layer_norm_fwd" if norm.mean else "norm_fwd"
    if residual is not None:
        family = "add_norm_fwd"
    clusters, stay = max_cluster(x.device), may_stay(x.device)
    plan = row_launch(family, n_cols, itemsize, clusters=clusters, stay=stay)
    operands = (x, x_rows), (r, r_rows), (y, Rows(1, n_cols, 0, 1))
    cut = vectors(n_cols, itemsize, *operands, line_bytes=plan.line_bytes)
    weight, bias = as_row(weight), as_row(bias)
    on = _Forward(
        x, r, weight, bias, h, y, stats, (x_rows, r_rows), cut, size, norm, residual is not None
    )
    read = (x,) if residual is None else (x, r)
    same = len({t.dtype for t in read}) == 1  # the sum takes the place of x in shared memory
    combine = "moments" if norm.mean else "sums"
    stages = None
    if same:
        stages = stages_that_fit(plan, n_cols, cut.width, read, combine)
    if stages is not None:
        _stay(on, replace(plan, num_stages=stages))
        return
    if plan.kind == "resident":
        plan = row_launch(family, n_cols, itemsize, clusters=clusters)
    _once(on, plan, itemsize)


def _stay(on: _Forward, plan: RowLaunch) -> None:
    """Clusters that stay on the SMs."""
    device, norm, (n_rows, n_cols) = on.x.device, on.norm, on.size
    vec, shift, edge = on.cut
    x_rows, r_rows = on.rows
    combine = "moments" if norm.mean else "sums"
    launch(
        norm_fwd_resident_kernel, (n_clusters(plan, n_rows, device),), device,
        on.x, on.r, on.weight, on.bias, on.h, on.y, *on.stats,
        n_rows, n_cols, *x_rows[:3], *r_rows[:3], norm.eps, norm.offset or None,
        MEAN=norm.mean, HAS_RES=on.has_residual, CAST=norm.cast,
        VEC=vec, SHIFT=shift, EDGE=edge, FULL=full_parts(plan, n_cols, edge),
        STAGES=plan.num_stages, PACKED=on.x.element_size() == 2,
        SHARED=ring_layout(plan.cluster),
        **exchange_options(plan.cluster, plan.num_warps, combine),
        **layout_options(plan, vec, device),
    )  # fmt: skip


def _once(on: _Forward, plan: RowLaunch, itemsize: int) -> None:
    """A program, or a cluster, for each row or few rows."""
    device, norm, (n_rows, n_cols) = on.x.device, on.norm, on.size
    vec, shift, edge = on.cut
    x_rows, r_rows = on.rows
    weight, bias, stride_w = on.weight, on.bias, None
    if shift and n_rows >= _MIN_ROWS_FOR_COPIES and (weight is not None or bias is not None):
        stride_w = -(-n_cols // shift) * shift
        weight, bias = (_shifted_copies(t, vec, stride_w) for t in (weight, bias))
    tensors = (on.x, on.r, weight, bias, on.h, on.y, *on.stats)
    flags = {
        "MEAN": norm.mean, "HAS_RES": on.has_residual, "CAST": norm.cast,
        "BLOCK_N": plan.block_n, "VEC": vec, "SHIFT": shift, "EDGE": edge,
    }  # fmt: skip
    if plan.kind == "tile":
        launch(
            norm_fwd_kernel, (-(-n_rows // plan.rows),), device,
            *tensors, n_rows, n_cols, *x_rows, *r_rows, stride_w, norm.eps, norm.offset,
            ROWS=plan.rows, PACKED=stays_packed(plan, vec, device), **flags,
            **compiler_options(plan, device),
        )  # fmt: skip
    elif plan.kind == "cluster" and vec * itemsize == VECTOR_BYTES:
        launch(
            norm_fwd_cluster_kernel, (n_rows,), device,
            *tensors, n_cols, *x_rows[:3], *r_rows[:3], stride_w, norm.eps, norm.offset or None,
            MEAN=norm.mean, HAS_RES=on.has_residual, CAST=norm.cast,
            VEC=vec, SHIFT=shift, EDGE=edge, FULL=full_parts(plan, n_cols, edge),
            PACKED=itemsize == 2,
            **exchange_options(plan.cluster, plan.num_warps, "moments" if norm.mean else "sums"),
            **layout_options(plan, vec, device),
        )  # fmt: skip
    else:
        launch(
            norm_fwd_loop_kernel, (n_rows,), device,
            *tensors, n_cols, *x_rows, *r_rows, stride_w, norm.eps, norm.offset,
            STAGES=plan.num_stages, **flags, **compiler_options(plan, device),
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


def as_row(parameter: Tensor | None) -> Tensor | None:
    """A weight is one row: its copy costs nothing beside the rows it scales."""
    return None if parameter is None else parameter.contiguous()
