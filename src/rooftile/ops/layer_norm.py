"""Layer norm over trailing dimensions: y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias.

Source: Ba, Kiros and Hinton 2016, https://arxiv.org/abs/1607.06450
Cost:   rooftile.cost.formulas.normalization.layer_norm_forward (memory-bound at every shape)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rooftile.ops._check import check_float, check_number, check_parameter, check_trailing
from rooftile.ops._repeat import repeats
from rooftile.ops.rows.norm import Norm
from rooftile.ops.rows.norm_ops import differentiable_norm


def layer_norm_ref(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """The definition, in plain PyTorch. It accumulates in float32, or in float64 for float64."""
    acc = x.to(torch.promote_types(x.dtype, torch.float32))
    acc = acc - acc.mean(-1, keepdim=True)
    y = acc * torch.rsqrt(acc.square().mean(-1, keepdim=True) + eps)
    y = y if weight is None else y * weight.to(y.dtype)
    return (y if bias is None else y + bias.to(y.dtype)).to(x.dtype)


@repeats()
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Shift each row to mean 0, divide it by its deviation, scale it and add a bias.

    Computes ``y = (x - mean(x)) / sqrt(mean((x - mean(x))**2) + eps) * weight + bias``. The
    variance is taken around the mean, never as a difference of squares. Under autocast the dtype
    stays that of ``input``: sums are float32 in any case.

    Args:
        input: Shape ``[..., *normalized_shape]``, float32, float16 or bfloat16, of any strides.
        normalized_shape: The trailing dimensions that are normalized together.
        weight: Scale, of shape ``normalized_shape``; its dtype may differ from that of ``input``.
        bias: Added last, of shape ``normalized_shape``.
        eps: Added to the variance.

    Returns:
        A contiguous tensor, shape and dtype of ``input``. Sums are accumulated in float32.

    Raises:
        InputError: A shape, dtype or device is not as above.

    Cost:
        ``normalization.layer_norm_forward`` and ``normalization.layer_norm_backward``.

    Source:
        https://arxiv.org/abs/1607.06450
    """
    check_float("input", input)
    eps = check_number("eps", eps)
    shape = check_trailing("input", input, normalized_shape)
    check_parameter("weight", weight, shape, input)
    check_parameter("bias", bias, shape, input)
    return differentiable_norm("layer_norm", input, None, weight, bias, Norm(len(shape), eps, True))


class LayerNorm(torch.nn.LayerNorm):
    """``torch.nn.LayerNorm`` on ``rooftile.ops.layer_norm``."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the trailing dimensions of input."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
