"""Reductions and running sums: FLOP an element of the input, and an element of the result.

A sum of n is n FLOP. Variance: sum, subtract, square, sum, and two divisions a result. A 2-norm:
square, sum, and a root a result; another norm one more for the power. log-sum-exp: maximum,
subtract, exponential, sum, and a logarithm and an addition a result. Elements that an expanded
dimension repeats are computed as often as they appear, and read once. Complex elements cost as many
real ones, but for products, and for a variance, whose square is real.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf, prod

from rooftile.cost.formulas.arithmetic import addition, is_complex
from rooftile.cost.formulas.operands import (
    Formula,
    broadcast,
    cost,
    operand,
    ranked,
    result,
    some_members,
)
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor

# op -> FLOP an input element, FLOP a result
_TABLE: dict[str, tuple[int, int]] = {
    "all": (1, 0),
    "amax": (1, 0),
    "amin": (1, 0),
    "aminmax": (2, 0),
    "any": (1, 0),
    "argmax": (1, 0),
    "argmin": (1, 0),
    "count_nonzero": (2, 0),
    "cummax": (1, 0),
    "cummin": (1, 0),
    "cumprod": (1, 0),
    "cumsum": (1, 0),
    "logcumsumexp": (5, 0),
    "logsumexp": (4, 2),
    "max": (1, 0),
    "mean": (1, 1),
    "min": (1, 0),
    "nansum": (2, 0),
    "prod": (1, 0),
    "std": (4, 3),
    "std_mean": (4, 3),
    "sum": (1, 0),
    "var": (4, 2),
    "var_mean": (4, 2),
}
# the same of complex elements, where not twice that
_COMPLEX = {
    "cumprod": (6, 0),
    "prod": (6, 0),
    "std": (8, 4),
    "std_mean": (8, 4),
    "var": (8, 3),
    "var_mean": (8, 3),
}


# The norms, the factors, the product.
_RENORM_KERNELS = 3


def _reduce(op: Op, per_element: int, per_result: int) -> Cost:
    x = operand(op, "self", "input")
    if op.operand("other") is not None:  # torch.max(a, b) is the elementwise maximum
        return cost(op, f"reduction.{op.name}", vector=result(op).numel)
    if is_complex(x):
        per_element, per_result = _COMPLEX.get(op.name, (2 * per_element, 2 * per_result))
    vector = per_element * x.numel + per_result * result(op).numel
    return cost(op, f"reduction.{op.name}", vector=vector)


def norm_flops(order: object, x: Tensor) -> tuple[int, int]:
    """FLOP an element and a result of a vector norm."""
    if order is None or order == 2:
        return 2 * addition(x), 1
    modulus = 4 if is_complex(x) else 1
    if order in (0, 1, inf, -inf):
        return modulus + 1, 0  # compare or absolute value, then sum or maximum
    if isinstance(order, int | float):
        return modulus + 2, 1
    raise InputError(f"norm: order must be a number, got {order!r}")


def _norm(op: Op) -> Cost:
    order = op.attrs.get("ord", op.attrs.get("p", 2))
    x = operand(op, "self")
    per_element, per_result = norm_flops(order, x)
    vector = per_element * x.numel + per_result * result(op).numel
    return cost(op, f"reduction.{op.name}", vector=vector)


def _dist(op: Op) -> Cost:
    """The norm of a difference."""
    x = operand(op, "self")
    per_element, per_result = norm_flops(op.attrs.get("p", 2), x)
    pairs = prod(broadcast((x.shape, operand(op, "other").shape)))
    return cost(op, "reduction.dist", vector=(addition(x) + per_element) * pairs + per_result)


def _renorm(op: Op) -> Cost:
    """A norm of each slice along a dimension; slices above a maximum are scaled to it."""
    x = operand(op, "self")
    per_element, _ = norm_flops(op.attrs.get("p", 2), x)
    factor = 2 if is_complex(x) else 1  # times a real number
    vector = (per_element + factor) * x.numel
    return cost(op, "reduction.renorm", vector=vector, kernels=_RENORM_KERNELS)


def _foreach_norm(op: Op) -> Cost:
    """One norm a tensor of the list."""
    tensors = some_members(op, "self")
    per_element, per_result = norm_flops(op.attrs.get("ord", 2), tensors[0])
    vector = per_element * sum(t.numel for t in tensors) + per_result * len(tensors)
    return cost(op, "reduction.foreach_norm", vector=vector)


def _foreach_max(op: Op) -> Cost:
    return cost(op, "reduction.foreach_max", vector=sum(t.numel for t in some_members(op, "self")))


def _select_backward(op: Op) -> Cost:
    """The gradient of a selecting reduction: zeros, and one element a result."""
    reads = [operand(op, "grad"), operand(op, "indices")]
    return cost(op, "reduction.select_reduction_backward", reads=reads)


def _trace(op: Op) -> Cost:
    """The diagonal alone is read."""
    x = ranked(op, 2, "self")
    length = min(x.shape)
    diagonal = replace(x, shape=(length,), stride=(sum(x.stride),))
    return cost(op, "reduction.trace", vector=length * addition(x), reads=[diagonal])


OPS: dict[str, Formula] = {
    **{
        name: partial(_reduce, per_element=flops, per_result=after)
        for name, (flops, after) in _TABLE.items()
    },
    "norm": _norm,
    "dist": _dist,
    "renorm": _renorm,
    "foreach_norm": _foreach_norm,
    "foreach_max": _foreach_max,
    "select_reduction_backward": _select_backward,
    "trace": _trace,
}
