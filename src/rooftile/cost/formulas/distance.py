"""Distances between all pairs of points.

FLOP a component of a pair: a difference, its size (square or modulus) and the sum; a power more for
a norm other than 0, 1, 2 and infinity. A pair more: a root, for norms that take one. Backward: the
difference again, what it contributes and its sum, and once a pair the gradient over the distance.
Sums over no component are zeros.
"""

from __future__ import annotations

from math import inf, prod

from rooftile.cost.formulas.matmul import matmul_flops
from rooftile.cost.formulas.operands import (
    Formula,
    broadcast,
    cost,
    matrix_math,
    number,
    operand,
    ranked,
)
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op

# Of each set: squares, their sum, ones, and all three beside each other; the first set is scaled
# too. The product; cut at 0; the root.
_EUCLIDEAN_KERNELS = 2 * 4 + 1 + 3


def _forward_flops(pairs: int, components: int, p: float) -> int:
    if components == 0:
        return 0
    if p == 2:
        return pairs * (3 * components + 1)
    if p in (0, 1, inf):
        return pairs * 3 * components
    return pairs * (4 * components + 1)


def _backward_flops(pairs: int, components: int, p: float) -> int:
    """Difference, factor, sum; sign of the difference for 1; modulus, comparison or power else."""
    if components == 0 or p == 0:
        return 0
    if p in (1, 2):
        return pairs * (((3 if p == 2 else 4) * components) + (p == 2))
    return pairs * (6 * components + 2)


def _pairs(op: Op) -> tuple[int, int, int]:
    """Pairs of a batch of two sets, their components, and the points of both sets."""
    a, b = operand(op, "x1"), operand(op, "x2")
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise InputError(f"{op.aten}: x1 and x2 must be matrices, got {a.shape} and {b.shape}")
    batch = prod(broadcast((a.shape[:-2], b.shape[:-2])))
    points = batch * (a.shape[-2] + b.shape[-2])
    return batch * a.shape[-2] * b.shape[-2], a.shape[-1], points


def _cdist(op: Op) -> Cost:
    pairs, components, _ = _pairs(op)
    flops = _forward_flops(pairs, components, number(op, "p", 2.0))
    return cost(op, "distance.cdist", vector=flops)


def _cdist_backward(op: Op) -> Cost:
    """The gradient of the first set."""
    pairs, components, _ = _pairs(op)
    flops = _backward_flops(pairs, components, number(op, "p", 2.0))
    return cost(op, "distance.cdist_backward", vector=flops)


def _euclidean(op: Op) -> Cost:
    """By a product: |a|² - 2ab + |b|² is a row [-2a, |a|², 1] times a column [b, 1, |b|²]."""
    pairs, components, points = _pairs(op)
    return cost(
        op,
        "distance.euclidean_distances",
        matrix=matmul_flops(1, pairs, components + 2),
        vector=2 * points * components + 2 * pairs,
        math=matrix_math(op, operand(op, "x1")),
        kernels=_EUCLIDEAN_KERNELS,
    )


def _pdist(op: Op) -> Cost:
    """Each pair of one set once."""
    points, components = ranked(op, 2, "self").shape
    pairs = points * (points - 1) // 2
    flops = _forward_flops(pairs, components, number(op, "p", 2.0))
    return cost(op, "distance.pdist", vector=flops)


def _pdist_backward(op: Op) -> Cost:
    """A pair contributes to both of its points: one more sum a component."""
    points, components = ranked(op, 2, "self").shape
    pairs = points * (points - 1) // 2
    p = number(op, "p", 2.0)
    flops = _backward_flops(pairs, components, p) + pairs * components * (p != 0)
    return cost(op, "distance.pdist_backward", vector=flops)


OPS: dict[str, Formula] = {
    "cdist": _cdist,
    "cdist_backward": _cdist_backward,
    "euclidean_distances": _euclidean,
    "pdist": _pdist,
    "pdist_backward": _pdist_backward,
}
