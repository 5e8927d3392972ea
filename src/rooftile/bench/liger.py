"""Liger-Kernel as a peer: how each of its ops is called. Imported only when it is asked for.

Its SwiGLU and GEGLU backwards write into the saved inputs and its cross-entropy turns the logits
into their gradient, so every provider has inputs of its own. Its rotary embedding works in place on
a query and a key at once, which no other does: it is not compared.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor

from rooftile.bench.case import Function, Peer


def _load(module: str, name: str) -> Any:
    return getattr(import_module(f"liger_kernel.{module}"), name)


def _softmax() -> Function:
    function = _load("ops.softmax", "LigerSoftmaxFunction")
    return lambda x: function.apply(x)


def _rms_norm() -> Function:
    function = _load("ops.rms_norm", "LigerRMSNormFunction")
    return lambda x, w: function.apply(x, w, 1e-6, 0.0, "llama", False)


def _add_rms_norm() -> Function:
    function = _load("ops.fused_add_rms_norm", "LigerFusedAddRMSNormFunction")

    def call(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        y, h = function.apply(x, residual, weight, 1e-6, 0.0, "llama", False)
        return y, h

    return call


def _layer_norm() -> Function:
    function = _load("ops.layer_norm", "LigerLayerNormFunction")
    return lambda x, w, b: function.apply(x, w, b, 1e-5)


def _swiglu() -> Function:
    function = _load("ops.swiglu", "LigerSiLUMulFunction")
    return lambda a, b: function.apply(a, b)


def _geglu() -> Function:
    function = _load("ops.geglu", "LigerGELUMulFunction")
    return lambda a, b: function.apply(a, b)


def _cross_entropy() -> Function:
    function = _load("transformers.functional", "liger_cross_entropy")
    return lambda logits, target: function(logits, target)


def _linear_cross_entropy() -> Function:
    function = _load("transformers.functional", "liger_fused_linear_cross_entropy")
    return lambda x, w, target: function(x, w, target)


SOFTMAX = Peer(_softmax)
RMS_NORM = Peer(_rms_norm)
ADD_RMS_NORM = Peer(_add_rms_norm)
LAYER_NORM = Peer(_layer_norm)
SWIGLU = Peer(_swiglu)
GEGLU = Peer(_geglu)
CROSS_ENTROPY = Peer(_cross_entropy)
LINEAR_CROSS_ENTROPY = Peer(_linear_cross_entropy)
