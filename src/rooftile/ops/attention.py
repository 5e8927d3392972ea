"""Attention in one pass: o = softmax(scale * q @ k.T + bias) @ v, never the scores in memory.

Source: Dao 2023, https://arxiv.org/abs/2307.08691 (the online softmax and its backward)
Cost:   rooftile.cost.formulas.attention.attention_forward and attention_backward
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._check import check_switch, check_whole
from rooftile.ops._launch import sm_count
from rooftile.ops.flash.arguments import Options, op_arguments
from rooftile.ops.flash.call import Call
from rooftile.ops.flash.choose import AttentionPlan, plan_of
from rooftile.ops.flash.torch_ops import N_ARGUMENTS, differentiable_attention
from rooftile.ops.flash.torch_views import torch_views

# ---- 1. reference ------------------------------------------------------------------


def attention_ref(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    alignment: str = "bottom_right",
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The definition, in plain PyTorch, of [batch, heads, sequence, width]: output and log-sum-exp.

    It computes in float32, or in float64 for float64.
    """
    acc = torch.promote_types(query.dtype, torch.float32)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    group = query.shape[1] // max(1, key.shape[1])
    k, v = (t.to(acc).repeat_interleave(group, 1) for t in (key, value))
    s = query.to(acc) @ k.transpose(-1, -2) * scale
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    q_len, k_len = s.shape[-2:]
    shift = k_len - q_len if alignment == "bottom_right" else 0
    row = torch.arange(q_len, device=s.device)[:, None] + shift
    col = torch.arange(k_len, device=s.device)
    if alibi_slopes is not None:
        s = s - alibi_slopes.to(acc)[..., None, None] * (row - col).abs()
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        s = s + attn_mask.to(acc)
    left, right = window_size
    seen = torch.ones(q_len, k_len, dtype=torch.bool, device=s.device)
    if left >= 0:
        seen &= col >= row - left
    if is_causal or right >= 0:
        seen &= col <= row + (0 if is_causal else right)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        seen = seen & attn_mask
    s = s.masked_fill(~seen, -math.inf)
    if sinks is not None:
        sink = sinks.to(acc)[:, None, None].expand(*s.shape[:2], q_len, 1)
        s = torch.cat([s, sink], -1)
    lse = torch.logsumexp(s, -1)
    none = lse == -math.inf
    p = torch.exp(s - lse.masked_fill(none, 0.0)[..., None]).masked_fill(none[..., None], 0.0)
    return (p[..., :k_len] @ v).to(query.dtype), lse


