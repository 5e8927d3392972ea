"""attention: full and causal, of shapes that fill a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

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
_PART = 2**28  # scores that the definition holds at a time: 2 GiB in float64
# The article that Rooftile grew out of, as it printed them; it names no dtype and no mask.
_ARTICLE = {"op": "attention", "shape": "batch=16,heads=32,seq=4096,dim=128", "gpu": "h100-sxm"}
_CLAIMS: dict[tuple[int, ...], Sequence[Mapping[str, str]]] = {
    _SHAPES[0]: (
        {**_ARTICLE, "label": "the article: unfused", "time": "4.82 ms", "unfused": "yes"},
        {**_ARTICLE, "label": "the article: fused", "time": "1.14 ms", "memory": "64 MB"},
    )
}
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


def _by_parts(causal: bool) -> Function:
    """The definition over as many heads at a time as ``_PART`` allows; a backward starts anew."""
    reference = _reference(causal)

    def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = max(1, _PART // (q.shape[-2] * k.shape[-2]))
        parts = zip(*(t.flatten(0, 1).split(heads) for t in (q, k, v)), strict=True)
        if not torch.is_grad_enabled():
            return torch.cat([cast(Tensor, reference(*part)) for part in parts]).view_as(q)
        found = [cast(Tensor, checkpoint(reference, *part, use_reentrant=False)) for part in parts]
        return torch.cat(found).view_as(q)

    return whole


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
        by_parts=_by_parts(causal),
        claims={} if causal else _CLAIMS,
    )


CASES = (_case(False), _case(True))
