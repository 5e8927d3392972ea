"""x + residual and its rms_norm, both results."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rooftile.bench import liger, quack
from rooftile.bench.case import Case, Dims, Results
from rooftile.bench.ours import our_op
from rooftile.bench.shapes import BACKWARD, FORWARD, SMALL, rows_of
from rooftile.cost.formulas import fused as formulas

_EPS = 1e-6
_ours = our_op("add_rms_norm")


def _inputs(dims: Dims, dtype: torch.dtype, device: str) -> tuple[Tensor, ...]:
    """The residual asks for no gradient: it is that of x, and a second leaf would copy it."""
    m, n = dims["M"], dims["N"]
    x, residual, weight = (
        torch.randn(size, dtype=dtype, device=device) for size in ((m, n), (m, n), (n,))
    )
    return x.requires_grad_(), residual, weight.requires_grad_()


def _reference(x: Tensor, residual: Tensor, weight: Tensor) -> Results:
    h = x + residual
    return F.rms_norm(h, weight.shape, weight, _EPS), h


def _function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor | Results:
    return _ours(x, residual, weight.shape, weight, _EPS)


CASES = (
    Case(
        op="add_rms_norm",
        dims=("M", "N"),
        inputs=_inputs,
        function=_function,
        reference=_reference,
        costs={
            "forward": lambda d, size: formulas.add_rms_norm_forward(d["M"], d["N"], size),
            "backward": lambda d, size: formulas.add_rms_norm_backward(d["M"], d["N"], size),
        },
        shapes={"forward": rows_of(FORWARD), "backward": rows_of(BACKWARD)},
        small=SMALL,
        peers={"liger": liger.ADD_RMS_NORM, "quack": quack.ADD_RMS_NORM},
    ),
)
