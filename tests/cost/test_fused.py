"""Costs of fused ops, by counts made by hand."""

from __future__ import annotations

import pytest

from rooftile.cost.formulas import fused

M, N, E = 2, 3, 6  # 2 rows of 3 in two bytes: 6 elements, 12 bytes a tensor


@pytest.mark.parametrize(
    ("cost", "flops", "read", "written"),
    [
        # x, residual and weight; y, h and 1/rms: 4 FLOP of the norm and a sum
        (fused.add_rms_norm_forward(M, N, 2), 5 * E, 24 + 6, 24 + 8),
        # dy, h, dh and weight, 1/rms; dx and dweight
        (fused.add_rms_norm_backward(M, N, 2), 10 * E, 36 + 6 + 8, 12 + 6),
        # weight and bias; mean and 1/std
        (fused.add_layer_norm_forward(M, N, 2), 8 * E, 24 + 12, 24 + 16),
        (fused.add_layer_norm_backward(M, N, 2), 14 * E, 36 + 6 + 16, 12 + 12),
        # two sums, GELU 9 or 5, dropout 3; no mask is stored
        (fused.bias_gelu_dropout_residual_forward(M, N, 2), 14 * E, 24 + 6, 12),
        (fused.bias_gelu_dropout_residual_forward(M, N, 2, tanh=False), 10 * E, 30, 12),
        # dy, x, bias; dx, dbias: the sum again, GELU' 18, dropout 2, the sum over rows
        (fused.bias_gelu_dropout_residual_backward(M, N, 2), 22 * E, 30, 12 + 6),
        (fused.bias_gelu_dropout_residual_backward(M, N, 2, tanh=False), 15 * E, 30, 18),
        (fused.swiglu_forward(E, 2), 6 * E, 24, 12),
        (fused.swiglu_backward(E, 2), 12 * E, 36, 24),
        (fused.geglu_forward(E, 2), 10 * E, 24, 12),
        (fused.geglu_forward(E, 2, tanh=False), 6 * E, 24, 12),
        (fused.geglu_backward(E, 2), 21 * E, 36, 24),
        (fused.rotary_embedding(E, 4, 2), 3 * E, 20, 12),
    ],
)
def test_vector_work(cost, flops, read, written):
    """Every region once; no matrix work."""
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (flops, read, written)
    assert cost.matrix_flops == 0
    assert cost.formula.startswith("fused.")


def test_linear_cross_entropy():
    """2 tokens, hidden 3, 5 words: 60 FLOP a product; hidden 12, weight 30, targets 16 bytes."""
    forward = fused.linear_cross_entropy_forward(2, 3, 5, 2, math="bf16")
    assert (forward.matrix_flops, forward.vector_flops) == (60, 4 * 10)
    assert (forward.read_bytes, forward.write_bytes) == (12 + 30 + 16, 16)
    both = fused.linear_cross_entropy_forward_backward(2, 3, 5, 2, math="bf16")
    assert (both.matrix_flops, both.vector_flops) == (180, 80)
    assert (both.read_bytes, both.write_bytes) == (58, 12 + 30 + 16)
    assert both.math == "bf16"
