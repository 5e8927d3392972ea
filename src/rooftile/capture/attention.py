"""Attention as one op, forward and backward, whatever backend would be picked."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rooftile.capture.define import OPS, autograd, define


def _attention_fake(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Output in the layout that the fused kernels write, [B, S, H, D] in memory: what follows

    (a transpose and a reshape, as a rule) is then a view here as it is on a GPU.
    """
    *batch, heads, seq, _ = query.shape
    out = query.new_empty(*batch, seq, heads, value.shape[-1]).transpose(-2, -3)
    keep = rest[-1]
    lse = query.new_empty((*batch, heads, seq) if keep else (0,), dtype=torch.float32)
    return out, lse


def _attention_backward_fake(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float,
    bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wanted = attn_bias is not None and bias_grad
    dbias = torch.empty_like(attn_bias) if wanted else query.new_empty(0)  # type: ignore[arg-type]
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), dbias


def _attention_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # no zeros for what nobody differentiates
    query, key, value, bias, dropout_p, is_causal, scale, _ = inputs
    ctx.save_for_backward(query, key, value, bias, *output)
    ctx.options = (dropout_p, is_causal, scale, bias is not None and bias.requires_grad)


def _attention_backward(ctx: Any, grad_out: Tensor, grad_lse: Tensor) -> tuple[Any, ...]:
    query, key, value, bias, out, lse = ctx.saved_tensors
    dq, dk, dv, dbias = OPS.attention_backward(
        grad_out, query, key, value, bias, out, lse, *ctx.options
    )
    return dq, dk, dv, dbias if ctx.options[-1] else None, None, None, None, None


define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias, float dropout_p, "
    "bool is_causal, float scale, bool keep) -> (Tensor, Tensor)",
    _attention_fake,
)
define(
    "attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, "
    "Tensor? attn_bias, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, "
    "float scale, bool bias_grad) -> (Tensor, Tensor, Tensor, Tensor)",
    _attention_backward_fake,
)
autograd("attention", _attention_backward, _attention_setup)


def _fused_attention_allowed() -> bool:
    """Whether the user's `sdpa_kernel` context leaves any fused backend."""
    cuda: Any = torch.backends.cuda
    return any(
        (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.cudnn_sdp_enabled())
    )


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Stands in for `aten::scaled_dot_product_attention`."""
    _check_attention(query, key, value, attn_mask, is_causal, enable_gqa)
    if not _fused_attention_allowed():
        math_op = torch.ops.aten._scaled_dot_product_attention_math
        options = {"scale": scale, "enable_gqa": enable_gqa}
        out: Tensor = math_op(query, key, value, attn_mask, dropout_p, is_causal, None, **options)[
            0
        ]
        return out
    added = query.dim() == 3
    if added:
        query, key, value = (t.unsqueeze(0) for t in (query, key, value))
    keep = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (query, key, value, attn_mask)
    )
    scale = 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    out = OPS.attention(query, key, value, attn_mask, dropout_p, is_causal, scale, keep)[0]
    return out.squeeze(0) if added else out


def _check_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, gqa: bool
) -> None:
    """Refuse what torch refuses: a fake kernel would take any shape."""
    shapes = f"query {list(query.shape)}, key {list(key.shape)}, value {list(value.shape)}"
    if min(query.dim(), key.dim(), value.dim()) < 2 or query.dim() != key.dim():
        raise RuntimeError(f"scaled_dot_product_attention: ranks do not match: {shapes}")
    if len({query.dtype, key.dtype, value.dtype}) > 1:
        dtypes = f"{query.dtype}, {key.dtype}, {value.dtype}"
        raise RuntimeError(f"scaled_dot_product_attention: dtypes differ: {dtypes}")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(f"scaled_dot_product_attention: shapes do not match: {shapes}")
    if query.dim() >= 4 and query.shape[-3] != key.shape[-3]:
        heads, kv_heads = query.shape[-3], key.shape[-3]
        if kv_heads != 1 and (not gqa or heads % kv_heads):
            raise RuntimeError(f"scaled_dot_product_attention: heads do not match: {shapes}")
    if mask is not None and is_causal:
        raise RuntimeError(
            "scaled_dot_product_attention: attn_mask and is_causal exclude each other"
        )
