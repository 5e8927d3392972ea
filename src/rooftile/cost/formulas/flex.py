"""flex_attention: attention with a function of each score and a mask asked pair by pair.

Products, softmax and bytes as in ``attention``, over the pairs that the mask leaves, or where it is
not known over all. The function of the scores is computed for each of those pairs, in the backward
again and with its gradient; the mask for the pairs of blocks that it hides in part (all other
blocks are skipped or whole), once each way. What both read comes once, and is no more than a cache
holds.

Source: Dong et al. 2024, https://arxiv.org/abs/2412.05496 (block masks).
"""

from __future__ import annotations

from functools import partial

from rooftile.cost.formulas.attention import backward_work, forward_work
from rooftile.cost.formulas.operands import Formula, cost, matrix_math, number, ranked
from rooftile.cost.formulas.pointwise import of_one
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op


def _ops(op: Op, name: str) -> list[str]:
    """Names of ops in an attribute, one a word; else InputError."""
    value = op.attrs.get(name, "")
    if not isinstance(value, str):
        raise InputError(f"{op.aten}: {name} must be names of ops, got {value!r}")
    return value.split()


def _price(op: Op, backward: bool) -> Cost:
    q, k, v = (ranked(op, 4, role) for role in ("query", "key", "value"))
    batch, heads, rows, width = q.shape
    dense = batch * heads * rows * k.shape[-2]
    pairs, asked = int(number(op, "pairs", -1)), int(number(op, "asked", 0))
    if not -1 <= pairs <= dense:
        raise InputError(f"{op.aten}: pairs must be at most {dense}, got {pairs}")
    visible = dense if pairs < 0 else pairs
    scores = _ops(op, "score_ops") + (_ops(op, "score_grad_ops") if backward else [])
    work_of = backward_work if backward else forward_work
    work = work_of(
        visible, dense, batch * heads * rows * v.shape[-1], width, v.shape[-1],
        extras=of_one(scores),
    )  # fmt: skip
    vector = work.vector + asked * of_one(_ops(op, "mask_ops"))
    math = matrix_math(op, q)
    return cost(
        op, f"flex.{op.name}", matrix=work.matrix, dense=work.dense, vector=vector, math=math
    )


OPS: dict[str, Formula] = {
    "flex_attention": partial(_price, backward=False),
    "flex_attention_backward": partial(_price, backward=True),
}
