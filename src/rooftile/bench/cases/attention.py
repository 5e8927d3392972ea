"""attention: full and causal, of shapes that fill a GPU."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from rooftile.bench.attention_peers import peers
from rooftile.bench.case import Case, Dims, Function
from rooftile.bench.ours import our_op
from rooftile.cost.formulas import attention as formulas
from rooftile.cost.formulas.attention import Mask
from rooftile.records.cost import Cost
from rooftile.spec.dtypes import math_key

_DIMS = ("B", "H", "S", "D")
# the article's shape; long; narrow heads; wide heads; short
_SHAPES = ((16, 32, 4096, 128), (2, 32, 16_384, 128), (8, 32, 4096, 64), (4, 16, 4096, 256),
           (16, 32, 1024, 128))  # fmt: skip
_MATH = {2: math_key("bfloat16"), 4: math_key("float32")}
_ours = our_op("attention")


def _inputs(dims: Dims, dtype: torch.dtype, device: str) -> tuple[Tensor, ...]:
    shape = tuple(dims[name] for name in _DIMS)
    return tuple(torch.randn(shape, dtype=dtype, device=device).requires_grad_() for _ in range(3))


def _cost(direction: str, causal: bool, dims: Dims, itemsize: int) -> Cost:
    b, h, s, d = (dims[name] for name in _DIMS)
    formula = getattr(formulas, f"attention_{direction}")
    mask = Mask(causal=causal)
    return cast(Cost, formula(b, h, s, s, d, itemsize, mask=mask, math=_MATH[itemsize]))


def _reference(causal: bool) -> Function:
    """The definition: it holds the scores in memory."""

    def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if causal:
            after = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(after, float("-inf"))
        return torch.softmax(scores, -1) @ v

    return reference


def _case(causal: bool) -> Case:
    return Case(
        op="attention",
        variant="causal" if causal else "",
        dims=_DIMS,
        inputs=_inputs,
        function=lambda q, k, v: _ours(q, k, v, is_causal=causal),
        reference=_reference(causal),
        costs={
            "forward": lambda dims, size: _cost("forward", causal, dims, size),
            "backward": lambda dims, size: _cost("backward", causal, dims, size),
        },
        shapes={"forward": _SHAPES, "backward": _SHAPES},
        small=((1, 2, 33, 16), (2, 1, 48, 24)),
        peers=peers(causal),
    )


CASES = (_case(False), _case(True))
