"""attention: full, causal, with shared heads and in a window, of shapes that fill a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rooftile.bench.attention_form import FORMS, Form
from rooftile.bench.attention_peers import peers
from rooftile.bench.attention_rounding import gradient_rounding, output_rounding
from rooftile.bench.case import Case, Dims, Function, Inputs, Results
from rooftile.bench.ours import our_op
from rooftile.cost.formulas import attention as formulas
from rooftile.records.cost import Cost
from rooftile.records.measurement import Direction
from rooftile.spec.dtypes import math_key

_DIMS = ("B", "H", "S", "D")
_ARTICLES = (16, 32, 4096, 128)
# 16,384 tokens and 4,096 columns of heads: what a training step of a large model has at a time
_SWEEP = tuple(
    (16_384 // s, 4096 // d, s, d) for s in (4096, 16_384, 1024, 512) for d in (128, 64, 256)
)
_MATH = {2: math_key("bfloat16"), 4: math_key("float32")}
_PART = 2**28  # scores that the definition holds at a time: 2 GiB in float64
# The article that Rooftile grew out of, as it printed them; it names no dtype and no mask.
_ARTICLE = {"op": "attention", "shape": "batch=16,heads=32,seq=4096,dim=128", "gpu": "h100-sxm"}
_CLAIMS: dict[tuple[int, ...], Sequence[Mapping[str, str]]] = {
    _ARTICLES: (
        {**_ARTICLE, "label": "the article: unfused", "time": "4.82 ms", "unfused": "yes"},
        {**_ARTICLE, "label": "the article: fused", "time": "1.14 ms", "memory": "64 MB"},
    )
}
_ours = our_op("attention")


def _inputs(form: Form, dims: Dims, dtype: torch.dtype, device: str) -> tuple[Tensor, ...]:
    batch, heads, *rest = (dims[name] for name in _DIMS)
    shared = form.kv_heads(heads)
    return tuple(
        torch.randn(batch, count, *rest, dtype=dtype, device=device).requires_grad_()
        for count in (heads, shared, shared)
    )


def _cost(direction: str, form: Form, dims: Dims, itemsize: int) -> Cost:
    b, h, s, d = (dims[name] for name in _DIMS)
    formula = getattr(formulas, f"attention_{direction}")
    options = {"kv_heads": form.kv_heads(h), "mask": form.mask(s), "math": _MATH[itemsize]}
    return cast(Cost, formula(b, h, s, s, d, itemsize, **options))


def _function(form: Form) -> Function:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        window = (form.left(q.shape[-2]), -1)
        found = _ours(q, k, v, is_causal=form.causal, window_size=window)
        return cast(Tensor, found)

    return function


def _reference(form: Form) -> Function:
    """The definition: it holds the scores in memory."""

    def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = _for_each_query(q, k, v)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        hidden = form.hidden(q.shape[-2], q.device)
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        return torch.softmax(scores, -1) @ v

    return reference


def _for_each_query(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values with a head for each of the queries'."""
    group = q.shape[-3] // k.shape[-3]
    if group == 1:
        return k, v
    return k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)


def _by_parts(form: Form) -> Function:
    """The definition over as many heads at a time as ``_PART`` allows; a backward starts anew."""
    reference = _reference(form)

    def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = max(1, _PART // (q.shape[-2] * k.shape[-2]))
        every = (q, *_for_each_query(q, k, v))
        parts = zip(*(t.flatten(0, 1).split(heads) for t in every), strict=True)
        if not torch.is_grad_enabled():
            return torch.cat([cast(Tensor, reference(*part)) for part in parts]).view_as(q)
        found = [cast(Tensor, checkpoint(reference, *part, use_reentrant=False)) for part in parts]
        return torch.cat(found).view_as(q)

    return whole


def _rounding(form: Form, direction: Direction, inputs: Inputs, grads: Results) -> Results:
    """What a float32 error may be at each element, over as many heads at a time as the truth."""
    q, k, v = inputs
    hidden = form.hidden(q.shape[-2], q.device)
    seen = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device)
    seen = seen if hidden is None else ~hidden
    every = (q, *_for_each_query(q, k, v), *grads)
    parts = (t.flatten(0, 1).split(max(1, _PART // seen.numel())) for t in every)
    found = []
    for one, keys, values, *do in zip(*parts, strict=True):
        outputs = () if direction == "backward" else (output_rounding(one, keys, values, seen),)
        found.append((*outputs, *(gradient_rounding(one, keys, values, do[0], seen) if do else ())))
    whole = [torch.cat(parts).view_as(q) for parts in zip(*found, strict=True)]
    shared = [
        t.unflatten(1, (k.shape[1], q.shape[1] // k.shape[1])).sum(2)
        for t in whole[len(whole) - 2 :]
    ]
    return (*whole,) if direction == "forward" else (*whole[:-2], *shared)


def _case(form: Form) -> Case:
    shapes = (_ARTICLES, *_SWEEP) if form.group == 1 and not form.window else _SWEEP[:3]
    return Case(
        op="attention",
        variant=form.name,
        dims=_DIMS,
        inputs=lambda dims, dtype, device: _inputs(form, dims, dtype, device),
        function=_function(form),
        reference=_reference(form),
        costs={
            "forward": lambda dims, size: _cost("forward", form, dims, size),
            "backward": lambda dims, size: _cost("backward", form, dims, size),
        },
        shapes={"forward": shapes, "backward": shapes},
        small=((1, 2 * form.group, 33, 16), (2, form.group, 48, 24)),
        peers=peers(form),
        by_parts=_by_parts(form),
        claims={} if form.name else _CLAIMS,
        rounding=lambda direction, inputs, grads: _rounding(form, direction, inputs, grads),
    )


CASES = tuple(map(_case, FORMS))
