"""Normalisations, forward and backward: vector FLOP an element, documented convention.

- Layer, group and batch norm: mean 1, subtract, square, sum 3, times 1/std 1; weight 1, bias 1.
  Backward: normalised x 2, weight 1 (with a weight), two sums 3, dx 4; dweight 2, dbias 1.
- RMS norm: square, sum 2, times 1/rms 1; weight 1. Backward: normalised x 1, weight 1, sum 2, dx 3;
  dweight 2.
- Batch norm in evaluation: subtract, times 1/std, weight, bias.

Work once a row (means, square roots) is not counted; it is below 1/n of the whole. Saved statistics
are float32. Normalised x is computed again in the backward, once, even where only dweight is
wanted.
"""

from __future__ import annotations

from rooftile.cost.formulas.operands import (
    Formula,
    cost,
    flag,
    mask,
    operand,
    reads_without,
)
from rooftile.records.cost import Cost
from rooftile.records.graph import Op

# Forward with weight and bias, an element.
LAYER_NORM_FLOPS = 7
RMS_NORM_FLOPS = 4
_STATISTIC_ITEMSIZE = 4


def _layer_norm_forward_flops(weight: bool, bias: bool) -> int:
    return LAYER_NORM_FLOPS - 2 + weight + bias


def _layer_norm_backward_flops(weight: bool, wanted: tuple[bool, ...]) -> int:
    """An element, by which of dx, dweight and dbias are wanted."""
    dx, dweight, dbias = wanted
    return 2 * (dx or dweight) + dx * (7 + weight) + 2 * dweight + dbias


def _rms_norm_backward_flops(weight: bool, wanted: tuple[bool, ...]) -> int:
    dx, dweight = wanted
    return (dx or dweight) + dx * (5 + weight) + 2 * dweight


def layer_norm_forward(m: int, n: int, itemsize: int, *, bias: bool = True) -> Cost:
    """y = (x - mean) / std * weight + bias over m rows of n; saves mean and 1/std."""
    return Cost(
        vector_flops=_layer_norm_forward_flops(True, bias) * m * n,
        read_bytes=(m * n + n * (1 + bias)) * itemsize,
        write_bytes=m * n * itemsize + 2 * m * _STATISTIC_ITEMSIZE,
        formula="normalization.layer_norm_forward",
    )


def layer_norm_backward(m: int, n: int, itemsize: int, *, bias: bool = True) -> Cost:
    """dx, dweight and dbias from dy, x, weight, mean and 1/std over m rows of n."""
    return Cost(
        vector_flops=_layer_norm_backward_flops(True, (True, True, bias)) * m * n,
        read_bytes=(2 * m * n + n) * itemsize + 2 * m * _STATISTIC_ITEMSIZE,
        write_bytes=(m * n + n * (1 + bias)) * itemsize,
        formula="normalization.layer_norm_backward",
    )


def rms_norm_forward(m: int, n: int, itemsize: int) -> Cost:
    """y = x / rms * weight over m rows of n; saves 1/rms."""
    return Cost(
        vector_flops=RMS_NORM_FLOPS * m * n,
        read_bytes=(m * n + n) * itemsize,
        write_bytes=m * n * itemsize + m * _STATISTIC_ITEMSIZE,
        formula="normalization.rms_norm_forward",
    )


def rms_norm_backward(m: int, n: int, itemsize: int) -> Cost:
    """dx and dweight from dy, x, weight and 1/rms over m rows of n."""
    return Cost(
        vector_flops=_rms_norm_backward_flops(True, (True, True)) * m * n,
        read_bytes=(2 * m * n + n) * itemsize + m * _STATISTIC_ITEMSIZE,
        write_bytes=(m * n + n) * itemsize,
        formula="normalization.rms_norm_backward",
    )


def _given(op: Op, role: str) -> bool:
    return op.operand(role) is not None


