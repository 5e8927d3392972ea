"""Losses: a function of each element, and its sum.

FLOP an element of the input, the sum of a reducing loss one more; conventions as in ``pointwise``.
The negative log likelihood takes one element a row, so its forward reads rows, not classes, and its
backward fills a dense gradient without reading the input.
"""

from __future__ import annotations

from functools import partial

from rooftile.cost.formulas.gather import gathered_bytes
from rooftile.cost.formulas.operands import Formula, cost, number, operand, reads_without
from rooftile.cost.regions import region_bytes
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op

_NO_REDUCTION = 0  # torch's number; 1 is the mean, 2 the sum
# Maximum, subtract, exponential, sum; the backward: subtract, exponential, subtract, times.
_CROSS_ENTROPY_FORWARD, _CROSS_ENTROPY_BACKWARD = 4, 4
_LOSS_ITEMSIZE = 4
# Maximum of three 2, differences 3, exponentials 3, their sum 2, logarithm, maximum and score
# added 3. Joined: a sum, and into its class maximum, two differences and exponentials, sum,
# logarithm, maximum 8. A class: three sums, an exponential, a difference, times dy.
_CTC_STATE, _CTC_JOIN, _CTC_CLASS = 13, 9, 6

_FORWARD = {
    "mse_loss": 2,  # difference, square
    "smooth_l1_loss": 6,  # difference, abs, compare, square, times 0.5 / beta, select
    "huber_loss": 6,
    "soft_margin_loss": 4,  # times, negate, exp, log1p
    "binary_cross_entropy": 8,  # -(t * log x + (1 - t) * log(1 - x))
    "binary_cross_entropy_with_logits": 9,  # (1 - t) * x + log(1 + exp(-|x|)) + max(-x, 0)
}
_BACKWARD = {
    "mse_loss_backward": 3,  # difference, times 2 / n, times dy
    "smooth_l1_loss_backward": 5,
    "huber_loss_backward": 5,
    "soft_margin_loss_backward": 5,
    "binary_cross_entropy_backward": 5,  # (x - t) / ((1 - x) * x), times dy
}


def cross_entropy_forward(m: int, n: int, itemsize: int, *, index_itemsize: int = 8) -> Cost:
    """Loss and log-sum-exp of m rows of n logits in one pass; both are float32."""
    return Cost(
        vector_flops=_CROSS_ENTROPY_FORWARD * m * n,
        read_bytes=m * n * itemsize + m * index_itemsize,
        write_bytes=2 * m * _LOSS_ITEMSIZE,
        formula="loss.cross_entropy_forward",
    )


def cross_entropy_backward(m: int, n: int, itemsize: int, *, index_itemsize: int = 8) -> Cost:
    """dlogits = dy * (exp(logits - lse) - target) of m rows of n logits."""
    return Cost(
        vector_flops=_CROSS_ENTROPY_BACKWARD * m * n,
        read_bytes=m * n * itemsize + m * (index_itemsize + 2 * _LOSS_ITEMSIZE),
        write_bytes=m * n * itemsize,
        formula="loss.cross_entropy_backward",
    )


def _elementwise(op: Op, per_element: int) -> Cost:
    reduced = number(op, "reduction", 1) != _NO_REDUCTION
    n = operand(op, "self").numel
    weights = sum(op.operand(role) is not None for role in ("weight", "pos_weight"))
    return cost(op, f"loss.{op.name}", vector=(per_element + reduced + weights) * n)


def _gradient(op: Op, per_element: int) -> Cost:
    weighted = op.operand("weight") is not None
    return cost(op, f"loss.{op.name}", vector=(per_element + weighted) * operand(op, "self").numel)


def _multi_margin(op: Op, backward: bool) -> Cost:
    """(margin - x[y] + x[i])+ of each class: two sums, a cut, a square, a weight, their sum.

    The gradient compares as the forward does, multiplies and adds to its target's.
    """
    x, target, weight = operand(op, "self"), operand(op, "target"), op.operand("weight")
    squared = number(op, "p", 1) == 2
    vector = (4 + backward + squared + (weight is not None)) * x.numel
    read = region_bytes(reads_without(op, "weight"))
    read += gathered_bytes(weight, target.numel) if weight is not None else 0
    return cost(op, f"loss.{op.name}", vector=vector, read_bytes=read)


def _ctc(op: Op) -> Cost:
    """log(sum) over three states before, and the label's score, a step and a state."""
    log_probs = operand(op, "log_probs")
    if len(op.outputs) < 2:
        raise InputError(f"{op.aten}: must return its states, got {len(op.outputs)} results")
    states = op.outputs[1].numel
    read = gathered_bytes(log_probs, states) + region_bytes(reads_without(op, "log_probs"))
    return cost(op, "loss.ctc_loss", vector=_CTC_STATE * states, read_bytes=read)


def _ctc_backward(op: Op) -> Cost:
    """The states from the end, joined with those from the front; exp, difference a class."""
    log_probs, states = operand(op, "log_probs"), operand(op, "log_alpha").numel
    vector = (_CTC_STATE + _CTC_JOIN) * states + _CTC_CLASS * log_probs.numel
    return cost(op, "loss.ctc_loss_backward", vector=vector)


def _nll(op: Op) -> Cost:
    """Negate and add one element a row, times its weight."""
    rows = operand(op, "target").numel
    weight = op.operand("weight")
    read = gathered_bytes(operand(op, "self"), rows)
    read += region_bytes(reads_without(op, "self", "weight"))
    read += gathered_bytes(weight, rows) if weight is not None else 0
    vector = rows * (2 + 2 * (weight is not None))
    return cost(op, "loss.nll_loss", vector=vector, read_bytes=read)


def _nll_backward(op: Op) -> Cost:
    rows = operand(op, "target").numel
    weight = op.operand("weight")
    read = region_bytes(reads_without(op, "self", "weight"))
    read += gathered_bytes(weight, rows) if weight is not None else 0
    vector = rows * (1 + (weight is not None))
    return cost(op, "loss.nll_loss_backward", vector=vector, read_bytes=read)


def _cross_entropy(op: Op) -> Cost:
    """Torch's composite op, where it arrives whole."""
    logits = operand(op, "self")
    smoothing = number(op, "label_smoothing", 0.0) > 0
    vector = (_CROSS_ENTROPY_FORWARD + 2 * smoothing) * logits.numel
    return cost(op, "loss.cross_entropy", vector=vector)


OPS: dict[str, Formula] = {
    **{name: partial(_elementwise, per_element=flops) for name, flops in _FORWARD.items()},
    **{name: partial(_gradient, per_element=flops) for name, flops in _BACKWARD.items()},
    "nll_loss": _nll,
    "nll_loss_backward": _nll_backward,
    "cross_entropy": _cross_entropy,
    "multi_margin_loss": partial(_multi_margin, backward=False),
    "multi_margin_loss_backward": partial(_multi_margin, backward=True),
    "ctc_loss": _ctc,
    "ctc_loss_backward": _ctc_backward,
}
