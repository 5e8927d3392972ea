"""Gated activations: kernels, launches and torch ops of SwiGLU and GeGLU."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rooftile.ops._check import check_float, check_like
from rooftile.ops._derivatives import once_differentiable
from rooftile.ops._launch import compiler_options, launch, register
from rooftile.ops._replay import empty
from rooftile.ops.flat.chunks import chunk_ptrs, chunks_of, tail_columns, whole_columns
from rooftile.ops.flat.gelu import gelu_and_derivative, gelu_of
from rooftile.plan.launch import row_launch


@triton.jit
def _activated(x, ACTIVATION: tl.constexpr, FAST: tl.constexpr):
    if ACTIVATION == "silu":
        y = x * tl.sigmoid(x)
    else:
        y = gelu_of(x, ACTIVATION == "gelu_tanh", FAST, False)
    return y


@triton.jit
def _activated_and_derivative(x, ACTIVATION: tl.constexpr, FAST: tl.constexpr):
    if ACTIVATION == "silu":
        s = tl.sigmoid(x)
        y = x * s
        dy = s + y * (1.0 - s)
    else:
        y, dy = gelu_and_derivative(x, ACTIVATION == "gelu_tanh", FAST, False)
    return y, dy


@triton.jit
def _forward(gate_ptrs, up_ptrs, y_ptrs, mask, ACTIVATION: tl.constexpr, FAST: tl.constexpr):
    gate = tl.load(gate_ptrs, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptrs, mask=mask, other=0.0).to(tl.float32)
    y = _activated(gate, ACTIVATION, FAST) * up
    tl.store(y_ptrs, y.to(y_ptrs.dtype.element_ty), mask=mask)


@triton.jit
def glu_fwd_kernel(
    gate_ptr,  # [n_rows, n_cols]
    up_ptr,  # [n_rows, n_cols]
    y_ptr,  # [n_rows, n_cols]
    n_cols,
    n_chunks,
    gate_inner,
    stride_go,
    stride_gi,
    stride_gn,
    up_inner,
    stride_uo,
    stride_ui,
    stride_un,
    y_inner,
    stride_yo,
    stride_yi,
    stride_yn,
    ACTIVATION: tl.constexpr,
    FAST: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    EDGE: tl.constexpr,
):
    row, col, mask = whole_columns(n_cols, n_chunks, BLOCK_N, VEC)
    _forward(
        chunk_ptrs(gate_ptr, row, col, gate_inner, stride_go, stride_gi, stride_gn, VEC),
        chunk_ptrs(up_ptr, row, col, up_inner, stride_uo, stride_ui, stride_un, VEC),
        chunk_ptrs(y_ptr, row, col, y_inner, stride_yo, stride_yi, stride_yn, VEC),
        mask, ACTIVATION, FAST,
    )  # fmt: skip
    if EDGE:
        col, mask = tail_columns(n_cols, n_chunks, VEC)
        _forward(gate_ptr + col, up_ptr + col, y_ptr + col, mask, ACTIVATION, FAST)


@triton.jit
def _backward(
    dy_ptrs, gate_ptrs, up_ptrs, dgate_ptrs, dup_ptrs, mask,
    ACTIVATION: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    dy = tl.load(dy_ptrs, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptrs, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptrs, mask=mask, other=0.0).to(tl.float32)
    activated, derivative = _activated_and_derivative(gate, ACTIVATION, FAST)
    tl.store(dgate_ptrs, (dy * up * derivative).to(dgate_ptrs.dtype.element_ty), mask=mask)
    tl.store(dup_ptrs, (dy * activated).to(dup_ptrs.dtype.element_ty), mask=mask)


@triton.jit
def glu_bwd_kernel(
    dy_ptr,  # [n_rows, n_cols]
    gate_ptr,  # [n_rows, n_cols]
    up_ptr,  # [n_rows, n_cols]
    dgate_ptr,  # [n_rows, n_cols]
    dup_ptr,  # [n_rows, n_cols], strides of dgate
    n_cols,
    n_chunks,
    dy_inner,
    stride_dyo,
    stride_dyi,
    stride_dyn,
    gate_inner,
    stride_go,
    stride_gi,
    stride_gn,
    up_inner,
    stride_uo,
    stride_ui,
    stride_un,
    dgate_inner,
    stride_do,
    stride_di,
    stride_dn,
    ACTIVATION: tl.constexpr,
    FAST: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,
    EDGE: tl.constexpr,
):
    row, col, mask = whole_columns(n_cols, n_chunks, BLOCK_N, VEC)
    _backward(
        chunk_ptrs(dy_ptr, row, col, dy_inner, stride_dyo, stride_dyi, stride_dyn, VEC),
        chunk_ptrs(gate_ptr, row, col, gate_inner, stride_go, stride_gi, stride_gn, VEC),
        chunk_ptrs(up_ptr, row, col, up_inner, stride_uo, stride_ui, stride_un, VEC),
        chunk_ptrs(dgate_ptr, row, col, dgate_inner, stride_do, stride_di, stride_dn, VEC),
        chunk_ptrs(dup_ptr, row, col, dgate_inner, stride_do, stride_di, stride_dn, VEC),
        mask, ACTIVATION, FAST,
    )  # fmt: skip
    if EDGE:
        col, mask = tail_columns(n_cols, n_chunks, VEC)
        _backward(
            dy_ptr + col, gate_ptr + col, up_ptr + col, dgate_ptr + col, dup_ptr + col,
            mask, ACTIVATION, FAST,
        )  # fmt: skip


def _glu_fwd(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    y = empty(gate.shape, gate.dtype, gate.device)
    if y.numel() == 0:
        return y
    cut = chunks_of(gate, up, y)
    plan = row_launch("flat", cut.n_cols, y.element_size())
    n_chunks = -(-cut.n_cols // plan.block_n)
    launch(
        glu_fwd_kernel, (cut.n_rows * n_chunks,), y.device,
        *cut.tensors, cut.n_cols, n_chunks, *cut.rows[0], *cut.rows[1], *cut.rows[2],
        ACTIVATION=activation, FAST=y.element_size() == 2, BLOCK_N=plan.block_n, VEC=cut.vec,
        EDGE=cut.edge, **compiler_options(plan, y.device),
    )  # fmt: skip
    return y


def _glu_bwd(dy: Tensor, gate: Tensor, up: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    dgate, dup = (empty(up.shape, up.dtype, up.device) for _ in range(2))
    if up.numel() == 0:
        return dgate, dup
    cut = chunks_of(dy, gate, up, dgate)
    plan = row_launch("flat", cut.n_cols, up.element_size())
    n_chunks = -(-cut.n_cols // plan.block_n)
    launch(
        glu_bwd_kernel, (cut.n_rows * n_chunks,), up.device,
        *cut.tensors, dup, cut.n_cols, n_chunks, *(s for rows in cut.rows for s in rows),
        ACTIVATION=activation, FAST=up.element_size() == 2, BLOCK_N=plan.block_n, VEC=cut.vec,
        EDGE=cut.edge, **compiler_options(plan, up.device),
    )  # fmt: skip
    return dgate, dup


fwd_op = register(
    "glu_fwd", "(Tensor gate, Tensor up, str activation) -> Tensor", _glu_fwd, replays=True
)
bwd_op = register(
    "glu_bwd",
    "(Tensor dy, Tensor gate, Tensor up, str activation) -> (Tensor, Tensor)",
    _glu_bwd,
    replays=True,
)


@torch.library.register_fake("rooftile::glu_fwd")
def _(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    return gate.new_empty(gate.shape)


@torch.library.register_fake("rooftile::glu_bwd")
def _(dy: Tensor, gate: Tensor, up: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    return up.new_empty(up.shape), up.new_empty(up.shape)


class _GLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, activation: str) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.activation = activation
        return fwd_op(gate, up, activation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        dgate, dup = bwd_op(dy, *ctx.saved_tensors, ctx.activation)
        want_gate, want_up, _ = ctx.needs_input_grad
        return dgate if want_gate else None, dup if want_up else None, None


def differentiable_glu(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    """Check both tensors and multiply one by the activation of the other."""
    check_float("gate", gate)
    check_like("up", up, "gate", gate)
    if torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad):
        return _GLU.apply(gate, up, activation)
    return fwd_op(gate, up, activation)
