"""Launches of softmax and log-softmax along any dimension, and their torch ops."""

from __future__ import annotations

import torch
from torch import Tensor

from rooftile.ops._derivatives import once_differentiable
from rooftile.ops._launch import (
    compiler_options,
    launch,
    max_cluster,
    register,
    stays_packed,
)
from rooftile.ops._replay import empty
from rooftile.ops.rows.address import VECTOR_BYTES, rows_of, vectors
from rooftile.ops.rows.cluster_softmax import (
    softmax_bwd_cluster_kernel,
    softmax_fwd_cluster_kernel,
)
from rooftile.ops.rows.softmax_kernels import (
    softmax_bwd_kernel,
    softmax_bwd_loop_kernel,
    softmax_fwd_kernel,
    softmax_fwd_loop_kernel,
)
from rooftile.ops.rows.warp_exchange import layout_options
from rooftile.ops.rows.warp_ptx import exchange_options
from rooftile.plan.launch import row_launch


def _softmax_fwd(x: Tensor, dim: int, log: bool, dtype: torch.dtype | None) -> Tensor:
    y = empty(x.shape, dtype or x.dtype, x.device)
    if x.numel() == 0:
        return y
    x, x_rows = rows_of(x, dim)
    _, y_rows = rows_of(y, dim)
    n_cols = x.shape[dim]
    n_rows = x.numel() // n_cols
    itemsize = max(x.element_size(), y.element_size())
    plan = row_launch("softmax_fwd", n_cols, itemsize, clusters=max_cluster(x.device))
    vec, shift, edge = vectors(
        n_cols, itemsize, (x, x_rows), (y, y_rows), line_bytes=plan.line_bytes
    )
    if plan.kind == "tile":
        launch(
            softmax_fwd_kernel, (-(-n_rows // plan.rows),), x.device,
            x, y, n_rows, n_cols, *x_rows, *y_rows,
            LOG=log, ROWS=plan.rows, BLOCK_N=plan.block_n, VEC=vec, SHIFT=shift, EDGE=edge,
            PACKED=stays_packed(plan, vec, x.device), **compiler_options(plan, x.device),
        )  # fmt: skip
    elif plan.kind == "cluster" and vec * itemsize == VECTOR_BYTES:
        launch(
            softmax_fwd_cluster_kernel, (n_rows,), x.device,
            x, y, n_cols, *x_rows[:3], *y_rows[:3],
            LOG=log, VEC=vec, SHIFT=shift, EDGE=edge, PACKED=x.element_size() == 2,
            **exchange_options(plan.cluster, plan.num_warps, "softmax"),
            **layout_options(plan, vec, x.device),
        )  # fmt: skip
    else:
        launch(
            softmax_fwd_loop_kernel, (n_rows,), x.device,
            x, y, n_cols, *x_rows, *y_rows,
            LOG=log, BLOCK_N=plan.block_n, VEC=vec, SHIFT=shift, EDGE=edge,
            STAGES=plan.num_stages, **compiler_options(plan, x.device),
        )  # fmt: skip
    return y


def _softmax_bwd(dy: Tensor, y: Tensor, dim: int, log: bool, dtype: torch.dtype | None) -> Tensor:
    dx = empty(y.shape, dtype or y.dtype, y.device)
    if y.numel() == 0:
        return dx
    dy, dy_rows = rows_of(dy, dim)
    y, y_rows = rows_of(y.contiguous(), dim)  # contiguous already, unless a caller made it not so
    n_cols = y.shape[dim]
    n_rows = y.numel() // n_cols
    itemsize = max(dy.element_size(), y.element_size(), dx.element_size())
    plan = row_launch("softmax_bwd", n_cols, itemsize, clusters=max_cluster(y.device))
    vec, shift, edge = vectors(
        n_cols, itemsize, (y, y_rows), (dy, dy_rows), (dx, y_rows), line_bytes=plan.line_bytes
    )
    if plan.kind == "tile":
        launch(
            softmax_bwd_kernel, (-(-n_rows // plan.rows),), y.device,
            y, dy, dx, n_rows, n_cols, *y_rows, *dy_rows,
            LOG=log, ROWS=plan.rows, BLOCK_N=plan.block_n, VEC=vec, SHIFT=shift, EDGE=edge,
            PACKED=stays_packed(plan, vec, y.device), **compiler_options(plan, y.device),
        )  # fmt: skip
    elif plan.kind == "cluster" and vec * itemsize == VECTOR_BYTES:
        launch(
            softmax_bwd_cluster_kernel, (n_rows,), y.device,
            y, dy, dx, n_cols, *y_rows[:3], *dy_rows[:3],
            LOG=log, VEC=vec, SHIFT=shift, EDGE=edge, PACKED=itemsize == 2,
            **exchange_options(plan.cluster, plan.num_warps, "sums"),
            **layout_options(plan, vec, y.device),
        )  # fmt: skip
    else:
        launch(
            softmax_bwd_loop_kernel, (n_rows,), y.device,
            y, dy, dx, n_cols, *y_rows, *dy_rows,
            LOG=log, BLOCK_N=plan.block_n, VEC=vec, SHIFT=shift, EDGE=edge,
            STAGES=plan.num_stages, **compiler_options(plan, y.device),
        )  # fmt: skip
    return dx


fwd_op = register(
    "softmax_fwd",
    "(Tensor x, int dim, bool log, ScalarType? dtype) -> Tensor",
    _softmax_fwd,
    replays=True,
)
bwd_op = register(
    "softmax_bwd",
    "(Tensor dy, Tensor y, int dim, bool log, ScalarType? dtype) -> Tensor",
    _softmax_bwd,
    replays=True,
)


@torch.library.register_fake("rooftile::softmax_fwd")
def _(x: Tensor, dim: int, log: bool, dtype: torch.dtype | None) -> Tensor:
    return x.new_empty(x.shape, dtype=dtype or x.dtype)


@torch.library.register_fake("rooftile::softmax_bwd")
def _(dy: Tensor, y: Tensor, dim: int, log: bool, dtype: torch.dtype | None) -> Tensor:
    return y.new_empty(y.shape, dtype=dtype or y.dtype)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, dim: int, log: bool, dtype: torch.dtype | None) -> Tensor:
        y = fwd_op(x, dim, log, dtype)
        ctx.save_for_backward(y)
        ctx.args = dim, log, x.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None, None, None]:
        (y,) = ctx.saved_tensors
        return bwd_op(dy, y, *ctx.args), None, None, None


def differentiable_softmax(x: Tensor, dim: int, log: bool, dtype: torch.dtype | None) -> Tensor:
    """Softmax or its logarithm; the graph is recorded only where a gradient can be asked for."""
    if x.requires_grad and torch.is_grad_enabled():
        return _Softmax.apply(x, dim, log, dtype)
    return fwd_op(x, dim, log, dtype)
