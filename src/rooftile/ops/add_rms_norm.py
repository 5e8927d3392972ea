"""Residual sum and its RMS norm: h = x + residual, y = h / sqrt(mean(h^2) + eps) * weight.

Source: Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467
Cost:   rooftile.cost.formulas.fused.add_rms_norm_forward (memory-bound at every shape)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rooftile.ops._check import (
    check_device,
    check_finite,
    check_float,
    check_number,
    check_parameter,
    check_shape,
    check_switch,
    check_trailing,
)
from rooftile.ops._repeat import repeats
from rooftile.ops.rms_norm import EPS, rms_norm_ref
from rooftile.ops.rows.norm import Norm
from rooftile.ops.rows.norm_ops import differentiable_norm


def add_rms_norm_ref(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = EPS
) -> tuple[Tensor, Tensor]:
    """The definition, in plain PyTorch. It accumulates in float32, or in float64 for float64."""
    h = x + residual
    return rms_norm_ref(h, weight, eps).to(x.dtype), h


@repeats()
def add_rms_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    weight_offset: float = 0.0,
    cast_before_weight: bool = False,
) -> tuple[Tensor, Tensor]:
    """Add a residual and normalize the sum by its root mean square, in one pass.

    Computes ``h = input + residual`` and ``y = h / sqrt(mean(h**2) + eps) * weight``. The norm is
    that of h as it is written. Autocast leaves the dtypes as they are.

    Args:
        input: Shape ``[..., *normalized_shape]``, float32, float16 or bfloat16, of any strides.
        residual: Of the shape of ``input``; its dtype may be wider.
        normalized_shape: The trailing dimensions that are normalized together.
        weight: Scale, of shape ``normalized_shape``; its dtype may differ from that of ``input``.
        eps: Added to the mean square; 1.1920929e-07 (float32's epsilon) where None.
        weight_offset: Added to ``weight`` in float32; 1 for Gemma's norm.
        cast_before_weight: Round the normalized row to the dtype of ``input`` before it meets the
            weight, as Llama's norm does, instead of once at the end.

    Returns:
        ``(y, h)``, contiguous: y in the dtype of ``input``, h in the wider of both. Sums over a row
        are accumulated in float32.

    Raises:
        InputError: A shape, dtype or device is not as above.

    Cost:
        ``fused.add_rms_norm_forward`` and ``fused.add_rms_norm_backward``.

    Source:
        https://arxiv.org/abs/1910.07467
    """
    check_residual(input, residual)
    eps = EPS if eps is None else check_number("eps", eps)
    weight_offset = check_finite("weight_offset", weight_offset)
    cast_before_weight = check_switch("cast_before_weight", cast_before_weight)
    shape = check_trailing("input", input, normalized_shape)
    check_parameter("weight", weight, shape, input)
    norm = Norm(len(shape), eps, False, weight_offset, cast_before_weight)
    both: tuple[Tensor, Tensor] = differentiable_norm(
        "add_rms_norm", input, residual, weight, None, norm
    )
    return both  # as it came: only then is a like call made again without its checks


def check_residual(input: Tensor, residual: Tensor) -> None:
    """Two tensors of one shape, the residual at least as wide."""
    check_float("input", input)
    check_float("residual", residual)
    check_shape("residual", residual, tuple(input.shape))
    check_device("residual", residual, "input", input)


class AddRMSNorm(torch.nn.RMSNorm):
    """``torch.nn.RMSNorm`` of the sum with a residual; gives the norm and the sum."""

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Add, then normalize the trailing dimensions."""
        return add_rms_norm(x, residual, self.normalized_shape, self.weight, self.eps)
