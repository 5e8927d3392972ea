"""RMSNorm and dropout as the one kernel each that a GPU runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rooftile.capture.define import OPS, autograd, define


def _rms_norm_fake(
    input: Tensor, weight: Tensor | None, normalized_shape: list[int], eps: float
) -> tuple[Tensor, Tensor]:
    rows = input.shape[: input.dim() - len(normalized_shape)]
    rstd = input.new_empty((*rows, *(1 for _ in normalized_shape)), dtype=torch.float32)
    return torch.empty_like(input), rstd


def _rms_norm_backward_fake(
    grad_out: Tensor,
    input: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    normalized_shape: list[int],
    output_mask: list[bool],
) -> tuple[Tensor, Tensor]:
    dweight = torch.empty_like(weight) if weight is not None and output_mask[1] else None
    dinput = torch.empty_like(input) if output_mask[0] else input.new_empty(0)
    return dinput, input.new_empty(0) if dweight is None else dweight


def _rms_norm_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # no zeros for what nobody differentiates
    input, weight, ctx.normalized_shape, _ = inputs
    ctx.save_for_backward(input, output[1], weight)
    ctx.mask = [input.requires_grad, weight is not None and weight.requires_grad]


def _rms_norm_backward(ctx: Any, grad_out: Tensor, grad_rstd: Tensor) -> tuple[Any, ...]:
    input, rstd, weight = ctx.saved_tensors
    dinput, dweight = OPS.rms_norm_backward(
        grad_out, input, rstd, weight, ctx.normalized_shape, ctx.mask
    )
    return dinput if ctx.mask[0] else None, dweight if ctx.mask[1] else None, None, None


define(
    "rms_norm(Tensor input, Tensor? weight, int[] normalized_shape, float eps) -> (Tensor, Tensor)",
    _rms_norm_fake,
)
define(
    "rms_norm_backward(Tensor grad_out, Tensor input, Tensor rstd, Tensor? weight, "
    "int[] normalized_shape, bool[] output_mask) -> (Tensor, Tensor)",
    _rms_norm_backward_fake,
)
autograd("rms_norm", _rms_norm_backward, _rms_norm_setup)


def rms_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Stands in for `aten::rms_norm`, which is one kernel on a GPU."""
    if list(input.shape[-len(normalized_shape) :]) != list(normalized_shape):
        raise RuntimeError(
            f"rms_norm: input of shape {list(input.shape)} does not end in {list(normalized_shape)}"
        )
    out: Tensor = OPS.rms_norm(input, weight, normalized_shape, eps or 1e-6)[0]
    return out


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Stands in for `aten::dropout`: one kernel that draws, masks and scales on a GPU."""
    if p == 0 or not train or input.numel() == 0:
        return input
    out: Tensor = torch.native_dropout(input, p, True)[0]
    return out