# Kernels, launchers, registration and autograd: rooftile.ops.flash
# ---- 6. public ops -----------------------------------------------------------------


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``torch.nn.functional.scaled_dot_product_attention``: its arguments and their meaning.

    ``is_causal`` aligns at the top left. A row whose keys are all masked gives 0. The dropout mask
    is not torch's for the same seed. Under autocast, operands are cast as torch casts them.

    Args:
        query: Shape ``[..., Hq, L, E]``, float32, float16 or bfloat16, of any strides; E up to 256.
        key: Shape ``[..., H, S, E]``; dimensions before H broadcast.
        value: Shape ``[..., H, S, Ev]``.
        attn_mask: Broadcasts to ``[..., Hq, L, S]``: boolean, where True takes part, or additive.
        dropout_p: Probability that a weight becomes 0.
        is_causal: Query i sees keys 0 to i. Not together with ``attn_mask``.
        scale: Factor of the scores; ``1 / sqrt(E)`` where None.
        enable_gqa: Hq may be a multiple of H.

    Returns:
        Shape ``[..., Hq, L, Ev]``, laid out as ``query`` is. Accumulated in float32; products of
        float32 are computed in float32, not in TF32.

    Raises:
        InputError: A shape, dtype, device or range is not as above.

    Cost:
        ``attention.attention_forward`` and ``attention.attention_backward``.

    Source:
        https://arxiv.org/abs/2307.08691
    """
    check_switch("is_causal", is_causal)
    check_switch("enable_gqa", enable_gqa)
    if attn_mask is not None and is_causal:
        raise InputError("attn_mask must be None where is_causal is set")
    q, k, v, mask, lead = torch_views(query, key, value, attn_mask, enable_gqa)
    options = Options(
        attn_mask=mask, dropout_p=dropout_p, is_causal=is_causal, alignment="top_left", scale=scale
    )
    args, _ = op_arguments(q, k, v, options)
    o, _ = differentiable_attention(*args)
    return o.view(*lead, *o.shape[-2:]) if o.shape[:2] != lead else o


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    alignment: str = "bottom_right",
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    dropout_p: float = 0.0,
    seed: Tensor | None = None,
    scale: float | None = None,
    layout: str = "bhsd",
    return_lse: bool = False,
    deterministic: bool = False,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int = 0,
) -> Any:
    """``softmax(softcap(scale * q @ k.T) - slopes * distance + mask) @ v``, with flash's extras.

    Which kernel runs a call, and why, is said by ``attention_plan``. Numbers on the device
    (``cu_seqlens``, ``seqused_k``, ``block_table``) are checked under the interpreter and where
    ``ROOFTILE_CHECK_SEQLENS=1``: looking at them waits for the device.

    Args:
        query: ``[B, Hq, L, E]`` (``layout="bhsd"``), ``[B, L, Hq, E]`` (``"bshd"``), or packed
            ``[T, Hq, E]``; float32, float16 or bfloat16, of any strides; E from 1 to 256.
        key: Likewise with H heads, of which Hq is a multiple, and S keys; with ``block_table``
            ``[pages, H, page_size, E]`` or ``[pages, page_size, H, E]``.
        value: As ``key``, its width Ev from 1 to 256.
        attn_mask: Boolean (True takes part) or additive, broadcast to ``[B, Hq, L, S]``. An
            additive one may require a gradient.
        is_causal: No key after a query's own place is seen.
        alignment: ``"bottom_right"``: the last query stands at the last key, as when decoding;
            ``"top_left"``: the first at the first, as torch's ``is_causal``.
        window_size: Keys seen before and after a query's own place; -1: all.
        softcap: Scaled scores become ``softcap * tanh(scores / softcap)``; 0: they stay.
        alibi_slopes: float32 ``[Hq]`` or ``[B, Hq]``: slope times the distance from a query's own
            place is taken off.
        sinks: ``[Hq]``: one more logit for each head, that takes a share and gives nothing.
        dropout_p: Probability that a weight becomes 0, rounded to a multiple of 2^-16.
        seed: One int64 on the device, for the same dropout again; torch's generator where None.
        scale: Factor of the scores; ``1 / sqrt(E)`` where None.
        layout: Of tensors that are not packed.
        return_lse: Also return the log-sum-exp of each row's logits.
        deterministic: Gradients come out bit-equal each time.
        cu_seqlens_q: int32 ``[B + 1]``: sequence b is rows ``cu[b]`` to ``cu[b + 1]``. Rows after
            the last get output and gradient 0.
        cu_seqlens_k: Likewise of ``key`` and ``value``.
        max_seqlen_q: Length of the longest sequence, T where None (slower).
        max_seqlen_k: Likewise of the keys.
        seqused_k: int32 ``[B]``: keys of each sequence; those after are not seen.
        block_table: int32 ``[B, n]``: pages of each sequence, in order. No gradients.
        num_splits: Into how many parts the keys are split when decoding; 0: chosen.

    Returns:
        The output in the layout of ``query``; with ``return_lse`` also float32 ``[B, Hq, L]``, or
        ``[Hq, T]`` packed: natural log, sinks included. A row that sees no key gives output 0,
        log-sum-exp -inf (a sink's logit where there is one) and gradients 0.

    Raises:
        InputError: A shape, dtype, device, range or, where looked at, a number is not as above.

    Cost:
        ``attention.attention_forward`` and ``attention.attention_backward``.

    Source:
        https://arxiv.org/abs/2307.08691; https://arxiv.org/abs/2108.12409 (ALiBi);
        https://arxiv.org/abs/2408.00118 (softcap); https://arxiv.org/abs/2309.17453 (sinks)
    """
    check_switch("return_lse", return_lse)
    options = Options(
        attn_mask, is_causal, alignment, window_size, softcap, alibi_slopes, sinks, dropout_p, seed,
        scale, layout, deterministic, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        seqused_k, block_table, num_splits,
    )  # fmt: skip
    args, inside = op_arguments(query, key, value, options)
    o, lse = differentiable_attention(*args)
    o = o.transpose(1, 2) if inside else o
    if cu_seqlens_q is not None:
        o, lse = o[0], lse[0]
    return (o, lse) if return_lse else o


def attention_plan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    arch: str | None = None,
    multiprocessors: int | None = None,
    **options: Any,
) -> AttentionPlan:
    """Which kernels ``attention`` would run, with what launch parameters, and why no other.

    Args:
        query: As in ``attention``; on the device ``"meta"`` no memory is needed.
        key: Likewise.
        value: Likewise.
        arch: Compiler target, ``"sm_90"`` or ``"gfx942"``; that of the device where None.
        multiprocessors: Of the GPU; those of the device where None.
        **options: Keyword arguments of ``attention`` but ``return_lse``.

    Raises:
        InputError: ``attention`` would raise it.
    """
    known = {field.name for field in fields(Options)}
    for name in options:
        if name not in known:
            raise InputError(f"{name!r} is no option; there are {', '.join(sorted(known))}")
    if arch is not None and not isinstance(arch, str):
        raise InputError(f"arch must be a compiler target such as 'sm_90', got {arch!r}")
    if multiprocessors is not None:
        check_whole("multiprocessors", multiprocessors)
        if multiprocessors < 1:
            raise InputError(f"multiprocessors must be at least 1, got {multiprocessors}")
    args, _ = op_arguments(query, key, value, Options(**options))
    call = Call(*args[:N_ARGUMENTS])
    problem = call.problem() if arch is None else replace(call.problem(), arch=arch)
    units = sm_count(call.device) if multiprocessors is None else multiprocessors
    return plan_of(call, problem, args[N_ARGUMENTS], units)
