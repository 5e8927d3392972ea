"""Residual sum and its layer norm: h = x + residual, y = layer_norm(h).

Source: Ba, Kiros and Hinton 2016, https://arxiv.org/abs/1607.06450
Cost:   rooftile.cost.formulas.fused.add_layer_norm_forward (memory-bound at every shape)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rooftile.ops._check import check_number, check_parameter, check_trailing
from rooftile.ops._repeat import repeats
from rooftile.ops.add_rms_norm import check_residual
from rooftile.ops.layer_norm import layer_norm_ref
from rooftile.ops.rows.norm import Norm
from rooftile.ops.rows.norm_ops import differentiable_norm


def add_layer_norm_ref(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """The definition, in plain PyTorch. It accumulates in float32, or in float64 for float64."""
    h = x + residual
    return layer_norm_ref(h, weight, bias, eps).to(x.dtype), h


@repeats()
def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Add a residual and normalize the sum to mean 0 and deviation 1, in one pass.

    Computes ``h = input + residual`` and
    ``y = (h - mean(h)) / sqrt(var(h) + eps) * weight + bias``. The norm is that of h as it
    is written. Autocast leaves the dtypes as they are.

    Args:
        input: Shape ``[..., *normalized_shape]``, float32, float16 or bfloat16, of any strides.
        residual: Of the shape of ``input``; its dtype may be wider.
        normalized_shape: The trailing dimensions that are normalized together.
        weight: Scale, of shape ``normalized_shape``; its dtype may differ from that of ``input``.
        bias: Added last, of shape ``normalized_shape``.
        eps: Added to the variance.

    Returns:
        ``(y, h)``, contiguous: y in the dtype of ``input``, h in the wider of both. Sums over a row
        are accumulated in float32.

    Raises:
        InputError: A shape, dtype or device is not as above.

    Cost:
        ``fused.add_layer_norm_forward`` and ``fused.add_layer_norm_backward``.

    Source:
        https://arxiv.org/abs/1607.06450
    """
    check_residual(input, residual)
    eps = check_number("eps", eps)
    shape = check_trailing("input", input, normalized_shape)
    check_parameter("weight", weight, shape, input)
    check_parameter("bias", bias, shape, input)
    norm = Norm(len(shape), eps, True)
    both: tuple[Tensor, Tensor] = differentiable_norm(
        "add_layer_norm", input, residual, weight, bias, norm
    )
    return both  # as it came: only then is a like call made again without its checks


class AddLayerNorm(torch.nn.LayerNorm):
    """``torch.nn.LayerNorm`` of the sum with a residual; gives the norm and the sum."""

    def forward(self, input: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Add, then normalize the trailing dimensions."""
        shape = self.normalized_shape
        return add_layer_norm(input, residual, shape, self.weight, self.bias, self.eps)
