"""Launches of the norms' backward: dx, dweight and dbias."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from rooftile.ops._launch import compiler_options, launch, max_cluster, sm_count, stays_packed
from rooftile.ops._replay import empty
from rooftile.ops.rows.address import VECTOR_BYTES, Rows, Vectors, vectors
from rooftile.ops.rows.bulk_rows import dealt, warp_options
from rooftile.ops.rows.cluster_norm_bwd import norm_bwd_cluster_kernel
from rooftile.ops.rows.norm import Norm, Statistics, as_row, matrix
from rooftile.ops.rows.norm_bwd_kernels import (
    column_sum_kernel,
    norm_bwd_columns_kernel,
    norm_bwd_dx_loop_kernel,
    norm_bwd_kernel,
    two_column_sums_kernel,
)
from rooftile.ops.rows.resident import (
    clusters_at_once,
    full_parts,
    may_stay,
    n_clusters,
    options,
    ring,
)
from rooftile.ops.rows.resident_norm_bwd import norm_bwd_resident_kernel
from rooftile.plan.launch import RowLaunch, row_launch

_FEW_COLS = 4096


_Parts = tuple[Tensor | None, Tensor | None]


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
    x, x_rows = matrix(x, norm.n_dims)
    dy, dy_rows = matrix(dy, norm.n_dims)
    g, g_rows = (dy, dy_rows) if dh is None else matrix(dh, norm.n_dims)
    itemsize = max(t.element_size() for t in (x, dy, g, wanted.dx))
    family = "norm_bwd" if dh is None else "add_norm_bwd"
    clusters, stay = max_cluster(x.device), may_stay(x.device)
    plan = row_launch(family, n_cols, itemsize, clusters=clusters, stay=stay)
    operands = _Operands(dy, g, x, as_row(weight), (dy_rows, g_rows, x_rows), dh is not None)
    dx_rows = Rows(1, n_cols, 0, 1)
    pairs = ((x, x_rows), (dy, dy_rows), (g, g_rows), (wanted.dx, dx_rows))
    vec = vectors(n_cols, itemsize, *pairs, line_bytes=plan.line_bytes)
    read = (x, dy) if dh is None else (x, dy, g)
    stages = ring(plan, n_cols, vec.width, x.device, read, (weight,))
    whole = all(vec.width * t.element_size() == VECTOR_BYTES for t in read)
    if (plan.kind == "resident" and not stages) or (plan.kind == "cluster" and not whole):
        plan = row_launch(family, n_cols, itemsize, clusters=clusters)
    if plan.kind == "cluster" and whole:
        parts = _cluster(operands, n_cols, vec, plan, stats, norm, wanted)
    elif plan.kind == "tile":
        parts = _tile(operands, n_cols, vec, plan, stats, norm, wanted)
    elif stages:
        parts = _resident(
            operands, n_cols, vec, replace(plan, num_stages=stages), stats, norm, wanted
        )
    else:
        parts = _loop(operands, n_cols, vec, plan, stats, norm, wanted)
    _sum_parts(parts, (wanted.dweight, wanted.dbias), n_cols, x.device)


def _sum_parts(
    parts: _Parts, gradients: tuple[Tensor | None, Tensor | None], n_cols: int, device: torch.device
) -> None:
    """Sum what each program has of dweight and dbias."""
    pairs = [
        (part, gradient)
        for part, gradient in zip(parts, gradients, strict=True)
        if part is not None and gradient is not None
    ]
    if not pairs:
        return
    # 16 KiB of parts a program, and as many programs as there are columns for
    cols = 16 if n_cols <= _FEW_COLS else 64
    sizes = {"ROWS": 4096 // cols, "BLOCK_N": cols, "num_warps": 4}
    n_parts, blocks = pairs[0][0].shape[0], -(-n_cols // cols)
    if len(pairs) == 1:
        ((part, gradient),) = pairs
        launch(column_sum_kernel, (blocks,), device, part, gradient, n_parts, n_cols, **sizes)
        return
    (a, a_out), (b, b_out) = pairs
    launch(
        two_column_sums_kernel, (blocks, 2), device, a, b, a_out, b_out, n_parts, n_cols, **sizes
    )


class _Operands(NamedTuple):
    """What the backward reads: dy, dh or dy, x, weight; rows of the first three."""

    dy: Tensor
    dh: Tensor
    x: Tensor
    weight: Tensor | None
    rows: tuple[Rows, Rows, Rows]
    has_dh: bool


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
        PACKED=stays_packed(plan, vec.width, on.x.device),
        enable_fp_fusion=n_cols > 1,  # g - mean(g) of one element is 0, dy * w - mean(g) fused not
        **compiler_options(plan, on.x.device),
    )  # fmt: skip
    return parts


def _resident(
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
        norm_bwd_resident_kernel, (clusters,), device,
        on.dy, on.dh, on.x, on.weight, stats.mean, stats.rstd, wanted.dx, *parts,
        n_rows, n_cols, *dy_rows[:3], *dh_rows[:3], *x_rows[:3], norm.offset or None,
        MEAN=norm.mean, HAS_DH=on.has_dh, VEC=vec.width, SHIFT=vec.shift, EDGE=vec.edge,
        FULL=full_parts(plan, n_cols, vec.edge),
        STAGES=plan.num_stages, **options(plan, vec.width, "sums", device),
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
    at_once = clusters_at_once(plan.cluster, device, plan.programs_per_sm)
    clusters = dealt(n_rows, at_once, vec.shift)
    parts = _parts(clusters, n_cols, wanted)
    launch(
        norm_bwd_cluster_kernel, (clusters,), device,
        on.dy, on.dh, on.x, on.weight, stats.mean, stats.rstd, wanted.dx, *parts,
        n_rows, n_cols, *dy_rows[:3], *dh_rows[:3], *x_rows[:3], norm.offset or None,
        MEAN=norm.mean, HAS_DH=on.has_dh, VEC=vec.width, SHIFT=vec.shift, EDGE=vec.edge,
        FULL=full_parts(plan, n_cols, vec.edge),
        PACKED=plan.packed and on.weight is not None and on.weight.element_size() == 2,
        **warp_options(plan, vec.width, device),
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
        STAGES=plan.num_stages, enable_fp_fusion=n_cols > 1, **compiler_options(plan, on.x.device),
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
