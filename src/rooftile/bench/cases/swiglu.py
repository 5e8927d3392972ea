"""swiglu: silu(a) * b."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rooftile.bench import liger
from rooftile.bench.case import Case, Dims
from rooftile.bench.ours import our_op
from rooftile.bench.shapes import SMALL
from rooftile.cost.formulas import fused as formulas

_SHAPES = ((8192, 8192),)
_ours = our_op("swiglu")


def _inputs(dims: Dims, dtype: torch.dtype, device: str) -> tuple[Tensor, ...]:
    shape = (dims["M"], dims["N"])
    return tuple(
        torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for _ in range(2)
    )


CASES = (
    Case(
        op="swiglu",
        dims=("M", "N"),
        inputs=_inputs,
        function=lambda a, b: _ours(a, b),
        reference=lambda a, b: F.silu(a) * b,
        costs={
            "forward": lambda d, size: formulas.swiglu_forward(d["M"] * d["N"], size),
            "backward": lambda d, size: formulas.swiglu_backward(d["M"] * d["N"], size),
        },
        shapes={"forward": _SHAPES, "backward": _SHAPES},
        small=SMALL,
        peers={"liger": liger.SWIGLU},
    ),
)
