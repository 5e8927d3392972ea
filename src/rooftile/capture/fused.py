"""Ops that a GPU runs as one kernel and a CPU build of torch would take apart.

Attention, RMSNorm, dropout and recurrent layers are caught above the dispatcher: torch's own
composite op is replaced while a capture runs by an op of ours, forward and backward. So calls from
inside `nn.MultiheadAttention`, an exported program or a checkpoint are caught like direct ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rooftile.capture.attention import scaled_dot_product_attention
from rooftile.capture.grouped import grouped_mm
from rooftile.capture.norm import dropout, rms_norm
from rooftile.capture.recurrent import gru, lstm, rnn_relu, rnn_tanh

# aten op, with its overload where only that one is meant, to its stand-in
REPLACED: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "rms_norm": rms_norm,
    "dropout": dropout,
    "lstm.input": lstm,
    "gru.input": gru,
    "rnn_tanh.input": rnn_tanh,
    "rnn_relu.input": rnn_relu,
    "_grouped_mm": grouped_mm,
}


@contextmanager
def fused_ops() -> Iterator[None]:
    """Replace torch's composite ops while the context lasts."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name, stand_in in REPLACED.items():
            for key in ("CPU", "AutogradCPU"):
                library.impl(name, stand_in, key)
        yield
    finally:
        library._destroy()
