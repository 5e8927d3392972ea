"""Ops that a GPU runs as one kernel and a CPU build of torch would take apart.

Attention, RMSNorm, dropout and recurrent layers are caught above the dispatcher: torch's own
composite op is replaced while a capture runs by an op of ours, forward and backward. So calls from
inside `nn.MultiheadAttention`, an exported program or a checkpoint are caught like direct ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import _functorch
from torch.nn import functional

from rooftile.capture.attention import scaled_dot_product_attention
from rooftile.capture.bounds import ctc_loss_of_numbers
from rooftile.capture.grouped import grouped_mm
from rooftile.capture.norm import dropout, log_softmax, one_hot, rms_norm, softmax
from rooftile.capture.notes import note
from rooftile.capture.recurrent import (
    gru,
    gru_cell,
    lstm,
    lstm_cell,
    rnn_relu,
    rnn_tanh,
)

# aten op, with its overload where only that one is meant, to its stand-in
REPLACED: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "rms_norm": rms_norm,
    "dropout": dropout,
    "softmax.int": softmax,
    "log_softmax.int": log_softmax,
    "lstm.input": lstm,
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    "gru.input": gru,
    "rnn_tanh.input": rnn_tanh,
    "rnn_relu.input": rnn_relu,
    "_grouped_mm": grouped_mm,
    "one_hot": one_hot,
    "ctc_loss.IntList": ctc_loss_of_numbers,
}


@contextmanager
def fused_ops() -> Iterator[None]:
    """Replace torch's composite ops while the context lasts."""
    library = torch.library.Library("aten", "IMPL")
    aligned = torch._nested_tensor_from_mask_left_aligned
    torch._nested_tensor_from_mask_left_aligned = _padded  # type: ignore[assignment]
    try:
        for name, stand_in in REPLACED.items():
            for key in ("CPU", "AutogradCPU"):
                library.impl(name, stand_in, key)
        with _over_samples():
            yield
    finally:
        library._destroy()
        torch._nested_tensor_from_mask_left_aligned = aligned


@contextmanager
def _over_samples() -> Iterator[None]:
    """Attention under vmap is one op over all samples, where torch takes it apart first."""
    apis: Any = _functorch.apis
    functions: Any = functional
    original = apis.vmap_impl

    @wraps(original)
    def vmap(*args: Any, **kwargs: Any) -> Any:
        direct = functions.scaled_dot_product_attention
        functions.scaled_dot_product_attention = scaled_dot_product_attention
        try:
            return original(*args, **kwargs)
        finally:
            functions.scaled_dot_product_attention = direct

    apis.vmap_impl = vmap
    try:
        yield
    finally:
        apis.vmap_impl = original


def _padded(src: torch.Tensor, mask: torch.Tensor) -> bool:
    """Stands in for torch's question whether an encoder's padding can be cut away."""
    note("padding of nn.TransformerEncoder is counted as tokens: no nested tensors are followed")
    return False
