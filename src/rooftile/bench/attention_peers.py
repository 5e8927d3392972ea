"""Who else runs attention: torch's backends one by one, FlexAttention, FlashAttention-4, CUDA C++.

Each is imported or compiled only when it is asked for. Torch falls back from no backend: one that
does not take a shape raises, and its row says so. None is asked to copy keys and values of shared
heads or to read a mask from memory: one that has no such form is left out.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rooftile.bench.attention_form import Form
from rooftile.bench.case import Function, Peer
from rooftile.bench.cuda_attention import cuda_attention


def peers(form: Form) -> dict[str, Peer]:
    """Name to implementation, of [batch, heads, sequence, width]."""
    backends = {
        "flash2": Peer(lambda: _backend("FLASH_ATTENTION", form)),
        "cudnn": Peer(lambda: _backend("CUDNN_ATTENTION", form)),
    }
    by_hand = {"cuda": Peer(lambda: cuda_attention(form.causal))}
    return {
        **({} if form.window else backends),
        "flex": Peer(lambda: _flex(form)),
        **({} if form.window or form.group > 1 else by_hand),
        "flash-attn-4": Peer(lambda: _flash4(form)),
    }


def _backend(name: str, form: Form) -> Function:
    attention = import_module("torch.nn.attention")
    backend = getattr(attention.SDPBackend, name)
    causal, shared = form.causal, form.group > 1

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with attention.sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

    return call


def _flex(form: Form) -> Function:
    """Compiled for each shape; its block mask is made once for each length."""
    module = import_module("torch.nn.attention.flex_attention")
    compiled: Any = torch.compile(module.flex_attention, dynamic=False)
    masks: dict[int, object] = {}

    def mask_of(length: int, device: torch.device) -> object:
        left = form.left(length)

        def sees(batch: Tensor, head: Tensor, row: Tensor, col: Tensor) -> Tensor:
            return (row >= col) & (row - col <= left) if form.window else row >= col

        return module.create_block_mask(sees, None, None, length, length, device=device)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length = q.shape[2]
        if form.causal and length not in masks:
            masks[length] = mask_of(length, q.device)
        options = {"block_mask": masks.get(length), "enable_gqa": form.group > 1}
        found: Tensor = compiled(q, k, v, **options)
        return found

    return call


def _flash4(form: Form) -> Function:
    """It holds heads inside the sequence; the views cost nothing."""
    function = import_module("flash_attn.cute").flash_attn_func

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        window = (form.left(q.shape[2]), 0) if form.window else (None, None)
        turned = (t.transpose(1, 2) for t in (q, k, v))
        found = function(*turned, causal=form.causal and not form.window, window_size=window)
        o: Tensor = found[0] if isinstance(found, tuple) else found
        return o.transpose(1, 2)

    return call