def _layer_norm(op: Op) -> Cost:
    per_element = _layer_norm_forward_flops(_given(op, "weight"), _given(op, "bias"))
    return cost(op, f"normalization.{op.name}", vector=per_element * operand(op, "input").numel)


def _unread(op: Op, dx: bool, dweight: bool) -> list[str]:
    """Operands that the wanted gradients do not come of; without rows all gradients are zeros."""
    unread = [] if dx or dweight else ["input", "mean", "rstd", "save_mean", "save_invstd"]
    return unread if dx and operand(op, "input").numel else ["weight", *unread]


def _layer_norm_backward(op: Op) -> Cost:
    wanted = mask(op, "output_mask", 3)
    per_element = _layer_norm_backward_flops(_given(op, "weight"), wanted)
    return cost(
        op,
        f"normalization.{op.name}",
        vector=per_element * operand(op, "input").numel,
        reads=reads_without(op, "bias", *_unread(op, *wanted[:2])),
    )


def _rms_norm(op: Op) -> Cost:
    per_element = RMS_NORM_FLOPS - (not _given(op, "weight"))
    return cost(op, "normalization.rms_norm", vector=per_element * operand(op, "input").numel)


def _rms_norm_backward(op: Op) -> Cost:
    wanted = mask(op, "output_mask", 2)
    per_element = _rms_norm_backward_flops(_given(op, "weight"), wanted)
    return cost(
        op,
        "normalization.rms_norm_backward",
        vector=per_element * operand(op, "input").numel,
        reads=reads_without(op, *_unread(op, *wanted)),
    )


def _batch_norm(op: Op) -> Cost:
    """In training the running statistics are updated, whether the schema says so or not."""
    x = operand(op, "input")
    # the ops that always update have no flag for it
    training = flag(op, "training", default=op.name == "batch_norm_with_update")
    affine = _given(op, "weight") + _given(op, "bias")
    writes = list(op.writes)
    if training:
        stats = (op.operand("running_mean"), op.operand("running_var"))
        writes += [t for t in stats if t is not None]
    return cost(
        op,
        "normalization.batch_norm",
        vector=(5 if training else 2) * x.numel + affine * x.numel,
        writes=writes,
    )


def _batch_norm_backward(op: Op) -> Cost:
    x = operand(op, "input")
    wanted = mask(op, "output_mask", 3)
    per_element = _layer_norm_backward_flops(_given(op, "weight"), wanted)
    training = flag(op, "train", default=flag(op, "update", default=True))
    if not training:  # statistics are constants: dx = dy * weight / std
        per_element = wanted[0] * (1 + _given(op, "weight")) + 4 * wanted[1] + wanted[2]
    saved, running = ["save_mean", "save_invstd", "save_var"], ["running_mean", "running_var"]
    unused = running if training else saved
    if not training and not wanted[1]:  # dx = dy * weight / std alone
        unused += ["input", "running_mean", *([] if wanted[0] else ["running_var"])]
    return cost(
        op,
        "normalization.batch_norm_backward",
        vector=per_element * x.numel,
        reads=reads_without(op, *unused, *_unread(op, *wanted[:2])),
    )


def _weight_norm(op: Op) -> Cost:
    """w = g * v / |v|, one norm a row."""
    v = operand(op, "v", "saved_v")
    backward = op.operand("grad_w") is not None
    return cost(op, f"normalization.{op.name}", vector=(7 if backward else 3) * v.numel)


OPS: dict[str, Formula] = {
    "layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    "group_norm": _layer_norm,
    "group_norm_backward": _layer_norm_backward,
    "rms_norm": _rms_norm,
    "rms_norm_backward": _rms_norm_backward,
    "batch_norm": _batch_norm,
    "batch_norm_with_update": _batch_norm,
    "batch_norm_backward": _batch_norm_backward,
    "weight_norm": _weight_norm,
    "weight_norm_backward": _weight_norm,
}
