"""Who else runs attention: torch's backends one by one, FlexAttention, FlashAttention-4, CUDA C++.

Each is imported or compiled only when it is asked for. Torch falls back from no backend: one that
does not take a shape raises, and its row says so.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rooftile.bench.case import Function, Peer
from rooftile.bench.cuda_attention import cuda_attention


def peers(causal: bool) -> dict[str, Peer]:
    """Name to implementation, of [batch, heads, sequence, width], full or causal."""
    return {
        "flash2": Peer(lambda: _backend("FLASH_ATTENTION", causal)),
        "cudnn": Peer(lambda: _backend("CUDNN_ATTENTION", causal)),
        "flex": Peer(lambda: _flex(causal)),
        "cuda": Peer(lambda: cuda_attention(causal)),
        "flash-attn-4": Peer(lambda: _flash4(causal)),
    }


def _backend(name: str, causal: bool) -> Function:
    attention = import_module("torch.nn.attention")
    backend = getattr(attention.SDPBackend, name)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with attention.sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


def _flex(causal: bool) -> Function:
    """Compiled for each shape; its block mask is made once for each length."""
    module = import_module("torch.nn.attention.flex_attention")
    compiled: Any = torch.compile(module.flex_attention, dynamic=False)
    masks: dict[int, object] = {}

    def sees(batch: Tensor, head: Tensor, row: Tensor, col: Tensor) -> Tensor:
        return row >= col

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length = q.shape[2]
        if causal and length not in masks:
            masks[length] = module.create_block_mask(
                sees, None, None, length, length, device=q.device
            )
        found: Tensor = compiled(q, k, v, block_mask=masks.get(length))
        return found

    return call


def _flash4(causal: bool) -> Function:
    """It holds heads inside the sequence; the views cost nothing."""
    function = import_module("flash_attn.cute").flash_attn_func

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found = function(*(t.transpose(1, 2) for t in (q, k, v)), causal=causal)
        o: Tensor = found[0] if isinstance(found, tuple) else found
        return o.transpose(1, 2)

    return call
