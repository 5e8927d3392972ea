"""Normalisations, softmax, dropout and one-hot rows as the kernels that a GPU runs."""

from __future__ import annotations

from collections.abc import Callable
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


def _float32_statistics(result: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A GPU keeps statistics of a 16-bit input in float32, a CPU in the input's dtype."""
    out, *statistics = result
    return out, *(
        t.new_empty(t.shape, dtype=torch.float32) if t.itemsize == 2 else t for t in statistics
    )


def _no_buffer(result: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A CPU keeps the exponential for the backward, a GPU computes it again."""
    return result[0], result[1].new_empty(0)


# Ops that return something else beside their result on a GPU than on a CPU.
ON_A_GPU: dict[str, Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]] = {
    "native_layer_norm": _float32_statistics,
    "native_batch_norm": _float32_statistics,
    "_native_batch_norm_legit": _float32_statistics,
    "log_sigmoid_forward": _no_buffer,
}


def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Stands in for `aten::softmax.int`: a GPU reads float16 and writes float32 in one kernel."""
    return _softmax(torch.ops.aten._softmax.default, input, dim, dtype)


def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Stands in for `aten::log_softmax.int`, likewise."""
    return _softmax(torch.ops.aten._log_softmax.default, input, dim, dtype)


def _softmax(op: Any, input: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    joined = input.dtype is torch.float16 and dtype is torch.float32
    if dtype is not None and not joined:
        input = input.to(dtype)
    out: Tensor = op(input, dim, joined)
    return out


def one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
    """Stands in for `aten::one_hot`: a GPU fills zeros and scatters a one into each row."""
    if num_classes == -1:
        num_classes = int(self.max().item()) + 1  # torch asks for it too
    out = torch.zeros((*self.shape, num_classes), dtype=torch.int64)
    return out.scatter_(-1, self.unsqueeze(-1), 1)
