"""QuACK as a peer: how each of its ops is called. Imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from rooftile.bench.case import Function, Inputs, Peer


def _load(module: str, name: str) -> Any:
    return getattr(import_module(f"quack.{module}"), name)


def _softmax() -> Function:
    function = _load("softmax", "softmax")
    return lambda x: function(x)


def _rms_norm() -> Function:
    function = _load("rmsnorm", "rmsnorm")
    return lambda x, w: function(x, w, eps=1e-6)


def _add_rms_norm() -> Function:
    function = _load("rmsnorm", "rmsnorm")

    def call(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        y, h = function(x, weight, residual=residual, eps=1e-6, prenorm=True)
        return y, h

    return call


def _layer_norm() -> Function:
    """Its two kernels, joined here: it has no differentiable layer norm."""
    forward, backward = _load("rmsnorm", "layernorm_fwd"), _load("rmsnorm", "layernorm_bwd")

    class LayerNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Any:
            if not any(ctx.needs_input_grad):
                return forward(x, weight, bias, eps=1e-5)
            y, rstd, mean = forward(x, weight, bias, eps=1e-5, return_rstd=True, return_mean=True)
            ctx.save_for_backward(x, weight, rstd, mean)
            return y

        @staticmethod
        def backward(ctx: Any, *dy: Any) -> Any:
            x, weight, rstd, mean = ctx.saved_tensors
            return backward(x, weight, dy[0], rstd, mean)

    apply: Any = LayerNorm.apply
    return lambda x, w, b: apply(x, w, b)


def _float32_weights(inputs: Inputs) -> Inputs:
    """Its layer norm takes weight and bias in float32 alone."""
    x, *others = inputs
    return x, *(t.detach().float().requires_grad_(t.requires_grad) for t in others)


def _cross_entropy() -> Function:
    function = _load("cross_entropy", "cross_entropy")
    return lambda logits, target: function(logits, target, reduction="mean")


def _linear_cross_entropy() -> Function:
    function = _load("linear_cross_entropy", "chunked_linear_cross_entropy")
    return lambda x, w, target: function(x, w, target)


def _rotary_embedding() -> Function:
    function = _load("rotary", "apply_rotary_emb")
    return lambda x, cos, sin: function(x, cos, sin)


SOFTMAX = Peer(_softmax)
RMS_NORM = Peer(_rms_norm)
ADD_RMS_NORM = Peer(_add_rms_norm)
LAYER_NORM = Peer(_layer_norm, _float32_weights)
CROSS_ENTROPY = Peer(_cross_entropy)
LINEAR_CROSS_ENTROPY = Peer(_linear_cross_entropy)
ROTARY_EMBEDDING = Peer(_rotary_embedding)
