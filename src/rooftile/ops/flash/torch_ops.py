"""The torch ops behind attention, and its autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rooftile.ops._derivatives import once_differentiable
from rooftile.ops._launch import register
from rooftile.ops.flash.bwd import (
    delta_of,
    launch_dkdv,
    launch_dmask,
    launch_dq,
    sink_gradient,
)
from rooftile.ops.flash.call import Call
from rooftile.ops.flash.choose import run_forward, run_hopper_backward, runs_hopper_backward

# Of a call, in the order of the fields of ``Call``.
_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? slopes, Tensor? sinks, Tensor? cu_q, "
    "Tensor? cu_k, Tensor? k_lens, Tensor? block_table, Tensor? seed, float scale, "
    "float softcap, int window_left, int window_right, bool bottom_right, float dropout_p, "
    "SymInt longest_q, SymInt longest_k, bool deterministic, bool mask_gradient"
)
N_ARGUMENTS = _ARGUMENTS.count(",") + 1
_DIFFERENTIABLE = (0, 1, 2, 3, 5)  # q, k, v, mask, sinks


def _attention_fwd(*args: Any) -> tuple[Tensor, Tensor]:
    *fields, num_splits, heads_inside = args
    call = Call(*fields)
    q = call.q
    o = _empty(q, call.v.shape[-1], heads_inside)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    run_forward(call, o, lse, num_splits)
    return o, lse


def _attention_bwd(*args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    do, dlse, o, lse, *fields, heads_inside, wanted = args
    call = Call(*fields)
    dq, dk, dv, dmask, dsinks = _gradients(
        call.q, call.k, call.v, call.mask, call.sinks, heads_inside, wanted
    )
    if runs_hopper_backward(call, dlse):
        run_hopper_backward(call, do, o, lse, (dq, dk, dv))
        return dq, dk, dv, dmask, dsinks
    delta = delta_of(do, dlse, o)
    if wanted[0]:
        launch_dq(call, do, lse, delta, dq)
    if wanted[1] or wanted[2]:
        launch_dkdv(call, do, lse, delta, dk, dv)
    if wanted[3]:
        launch_dmask(call, do, lse, delta, dmask)
    if wanted[4]:
        dsinks = sink_gradient(call, lse, delta)
    return dq, dk, dv, dmask, dsinks


def _empty(like: Tensor, width: int, heads_inside: bool) -> Tensor:
    """A tensor [batch, heads, rows, width]; heads_inside: laid out as [batch, rows, heads, width].

    As torch.empty, not new_empty: that is what tests fill with NaN.
    """
    batch, heads, rows, _ = like.shape
    shape = (batch, rows, heads, width) if heads_inside else (batch, heads, rows, width)
    made = torch.empty(shape, dtype=like.dtype, device=like.device)
    return made.transpose(1, 2) if heads_inside else made


def _gradients(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor | None,
    heads_inside: bool, wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Room for what is wanted; the gradients of keys and values are made by one kernel."""
    none = q.new_empty(0)
    either = wanted[1] or wanted[2]
    return (
        _empty(q, q.shape[-1], heads_inside) if wanted[0] else none,
        _empty(k, k.shape[-1], heads_inside) if either else q.new_empty(0),
        _empty(v, v.shape[-1], heads_inside) if either else q.new_empty(0),
        torch.empty(mask.shape, dtype=mask.dtype, device=mask.device)
        if wanted[3] and mask is not None
        else q.new_empty(0),
        torch.empty_like(sinks) if wanted[4] and sinks is not None else q.new_empty(0),
    )


fwd_op = register(
    "attention_fwd",
    f"({_ARGUMENTS}, SymInt num_splits, bool heads_inside) -> (Tensor o, Tensor lse)",
    _attention_fwd,
)
bwd_op = register(
    "attention_bwd",
    f"(Tensor do, Tensor? dlse, Tensor o, Tensor lse, {_ARGUMENTS}, bool heads_inside, "
    "bool[] wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _attention_bwd,
)


@torch.library.register_fake("rooftile::attention_fwd")
def _(*args: Any) -> tuple[Tensor, Tensor]:
    q, v, heads_inside = args[0], args[2], args[-1]
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    return _empty(q, v.shape[-1], heads_inside), lse


@torch.library.register_fake("rooftile::attention_bwd")
def _(*args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    q, k, v, mask, _slopes, sinks = args[4:10]
    return _gradients(q, k, v, mask, sinks, args[-2], args[-1])


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        o, lse = fwd_op(*args)
        *fields, _num_splits, ctx.heads_inside = args
        ctx.n_tensors = 11
        ctx.save_for_backward(o, lse, *fields[: ctx.n_tensors])
        ctx.numbers = fields[ctx.n_tensors :]
        ctx.wanted = [args[i] is not None and ctx.needs_input_grad[i] for i in _DIFFERENTIABLE]
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> Any:
        o, lse, *tensors = ctx.saved_tensors
        found: list[Tensor | None] = [None] * (N_ARGUMENTS + 2)
        if do is None and dlse is None:
            return tuple(found)
        do = torch.zeros_like(o) if do is None else do
        gradients = bwd_op(do, dlse, o, lse, *tensors, *ctx.numbers, ctx.heads_inside, ctx.wanted)
        for place, gradient, wanted in zip(_DIFFERENTIABLE, gradients, ctx.wanted, strict=True):
            found[place] = gradient if wanted else None
        return tuple(found)


def differentiable_attention(*args: Any) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp; the graph is recorded only where a gradient can be asked for."""
    wanted = any(args[i] is not None and args[i].requires_grad for i in _DIFFERENTIABLE)
    if wanted and torch.is_grad_enabled():
        if (
            torch.compiler.is_compiling()
        ):  # which takes no tensor twice: self-attention, one packing
            args = tuple(t.view_as(t) if isinstance(t, Tensor) else t for t in args)
        return _Attention.apply(*args)
    return fwd_op(*args)
