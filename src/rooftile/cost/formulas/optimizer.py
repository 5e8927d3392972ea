"""Optimiser updates over lists of parameters, one kernel for all of them.

FLOP an element, documented convention. Adam: first moment 3, second moment 4, denominator 3 (root,
divide, add), update 3; AdamW's decay 1, Adam's 2; AMSGrad's maximum 1. SGD: update 2, decay 2,
momentum 2 (0 on the first step, which copies), dampening 1, Nesterov 2. Adagrad: square sum 2,
update 5, decay 2. ``maximize`` 1, a gradient scale 1. Gradients are read, and written only where a
scale is undone in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rooftile.cost.formulas.operands import Formula, cost, flag, members, number, some_members
from rooftile.records.cost import Cost
from rooftile.records.graph import Op


def _adam_flops(op: Op, decay: int) -> int:
    flops = 3 + 4 + 3 + 3
    if number(op, "weight_decay", 0.0) != 0:
        flops += decay
    return flops + flag(op, "amsgrad")


def _adamw(op: Op) -> int:
    return _adam_flops(op, decay=1)


def _adam(op: Op) -> int:
    return _adam_flops(op, decay=2)


def _sgd(op: Op) -> int:
    flops = 2 + 2 * (number(op, "weight_decay", 0.0) != 0)
    if number(op, "momentum", 0.0) != 0:
        damped = number(op, "dampening", 0.0) != 0
        flops += (2 + damped) * (not flag(op, "is_first_step")) + 2 * flag(op, "nesterov")
    return flops


def _adagrad(op: Op) -> int:
    return 2 + 5 + 2 * (number(op, "weight_decay", 0.0) != 0)


def _step(op: Op, count: Callable[[Op], int]) -> Cost:
    scaled = op.operand("grad_scale") is not None
    per_element = count(op) + flag(op, "maximize") + scaled
    parameters = sum(t.numel for t in some_members(op, "self"))
    kept = ("self", "exp_avgs", "exp_avg_sqs", "momentum_buffer_list", "state_sums")
    written = [*kept, *(["max_exp_avg_sqs"] if flag(op, "amsgrad") else [])]
    written += ["grads"] if scaled else []
    filled = [t for role in written for t in members(op, role)]
    first = flag(op, "is_first_step")  # the buffers are made, not read
    reads = [
        o.tensor
        for o in op.inputs
        if not (first and o.role.startswith("momentum_buffer_list"))
        and not (o.role.startswith("max_exp_avg_sqs") and not flag(op, "amsgrad"))
    ]
    return cost(
        op,
        f"optimizer.{op.name}",
        vector=per_element * parameters,
        reads=reads,
        writes=[*filled, *op.outputs],
    )


def _unscale(op: Op) -> Cost:
    """Every gradient is tested for infinities and multiplied."""
    elements = sum(t.numel for t in some_members(op, "self"))
    return cost(op, "optimizer.unscale", vector=2 * elements)


OPS: dict[str, Formula] = {
    "adamw_step": partial(_step, count=_adamw),
    "adam_step": partial(_step, count=_adam),
    "sgd_step": partial(_step, count=_sgd),
    "adagrad_step": partial(_step, count=_adagrad),
    "unscale_gradients": _unscale,
}
