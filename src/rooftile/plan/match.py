"""A known function found in a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeGuard

from rooftile.records.graph import Attr
from rooftile.records.tensor import Tensor

# Functions of ``rooftile.ops`` that can be found in a graph.
Name = Literal[
    "add_layer_norm",
    "add_rms_norm",
    "attention",
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

_FLOATS = frozenset(("float32", "float16", "bfloat16"))


@dataclass(frozen=True, slots=True)
class Match:
    """Ops that together are one of Rooftile's.

    Attributes:
        name: The function's, in ``rooftile.ops``.
        ops: Their indices in the graph.
    """

    name: Name
    ops: frozenset[int]


def float_dtype(tensor: Tensor) -> bool:
    """Whether Rooftile's kernels take tensors of this dtype."""
    return tensor.dtype in _FLOATS


def is_number(value: Attr) -> TypeGuard[int | float]:
    """Whether an op's argument is one number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
