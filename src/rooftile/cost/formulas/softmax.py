"""Softmax and log-softmax, forward and backward: vector FLOP an element, documented convention.

Softmax: maximum, subtract, exponential, sum, divide. Log-softmax: maximum, subtract, exponential,
sum, subtract. Backward of softmax: times, sum, subtract, times; of log-softmax: sum, exponential,
times, subtract. One more for a mask.
"""

from __future__ import annotations

from functools import partial

from rooftile.cost.formulas.operands import Formula, cost, operand
from rooftile.records.cost import Cost
from rooftile.records.graph import Op

_FORWARD_FLOPS, _BACKWARD_FLOPS = 5, 4


def softmax_forward(m: int, n: int, itemsize: int, *, out_itemsize: int = 0) -> Cost:
    """y = exp(x - max) / sum over m rows of n, one read and one write of each element.

    Args:
        m: Rows.
        n: Columns.
        itemsize: Bytes of an element of x.
        out_itemsize: Bytes of an element of y; ``itemsize`` where 0.
    """
    return Cost(
        vector_flops=_FORWARD_FLOPS * m * n,
        read_bytes=m * n * itemsize,
        write_bytes=m * n * (out_itemsize or itemsize),
        formula="softmax.softmax_forward",
    )


def softmax_backward(m: int, n: int, itemsize: int) -> Cost:
    """dx = y * (dy - sum(dy * y)) over m rows of n: dy and y in, dx out."""
    return Cost(
        vector_flops=_BACKWARD_FLOPS * m * n,
        read_bytes=2 * m * n * itemsize,
        write_bytes=m * n * itemsize,
        formula="softmax.softmax_backward",
    )


def _forward(op: Op, extra: int) -> Cost:
    x = operand(op, "self", "input")
    return cost(op, f"softmax.{op.name}", vector=(_FORWARD_FLOPS + extra) * x.numel)


def _backward(op: Op, extra: int) -> Cost:
    dy = operand(op, "grad_output")
    return cost(op, f"softmax.{op.name}", vector=(_BACKWARD_FLOPS + extra) * dy.numel)


OPS: dict[str, Formula] = {
    "softmax": partial(_forward, extra=0),
    "log_softmax": partial(_forward, extra=0),
    "safe_softmax": partial(_forward, extra=1),
    "masked_softmax": partial(_forward, extra=1),
    "softmax_backward": partial(_backward, extra=0),
    "log_softmax_backward": partial(_backward, extra=0),
    "masked_softmax_backward": partial(_backward, extra=1),
}
