"""RMS norm over trailing dimensions: y = x / sqrt(mean(x^2) + eps) * weight.

Source: Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467
Cost:   rooftile.cost.formulas.normalization.rms_norm_forward (memory-bound at every shape)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rooftile.ops._check import (
    check_finite,
    check_float,
    check_number,
    check_parameter,
    check_switch,
    check_trailing,
)
from rooftile.ops._repeat import repeats
from rooftile.ops.rows.norm import Norm
from rooftile.ops.rows.norm_ops import differentiable_norm

EPS = torch.finfo(torch.float32).eps  # torch's default for 16-bit inputs, whose sums are float32


def rms_norm_ref(x: Tensor, weight: Tensor | None = None, eps: float = EPS) -> Tensor:
    """The definition, in plain PyTorch. It accumulates in float32, or in float64 for float64."""
    acc = x.to(torch.promote_types(x.dtype, torch.float32))
    y = acc * torch.rsqrt(acc.square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight.to(acc.dtype)).to(x.dtype)


@repeats()
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    weight_offset: float = 0.0,
    cast_before_weight: bool = False,
) -> Tensor:
    """Divide each row by its root mean square and scale it by ``weight``.

    Computes ``y = x / sqrt(mean(x**2) + eps) * (weight + weight_offset)``. Under autocast the dtype
    stays that of ``input``: sums are float32 in any case.

    Args:
        input: Shape ``[..., *normalized_shape]``, float32, float16 or bfloat16, of any strides.
        normalized_shape: The trailing dimensions that are normalized together.
        weight: Scale, of shape ``normalized_shape``; its dtype may differ from that of ``input``.
        eps: Added to the mean square; 1.1920929e-07 (float32's epsilon) where None.
        weight_offset: Added to ``weight`` in float32; 1 for Gemma's norm.
        cast_before_weight: Round the normalized row to the dtype of ``input`` before it meets the
            weight, as Llama's norm does, instead of once at the end.

    Returns:
        A contiguous tensor, shape and dtype of ``input``. Sums are accumulated in float32.

    Raises:
        InputError: A shape, dtype or device is not as above.

    Cost:
        ``normalization.rms_norm_forward`` and ``normalization.rms_norm_backward``.

    Source:
        https://arxiv.org/abs/1910.07467
    """
    check_float("input", input)
    eps = EPS if eps is None else check_number("eps", eps)
    weight_offset = check_finite("weight_offset", weight_offset)
    cast_before_weight = check_switch("cast_before_weight", cast_before_weight)
    shape = check_trailing("input", input, normalized_shape)
    check_parameter("weight", weight, shape, input)
    norm = Norm(len(shape), eps, False, weight_offset, cast_before_weight)
    return differentiable_norm("rms_norm", input, None, weight, None, norm)


class RMSNorm(torch.nn.RMSNorm):
    """``torch.nn.RMSNorm`` on ``rooftile.ops.rms_norm``."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the trailing dimensions of x."""
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)
