"""Fused Triton kernels with torch's signatures. Importing this package needs torch and triton."""

from __future__ import annotations

from rooftile.ops.add_layer_norm import AddLayerNorm, add_layer_norm
from rooftile.ops.add_rms_norm import AddRMSNorm, add_rms_norm
from rooftile.ops.attention import attention, attention_plan, scaled_dot_product_attention
from rooftile.ops.bias_gelu_dropout_residual import bias_gelu_dropout_residual
from rooftile.ops.cross_entropy import CrossEntropyLoss, cross_entropy
from rooftile.ops.geglu import geglu
from rooftile.ops.layer_norm import LayerNorm, layer_norm
from rooftile.ops.linear_cross_entropy import linear_cross_entropy
from rooftile.ops.log_softmax import LogSoftmax, log_softmax
from rooftile.ops.rms_norm import RMSNorm, rms_norm
from rooftile.ops.rotary_embedding import rotary_embedding
from rooftile.ops.softmax import Softmax, softmax
from rooftile.ops.swiglu import swiglu

__all__ = [
    "AddLayerNorm",
    "AddRMSNorm",
    "CrossEntropyLoss",
    "LayerNorm",
    "LogSoftmax",
    "RMSNorm",
    "Softmax",
    "add_layer_norm",
    "add_rms_norm",
    "attention",
    "attention_plan",
    "bias_gelu_dropout_residual",
    "cross_entropy",
    "geglu",
    "layer_norm",
    "linear_cross_entropy",
    "log_softmax",
    "rms_norm",
    "rotary_embedding",
    "scaled_dot_product_attention",
    "softmax",
    "swiglu",
]
