"""The grouped matmul of a mixture of experts, in every dtype that its GPU kernel takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rooftile.capture.define import OPS, autograd, define


def _grouped_fake(
    self: Tensor, mat2: Tensor, offs: Tensor | None, bias: Tensor | None, out_dtype: Any
) -> Tensor:
    dtype = out_dtype or self.dtype
    if self.dim() == 3 or mat2.dim() == 3:
        rows = self.shape[:-1] if self.dim() == 2 or mat2.dim() == 3 else self.shape[1:2]
        return self.new_empty(*rows, mat2.shape[-1], dtype=dtype)
    groups = 1 if offs is None else offs.shape[0]
    return self.new_empty(groups, self.shape[0], mat2.shape[1], dtype=dtype)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    self, mat2, offs, _, _ = inputs
    ctx.save_for_backward(self, mat2, offs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    self, mat2, offs = ctx.saved_tensors
    needs = ctx.needs_input_grad
    dself = OPS._grouped_mm(grad, mat2.transpose(-2, -1), offs, None, None) if needs[0] else None
    dmat2 = OPS._grouped_mm(self.transpose(-2, -1), grad, offs, None, None) if needs[1] else None
    return dself, dmat2, None, None, None


define(
    "_grouped_mm(Tensor self, Tensor mat2, Tensor? offs, Tensor? bias, ScalarType? out_dtype) "
    "-> Tensor",
    _grouped_fake,
)
autograd("_grouped_mm", _backward, _setup)


def grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Stands in for `aten::_grouped_mm`, whose fake kernel takes bfloat16 only.

    Shapes: [R, K] with [E, K, N] gives [R, N]; [K, R] with [R, N] gives [E, K, N]; 3-D with 3-D is
    a batch. ``offs`` [E] holds where each expert's rows end.
    """
    if self.shape[-1] != mat2.shape[-2]:
        raise RuntimeError(
            f"_grouped_mm: contracted sizes differ: {list(self.shape)} and {list(mat2.shape)}"
        )
    out: Tensor = OPS._grouped_mm(self, mat2, offs, bias, out_dtype)
    return out
