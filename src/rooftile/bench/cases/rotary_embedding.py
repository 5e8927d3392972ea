"""rotary_embedding of [batch, sequence, heads, head dim], the halves rotated against each other."""

from __future__ import annotations

import torch
from torch import Tensor

from rooftile.bench import quack
from rooftile.bench.case import Case, Dims
from rooftile.bench.ours import our_op
from rooftile.cost.formulas import fused as formulas
from rooftile.records.cost import Cost

_SHAPES = ((4, 4096, 32, 128),)  # 8192 x 8192 elements
_BASE = 10_000.0
_ours = our_op("rotary_embedding")


def _inputs(dims: Dims, dtype: torch.dtype, device: str) -> tuple[Tensor, ...]:
    b, s, h, d = (dims[name] for name in ("B", "S", "H", "D"))
    x = torch.randn(b, s, h, d, dtype=dtype, device=device, requires_grad=True)
    rates = _BASE ** (-torch.arange(0, d, 2, device=device, dtype=torch.float64) / d)
    angles = torch.outer(torch.arange(s, device=device, dtype=torch.float64), rates)
    return x, angles.cos().to(dtype), angles.sin().to(dtype)


def _reference(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = cos[:, None], sin[:, None]  # [S, 1, D / 2]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _cost(dims: Dims, itemsize: int) -> Cost:
    elements = dims["B"] * dims["S"] * dims["H"] * dims["D"]
    return formulas.rotary_embedding(elements, dims["S"] * dims["D"], itemsize)


CASES = (
    Case(
        op="rotary_embedding",
        dims=("B", "S", "H", "D"),
        inputs=_inputs,
        function=lambda x, cos, sin: _ours(x, cos, sin),
        reference=_reference,
        costs={"forward": _cost, "backward": _cost},
        shapes={"forward": _SHAPES, "backward": _SHAPES},
        small=((2, 5, 3, 64),),
        peers={"quack": quack.ROTARY_EMBEDDING},
    ),
)
