"""Fused ops, forward and backward: what one kernel must read and write.

FLOP an element are those of the parts, by the conventions of ``pointwise`` and ``normalization``. A
dropout mask is drawn again from its seed and never stored; drawing is 0 FLOP, applying it 3.
"""

from __future__ import annotations

from rooftile.cost.formulas.matmul import matmul_flops
from rooftile.cost.formulas.normalization import (
    layer_norm_backward,
    layer_norm_forward,
    rms_norm_backward,
    rms_norm_forward,
)
from rooftile.records.cost import Cost

# SiLU and GELU of an element and their derivatives, as in ``pointwise``.
_SILU, _SILU_BACKWARD = 5, 9
_GELU, _GELU_TANH = 5, 9
_GELU_BACKWARD, _GELU_TANH_BACKWARD = 11, 18
_DROPOUT, _DROPOUT_BACKWARD = 3, 2
_ROTATION = 3  # two products and a sum for each of the pair
_CROSS_ENTROPY = 4
_STATISTIC_ITEMSIZE = 4


def _with_sum(norm: Cost, m: int, n: int, itemsize: int, formula: str) -> Cost:
    """A norm's cost, one more sum of m x n elements, one more read and, forward, one more write."""
    backward = formula.endswith("_backward")
    return Cost(
        vector_flops=norm.vector_flops + m * n,
        read_bytes=norm.read_bytes + m * n * itemsize,
        write_bytes=norm.write_bytes + (0 if backward else m * n * itemsize),
        formula=formula,
    )


def add_layer_norm_forward(m: int, n: int, itemsize: int, *, bias: bool = True) -> Cost:
    """h = x + residual and layer_norm(h), both written, over m rows of n."""
    norm = layer_norm_forward(m, n, itemsize, bias=bias)
    return _with_sum(norm, m, n, itemsize, "fused.add_layer_norm_forward")


def add_layer_norm_backward(m: int, n: int, itemsize: int, *, bias: bool = True) -> Cost:
    """dh from dy, h and the gradient of h; dx and dresidual are the same tensor."""
    norm = layer_norm_backward(m, n, itemsize, bias=bias)
    return _with_sum(norm, m, n, itemsize, "fused.add_layer_norm_backward")


def add_rms_norm_forward(m: int, n: int, itemsize: int) -> Cost:
    """h = x + residual and rms_norm(h), both written, over m rows of n."""
    norm = rms_norm_forward(m, n, itemsize)
    return _with_sum(norm, m, n, itemsize, "fused.add_rms_norm_forward")


def add_rms_norm_backward(m: int, n: int, itemsize: int) -> Cost:
    """dh from dy, h and the gradient of h; dx and dresidual are the same tensor."""
    norm = rms_norm_backward(m, n, itemsize)
    return _with_sum(norm, m, n, itemsize, "fused.add_rms_norm_backward")


def bias_gelu_dropout_residual_forward(m: int, n: int, itemsize: int, *, tanh: bool = True) -> Cost:
    """dropout(gelu(x + bias)) + residual over m rows of n."""
    per_element = 2 + (_GELU_TANH if tanh else _GELU) + _DROPOUT
    return Cost(
        vector_flops=per_element * m * n,
        read_bytes=(2 * m * n + n) * itemsize,
        write_bytes=m * n * itemsize,
        formula="fused.bias_gelu_dropout_residual_forward",
    )


def bias_gelu_dropout_residual_backward(
    m: int, n: int, itemsize: int, *, tanh: bool = True
) -> Cost:
    """dx and dbias from dy, x and bias; the residual's gradient is dy itself."""
    per_element = 2 + (_GELU_TANH_BACKWARD if tanh else _GELU_BACKWARD) + _DROPOUT_BACKWARD
    return Cost(
        vector_flops=per_element * m * n,
        read_bytes=(2 * m * n + n) * itemsize,
        write_bytes=(m * n + n) * itemsize,
        formula="fused.bias_gelu_dropout_residual_backward",
    )


def _gated_forward(elements: int, itemsize: int, activation: int, formula: str) -> Cost:
    return Cost(
        vector_flops=(activation + 1) * elements,
        read_bytes=2 * elements * itemsize,
        write_bytes=elements * itemsize,
        formula=formula,
    )


def _gated_backward(elements: int, itemsize: int, flops: int, formula: str) -> Cost:
    return Cost(
        vector_flops=flops * elements,
        read_bytes=3 * elements * itemsize,
        write_bytes=2 * elements * itemsize,
        formula=formula,
    )


def swiglu_forward(elements: int, itemsize: int) -> Cost:
    """silu(a) * b."""
    return _gated_forward(elements, itemsize, _SILU, "fused.swiglu_forward")


def swiglu_backward(elements: int, itemsize: int) -> Cost:
    """da = dy * b * silu'(a) and db = dy * silu(a) from dy, a and b."""
    # silu' already has one product; silu(a) is the sigmoid times a; two products with dy
    return _gated_backward(elements, itemsize, _SILU_BACKWARD + 3, "fused.swiglu_backward")


def geglu_forward(elements: int, itemsize: int, *, tanh: bool = True) -> Cost:
    """gelu(a) * b."""
    activation = _GELU_TANH if tanh else _GELU
    return _gated_forward(elements, itemsize, activation, "fused.geglu_forward")


def geglu_backward(elements: int, itemsize: int, *, tanh: bool = True) -> Cost:
    """da = dy * b * gelu'(a) and db = dy * gelu(a) from dy, a and b."""
    flops = (_GELU_TANH_BACKWARD if tanh else _GELU_BACKWARD) + 3
    return _gated_backward(elements, itemsize, flops, "fused.geglu_backward")


def rotary_embedding(elements: int, table_elements: int, itemsize: int) -> Cost:
    """Rotate pairs of x by the angles of cos and sin; the backward rotates dy back, at this cost.

    Args:
        elements: Elements of x.
        table_elements: Elements of cos and sin together.
        itemsize: Bytes of an element of each.
    """
    return Cost(
        vector_flops=_ROTATION * elements,
        read_bytes=(elements + table_elements) * itemsize,
        write_bytes=elements * itemsize,
        formula="fused.rotary_embedding",
    )


def linear_cross_entropy_forward(
    m: int, k: int, v: int, itemsize: int, *, index_itemsize: int = 8, math: str = ""
) -> Cost:
    """Losses of m tokens from hidden [m, k] and weight [v, k]; logits stay on the chip."""
    flops = matmul_flops(m, v, k)
    return Cost(
        matrix_flops=flops,
        dense_matrix_flops=flops,
        vector_flops=_CROSS_ENTROPY * m * v,
        read_bytes=(m * k + v * k) * itemsize + m * index_itemsize,
        write_bytes=2 * m * _STATISTIC_ITEMSIZE,
        math=math,
        formula="fused.linear_cross_entropy_forward",
    )


def linear_cross_entropy_forward_backward(
    m: int, k: int, v: int, itemsize: int, *, index_itemsize: int = 8, math: str = ""
) -> Cost:
    """Losses, dhidden and dweight: three products. Logits computed twice are no more work."""
    flops = 3 * matmul_flops(m, v, k)
    return Cost(
        matrix_flops=flops,
        dense_matrix_flops=flops,
        vector_flops=2 * _CROSS_ENTROPY * m * v,
        read_bytes=(m * k + v * k) * itemsize + m * index_itemsize,
        write_bytes=(m * k + v * k) * itemsize + 2 * m * _STATISTIC_ITEMSIZE,
        math=math,
        formula="fused.linear_cross_entropy_forward_backward",
    )
