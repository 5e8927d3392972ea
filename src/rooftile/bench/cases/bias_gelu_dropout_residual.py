"""bias_gelu_dropout_residual: dropout(gelu(x + bias)) + residual, with both forms of GELU."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from rooftile.bench.case import Case, Dims, Inputs, Results
from rooftile.bench.ours import our_op
from rooftile.bench.shapes import SMALL
from rooftile.cost.formulas import fused as formulas
from rooftile.errors import GateError
from rooftile.records.measurement import Direction

_SHAPES = ((8192, 8192),)
_P = 0.125  # a multiple of every generator's step, so that all scale by exactly 1 / (1 - p)
_SIGMAS = 6  # a fair mask is further from p once in 500 million
_ours = our_op("bias_gelu_dropout_residual")

Gelu = Literal["tanh", "none"]


def _inputs(dims: Dims, dtype: torch.dtype, device: str) -> tuple[Tensor, ...]:
    """The residual asks for no gradient: it is that of the output, and a leaf would copy it."""
    m, n = dims["M"], dims["N"]
    x, bias, residual = (
        torch.randn(size, dtype=dtype, device=device) for size in ((m, n), (n,), (m, n))
    )
    return x.requires_grad_(), bias.requires_grad_(), residual


def _function(x: Tensor, bias: Tensor, residual: Tensor, *, gelu: Gelu) -> Tensor | Results:
    return _ours(x, bias, residual, p=_P, approximate=gelu)


def _reference(x: Tensor, bias: Tensor, residual: Tensor, *, gelu: Gelu) -> Tensor:
    return F.dropout(F.gelu(x + bias, approximate=gelu), _P, True) + residual


def _resolve(
    direction: Direction, got: Results, inputs: Inputs, grads: Results, *, gelu: Gelu
) -> Results:
    """What is right for the mask that the result shows: each element is kept, scaled, or 0."""
    x, bias, residual = inputs
    if direction == "forward":
        kept = F.gelu(x + bias, approximate=gelu) / (1 - _P)
        return (_nearer(got[0].double(), residual + kept, residual),)
    y = (x + bias).requires_grad_()
    with torch.enable_grad():
        (dx,) = torch.autograd.grad(F.gelu(y, approximate=gelu), y, grads[0] / (1 - _P))
    right = _nearer(got[0].double(), dx, torch.zeros_like(dx))
    return right, right.sum(0)


def _nearer(got: Tensor, kept: Tensor, dropped: Tensor) -> Tensor:
    """For each element the one of two values that the result is nearer to.

    Raises:
        GateError: The share of dropped elements is not p.
    """
    is_dropped = (got - dropped).abs() < (got - kept).abs()
    # where both values round to the same, which it was cannot be seen
    apart = (kept - dropped).abs() > 0.05 * dropped.abs().clamp_min(1e-3)
    seen = int(apart.sum())
    share = int((is_dropped & apart).sum()) / max(seen, 1)
    sigma = (_P * (1 - _P) / max(seen, 1)) ** 0.5
    if abs(share - _P) > _SIGMAS * sigma + 1e-3:
        raise GateError(f"the share of dropped elements must be {_P}, got {share:.4f} of {seen}")
    return torch.where(is_dropped, dropped, kept)


def _case(variant: str, gelu: Gelu) -> Case:
    tanh = gelu == "tanh"
    return Case(
        op="bias_gelu_dropout_residual",
        dims=("M", "N"),
        inputs=_inputs,
        function=partial(_function, gelu=gelu),
        reference=partial(_reference, gelu=gelu),
        costs={
            "forward": lambda d, size: formulas.bias_gelu_dropout_residual_forward(
                d["M"], d["N"], size, tanh=tanh
            ),
            "backward": lambda d, size: formulas.bias_gelu_dropout_residual_backward(
                d["M"], d["N"], size, tanh=tanh
            ),
        },
        shapes={"forward": _SHAPES, "backward": _SHAPES},
        small=SMALL,
        variant=variant,
        resolve=partial(_resolve, gelu=gelu),
    )


CASES = (_case("tanh", "tanh"), _case("erf", "none"))
