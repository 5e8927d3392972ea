"""Launch of the portable forward."""

from __future__ import annotations

import torch
from torch import Tensor

from rooftile.ops._launch import architecture, launch
from rooftile.ops.flash.call import Call, mask_strides, slope_strides
from rooftile.ops.flash.fwd_kernel import attention_fwd_kernel
from rooftile.ops.flat.dropout import threshold
from rooftile.plan.launch_attention import attention_launch


def launch_fwd(call: Call, o: Tensor, lse: Tensor) -> None:
    """Write the output and the log-sum-exp of a call, for any of its features but pages."""
    q, k, v = call.q, call.k, call.v
    width = max(q.shape[-1], v.shape[-1])
    plan = attention_launch("attention_fwd", width, q.element_size(), architecture(q.device))
    tiles = -(-call.longest_q // plan.block_m)
    batches = call.batch + (call.cu_q is not None)
    dropped, keep_scale = threshold(call.dropout_p)
    even = call.cu_k is None and call.k_lens is None and call.longest_k % plan.block_n == 0
    launch(
        attention_fwd_kernel, (tiles * batches * call.heads,), q.device,
        q, k, v, o, lse, as_bytes(call.mask), call.slopes, call.sinks,
        call.cu_q, call.cu_k, call.k_lens, call.seed,
        *strides_of(q, call.cu_q), *strides_of(k, call.cu_k), *strides_of(v, call.cu_k),
        *strides_of(o, call.cu_q), *strides_of(lse, call.cu_q)[:2],
        *mask_strides(call.mask), *slope_strides(call.slopes),
        call.batch, call.heads, call.group, call.longest_q, call.longest_k,
        call.tokens(q, call.cu_q),
        call.scale, call.softcap, call.window_left, call.window_right, dropped, keep_scale,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, EVEN_K=even, **call.constants(plan),
    )  # fmt: skip


def strides_of(t: Tensor, cu: Tensor | None) -> tuple[int, ...]:
    """Strides of a tensor; sequences that are packed start at rows of their own, not at 0."""
    return t.stride() if cu is None else (0, *t.stride()[1:])


def as_bytes(mask: Tensor | None) -> Tensor | None:
    """A boolean mask as the bytes that it is: kernels load no booleans."""
    return mask.view(torch.uint8) if mask is not None and mask.dtype == torch.bool else mask
