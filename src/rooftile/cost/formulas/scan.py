"""The selective scan of state-space models and the causal convolution before it, one op each.

Scan, a step of a channel and a state: discretise A and B, update the state, project it: 9 FLOP, as
the reference implementation counts; beside it, a step of a channel: D a multiply-add, the bias 1,
softplus 4, the gate SiLU 5 and a product. All vector work: the recurrence is no matrix product. The
backward is three times the forward: the scan run again, a pass for the gradient of the state and
one for those of its inputs.

Causal convolution: a multiply-add a tap, bias 1, SiLU 5; depthwise, so vector work. Its backward is
twice the products (input and weight), the convolution once more where its activation must be
differentiated, and SiLU's 9.

RWKV's WKV operator, a step of a channel: its output takes a maximum of two sums, two exponentials
of differences, two multiply-adds and a division (12 with all of their parts), the state the same
without the division (11). Its decay is a negated exponential a channel. The backward is three times
the forward, as the scan's.

Source: Gu and Dao 2023, https://arxiv.org/abs/2312.00752; Peng et al. 2023,
https://arxiv.org/abs/2305.13048 (WKV).
"""

from __future__ import annotations

from rooftile.cost.formulas.operands import Formula, cost, flag, operand, ranked
from rooftile.records.cost import Cost
from rooftile.records.graph import Op

_SCAN_FLOPS = 9
_SOFTPLUS_FLOPS, _SILU_FLOPS, _SILU_BACKWARD_FLOPS = 4, 5, 9
_BACKWARD_FACTOR = 3
_WKV_FLOPS, _DECAY_FLOPS = 12 + 11, 2


def selective_scan_flops(batch: int, channels: int, steps: int, states: int) -> int:
    """FLOP of the recurrence, forward, without skip and gate."""
    return _SCAN_FLOPS * batch * channels * steps * states


def _scan_flops(op: Op) -> int:
    batch, channels, steps = ranked(op, 3, "u").shape
    per_step = 0
    if op.operand("D") is not None:
        per_step += 2
    if op.operand("delta_bias") is not None:
        per_step += 1
    if flag(op, "delta_softplus"):
        per_step += _SOFTPLUS_FLOPS
    if op.operand("z") is not None:
        per_step += _SILU_FLOPS + 1
    states = operand(op, "A").shape[-1]
    steps_of_channels = batch * channels * steps
    return selective_scan_flops(batch, channels, steps, states) + per_step * steps_of_channels


def _scan(op: Op) -> Cost:
    return cost(op, "scan.selective_scan", vector=_scan_flops(op))


def _scan_backward(op: Op) -> Cost:
    flops = _BACKWARD_FACTOR * _scan_flops(op)
    return cost(op, "scan.selective_scan_backward", vector=flops)


def _wkv(op: Op) -> Cost:
    flops = _wkv_flops(op)
    return cost(op, "scan.wkv", vector=flops)


def _wkv_backward(op: Op) -> Cost:
    flops = _BACKWARD_FACTOR * _wkv_flops(op)
    return cost(op, "scan.wkv_backward", vector=flops)


def _wkv_flops(op: Op) -> int:
    batch, steps, channels = ranked(op, 3, "key").shape
    return _WKV_FLOPS * batch * steps * channels + _DECAY_FLOPS * channels


def _taps(op: Op) -> int:
    return operand(op, "weight").shape[-1]


def _activated(op: Op) -> bool:
    return op.attrs.get("activation") in ("silu", "swish")


def _convolution(op: Op) -> Cost:
    x = ranked(op, 3, "x")
    per_element = 2 * _taps(op) + (op.operand("bias") is not None)
    per_element += _SILU_FLOPS * _activated(op)
    return cost(op, "scan.causal_conv1d", vector=per_element * x.numel)


def _convolution_backward(op: Op) -> Cost:
    x = ranked(op, 3, "x")
    products = 2 + _activated(op)
    per_element = products * 2 * _taps(op) + (op.operand("bias") is not None)
    per_element += _SILU_BACKWARD_FLOPS * _activated(op)
    return cost(op, "scan.causal_conv1d_backward", vector=per_element * x.numel)


OPS: dict[str, Formula] = {
    "selective_scan": _scan,
    "wkv": _wkv,
    "wkv_backward": _wkv_backward,
    "selective_scan_backward": _scan_backward,
    "causal_conv1d": _convolution,
    "causal_conv1d_backward": _convolution_backward,
}
