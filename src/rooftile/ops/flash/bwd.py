"""Launches of the portable backward."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rooftile.ops._launch import architecture, launch
from rooftile.ops.flash.bwd_kernels import (
    attention_delta_kernel,
    attention_dkdv_kernel,
    attention_dq_kernel,
)
from rooftile.ops.flash.call import Call, mask_strides, slope_strides
from rooftile.ops.flash.fwd import as_bytes, strides_of
from rooftile.ops.flash.mask_bwd_kernel import attention_dmask_kernel
from rooftile.ops.flat.dropout import threshold
from rooftile.plan.launch import power_of_two
from rooftile.plan.launch_attention import AttentionLaunch, attention_launch

_DELTA_ROWS = 32


def delta_of(do: Tensor, dlse: Tensor | None, o: Tensor) -> Tensor:
    """sum(o * do) - dlse of each row, float32, ``[batch, heads, rows]``, contiguous."""
    delta = torch.empty(o.shape[:3], dtype=torch.float32, device=o.device)
    batch, heads, rows, width = o.shape
    wide = max(o.stride(2), do.stride(2)) * _DELTA_ROWS >= 2**31
    launch(
        attention_delta_kernel, (batch * heads * -(-rows // _DELTA_ROWS),), o.device,
        o, do, dlse, delta, *o.stride(), *do.stride(),
        *((0, 0, 0) if dlse is None else dlse.stride()), heads, rows,
        V_DIM=width, BLOCK_M=_DELTA_ROWS, BLOCK_DV=power_of_two(width), WIDE=wide, num_warps=4,
    )  # fmt: skip
    return delta


def launch_dkdv(call: Call, do: Tensor, lse: Tensor, delta: Tensor, dk: Tensor, dv: Tensor) -> None:
    """Write the gradients of keys and values."""
    q, k, v = call.q, call.k, call.v
    plan = _plan(call, "attention_dkdv")
    tiles = -(-call.longest_k // plan.block_n)
    batches = call.batch + (call.cu_k is not None)
    dropped, keep_scale = threshold(call.dropout_p)
    launch(
        attention_dkdv_kernel, (tiles * batches * k.shape[1],), q.device,
        q, k, v, do, lse, delta, dk, dv, as_bytes(call.mask), call.slopes,
        call.cu_q, call.cu_k, call.k_lens, call.seed,
        *strides_of(q, call.cu_q), *strides_of(k, call.cu_k), *strides_of(v, call.cu_k),
        *strides_of(do, call.cu_q), *strides_of(lse, call.cu_q)[:2],
        *strides_of(dk, call.cu_k), *strides_of(dv, call.cu_k),
        *mask_strides(call.mask), *slope_strides(call.slopes),
        call.batch, call.heads, call.group, call.longest_q, call.longest_k,
        call.tokens(k, call.cu_k),
        call.scale, call.softcap, call.window_left, call.window_right, dropped, keep_scale,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n,
        EVEN_Q=call.cu_q is None and call.longest_q % plan.block_m == 0,
        **call.constants(plan),
    )  # fmt: skip


def launch_dq(call: Call, do: Tensor, lse: Tensor, delta: Tensor, dq: Tensor) -> None:
    """Write the gradient of queries."""
    q, k, v = call.q, call.k, call.v
    plan = _plan(call, "attention_dq")
    tiles = -(-call.longest_q // plan.block_m)
    batches = call.batch + (call.cu_q is not None)
    dropped, keep_scale = threshold(call.dropout_p)
    even = call.cu_k is None and call.k_lens is None and call.longest_k % plan.block_n == 0
    launch(
        attention_dq_kernel, (tiles * batches * call.heads,), q.device,
        q, k, v, do, lse, delta, dq, as_bytes(call.mask), call.slopes,
        call.cu_q, call.cu_k, call.k_lens, call.seed,
        *strides_of(q, call.cu_q), *strides_of(k, call.cu_k), *strides_of(v, call.cu_k),
        *strides_of(do, call.cu_q), *strides_of(lse, call.cu_q)[:2], *strides_of(dq, call.cu_q),
        *mask_strides(call.mask), *slope_strides(call.slopes),
        call.batch, call.heads, call.group, call.longest_q, call.longest_k,
        call.tokens(q, call.cu_q),
        call.scale, call.softcap, call.window_left, call.window_right, dropped, keep_scale,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, EVEN_K=even, **call.constants(plan),
    )  # fmt: skip


def launch_dmask(call: Call, do: Tensor, lse: Tensor, delta: Tensor, dmask: Tensor) -> None:
    """Write the gradient of an additive mask, in the mask's own shape."""
    q, k, v = call.q, call.k, call.v
    plan = _plan(call, "attention_dq")
    if dmask.numel() == 0:
        return
    mask_batches, mask_heads, rows, cols = dmask.shape
    one_row, one_col = rows != call.longest_q, cols != call.longest_k
    tiles = 1 if one_row else -(-rows // plan.block_m)
    tiles *= 1 if one_col else -(-cols // plan.block_n)
    dropped, keep_scale = threshold(call.dropout_p)
    constants = {**call.constants(plan), "num_stages": 1}
    launch(
        attention_dmask_kernel, (tiles * mask_batches * mask_heads,), q.device,
        q, k, v, do, lse, delta, dmask, call.mask, call.slopes, call.k_lens, call.seed,
        *q.stride(), *k.stride(), *v.stride(), *do.stride(), *lse.stride()[:2],
        *mask_strides(call.mask), *slope_strides(call.slopes),
        mask_heads, call.batch // mask_batches, call.heads // mask_heads,
        call.heads, call.group, call.longest_q, call.longest_k,
        call.scale, call.softcap, call.window_left, call.window_right, dropped, keep_scale,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, ONE_ROW=one_row, ONE_COL=one_col, **constants,
    )  # fmt: skip


def sink_gradient(call: Call, lse: Tensor, delta: Tensor) -> Tensor:
    """A sink takes a share exp(sink - lse) of each row and gives it nothing: d = -share * delta."""
    assert call.sinks is not None
    share = torch.exp(call.sinks.float()[None, :, None] - lse).masked_fill(lse == -math.inf, 0.0)
    return -(share * delta).sum((0, 2)).to(call.sinks.dtype)


def _plan(call: Call, family: str) -> AttentionLaunch:
    width = max(call.q.shape[-1], call.v.shape[-1])
    return attention_launch(family, width, call.q.element_size(), architecture(call.q.device))
