"""A plain call of every public op, by name: what all must do or refuse is tried on these."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rooftile import ops

N = 8
TARGET = torch.tensor([0, 1, 2])


def _on(x: Any, *shape: int) -> Tensor:
    """Another operand, on the device of the first; not random, which vmap refuses."""
    steps = torch.arange(math.prod(shape), device=getattr(x, "device", "cpu"))
    return steps.view(shape).cos()


def _targets(x: Any) -> Tensor:
    return TARGET.to(getattr(x, "device", "cpu"))


# name -> a call whose first operand is given, [3, 8] where it is a tensor
CALLS = {
    "softmax": lambda x: ops.softmax(x, -1),
    "log_softmax": lambda x: ops.log_softmax(x, -1),
    "rms_norm": lambda x: ops.rms_norm(x, (N,)),
    "layer_norm": lambda x: ops.layer_norm(x, (N,)),
    "add_rms_norm": lambda x: ops.add_rms_norm(x, x, (N,)),
    "add_layer_norm": lambda x: ops.add_layer_norm(x, x, (N,)),
    "bias_gelu_dropout_residual": ops.bias_gelu_dropout_residual,
    "swiglu": lambda x: ops.swiglu(x, x),
    "geglu": lambda x: ops.geglu(x, x),
    "cross_entropy": lambda x: ops.cross_entropy(x, _targets(x)),
    "linear_cross_entropy": lambda x: ops.linear_cross_entropy(x, _on(x, 5, N), _targets(x)),
    "rotary_embedding": lambda x: ops.rotary_embedding(x, _on(x, 3, 4), _on(x, 3, 4)),
    "attention": lambda x: ops.attention(x, x, x),
    "scaled_dot_product_attention": lambda x: ops.scaled_dot_product_attention(x, x, x),
}


def shaped(op: str, x: Tensor) -> Tensor:
    """Three rows in the dimensions that an op wants."""
    return {"rotary_embedding": x[:, None], "attention": x[None, None]}.get(op, x)
