"""Recurrent layers as one op over all steps, layers and directions, as cuDNN runs them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rooftile.capture.define import OPS, autograd, define

# Gates of one cell: what the kernel keeps per step for the backward.
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _rnn_fake(
    input: Tensor,
    hx: list[Tensor],
    params: list[Tensor],
    mode: str,
    hidden_size: int,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    directions = 2 if bidirectional else 1
    out_size = hx[0].shape[-1] * directions  # a projected LSTM's output is narrower than its cell
    out = input.new_empty(*input.shape[:-1], out_size)
    cell = torch.empty_like(hx[1]) if len(hx) > 1 else input.new_empty(0)
    steps = input.numel() // max(input.shape[-1], 1)
    saved = steps * num_layers * directions * _GATES[mode] * hidden_size if keep else 0
    return out, torch.empty_like(hx[0]), cell, input.new_empty(saved)


def _rnn_backward_fake(
    grad_out: Tensor,
    input: Tensor,
    hx: list[Tensor],
    params: list[Tensor],
    out: Tensor,
    reserve: Tensor,
    mode: str,
    hidden_size: int,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    output_mask: list[bool],
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    dinput = torch.empty_like(input) if output_mask[0] else input.new_empty(0)
    states = [
        torch.empty_like(h) for h, wanted in zip(hx, output_mask[1:3], strict=False) if wanted
    ]
    return dinput, states, [torch.empty_like(p) for p in params] if output_mask[3] else []


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)  # no zeros for what nobody differentiates
    input, hx, params, *options, _ = inputs
    ctx.save_for_backward(input, output[0], output[3], *hx, *params)
    ctx.states = len(hx)
    ctx.options = options
    # as cuDNN's: the input, the first states, all weights together
    states = [h.requires_grad for h in (*hx, input.new_empty(0))][:2]
    ctx.mask = [input.requires_grad, *states, any(p.requires_grad for p in params)]


def _backward(ctx: Any, grad_out: Tensor | None, *grads: Tensor) -> tuple[Any, ...]:
    input, out, reserve, *rest = ctx.saved_tensors
    if grad_out is None:  # only the last state is used
        grad_out = torch.zeros_like(out)
    hx, params = rest[: ctx.states], rest[ctx.states :]
    dinput, dhx, dparams = OPS.rnn_backward(
        grad_out, input, hx, params, out, reserve, *ctx.options, ctx.mask
    )
    made = iter(dhx)
    states = [next(made) if wanted else None for _, wanted in zip(hx, ctx.mask[1:3], strict=False)]
    weights = dparams if ctx.mask[3] else [None for _ in params]
    rest = (None, None, None, None, None, None)
    return dinput if ctx.mask[0] else None, states, weights, *rest


define(
    "rnn(Tensor input, Tensor[] hx, Tensor[] params, str mode, int hidden_size, int num_layers, "
    "bool bidirectional, bool batch_first, bool keep) -> (Tensor, Tensor, Tensor, Tensor)",
    _rnn_fake,
)
define(
    "rnn_backward(Tensor grad_out, Tensor input, Tensor[] hx, Tensor[] params, Tensor out, "
    "Tensor reserve, str mode, int hidden_size, int num_layers, bool bidirectional, "
    "bool batch_first, bool[] output_mask) -> (Tensor, Tensor[], Tensor[])",
    _rnn_backward_fake,
)
autograd("rnn", _backward, _setup)


def _lstm_cell_fake(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, *biases: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(cx), torch.empty_like(cx), torch.empty_like(input_gates)


def _gru_cell_fake(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, *biases: Any
) -> tuple[Tensor, Tensor]:
    # what the kernel keeps for the backward: three gates, the old state, the reset product
    return torch.empty_like(hx), hx.new_empty(hx.shape[0], 5 * hx.shape[1])


def _lstm_cell_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.has_bias = inputs[3] is not None
    ctx.save_for_backward(inputs[2], output[1], output[2])


def _lstm_cell_backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    dgates, dcx, dbias = OPS._thnn_fused_lstm_cell_backward_impl(
        *grads[:2], *ctx.saved_tensors, ctx.has_bias
    )
    bias = dbias if ctx.has_bias else None
    return dgates, dgates, dcx, bias, bias


def _gru_cell_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.has_bias = inputs[3] is not None
    ctx.save_for_backward(output[1])


def _gru_cell_backward(ctx: Any, grad: Tensor, *rest: Tensor | None) -> tuple[Any, ...]:
    dinput, dhidden, dhx, dbi, dbh = OPS._thnn_fused_gru_cell_backward(
        grad, *ctx.saved_tensors, ctx.has_bias
    )
    return dinput, dhidden, dhx, dbi if ctx.has_bias else None, dbh if ctx.has_bias else None


def _lstm_cell_backward_fake(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, ws: Tensor, bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    summed = ws.new_empty(ws.shape[1] if bias else 0)
    return torch.empty_like(ws), torch.empty_like(cx), summed


def _gru_cell_backward_fake(
    grad_hy: Tensor, ws: Tensor, bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows, width = grad_hy.shape
    gates = [ws.new_empty(rows, 3 * width) for _ in range(2)]
    sums = [ws.new_empty(3 * width if bias else 0) for _ in range(2)]
    return gates[0], gates[1], torch.empty_like(grad_hy), sums[0], sums[1]


_GATES_IN = "(Tensor input_gates, Tensor hidden_gates, Tensor"
_BIASES_IN = "Tensor? input_bias, Tensor? hidden_bias)"
define(
    f"_thnn_fused_lstm_cell{_GATES_IN} cx, {_BIASES_IN} -> (Tensor, Tensor, Tensor)",
    _lstm_cell_fake,
)
define(f"_thnn_fused_gru_cell{_GATES_IN} hx, {_BIASES_IN} -> (Tensor, Tensor)", _gru_cell_fake)
define(
    "_thnn_fused_lstm_cell_backward_impl(Tensor? grad_hy, Tensor? grad_cy, Tensor cx, Tensor cy, "
    "Tensor workspace, bool has_bias) -> (Tensor, Tensor, Tensor)",
    _lstm_cell_backward_fake,
)
define(
    "_thnn_fused_gru_cell_backward(Tensor grad_hy, Tensor workspace, bool has_bias) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
    _gru_cell_backward_fake,
)
autograd("_thnn_fused_lstm_cell", _lstm_cell_backward, _lstm_cell_setup)
autograd("_thnn_fused_gru_cell", _gru_cell_backward, _gru_cell_setup)


def lstm(
    input: Tensor,
    hx: list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Stands in for `aten::lstm.input`."""
    keep = _keeps(input, params)
    out, hidden, cell, _ = OPS.rnn(
        input, hx, params, "lstm", hx[1].shape[-1], num_layers, bidirectional, batch_first, keep
    )
    return out, hidden, cell


def _one_state(
    mode: str,
    input: Tensor,
    hx: Tensor,
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """Stands in for `aten::gru.input`, `aten::rnn_tanh.input` and `aten::rnn_relu.input`."""
    keep = _keeps(input, params)
    out, hidden, _, _ = OPS.rnn(
        input, [hx], params, mode, hx.shape[-1], num_layers, bidirectional, batch_first, keep
    )
    return out, hidden


def lstm_cell(
    input: Tensor,
    hx: list[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Stands in for `aten::lstm_cell`: two products, then one kernel for all gates."""
    gates = torch.matmul(input, w_ih.t()), torch.matmul(hx[0], w_hh.t())
    hidden, cell, _ = OPS._thnn_fused_lstm_cell(*gates, hx[1], b_ih, b_hh)
    return hidden, cell


def gru_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """Stands in for `aten::gru_cell`, likewise."""
    gates = torch.matmul(input, w_ih.t()), torch.matmul(hx, w_hh.t())
    hidden: Tensor = OPS._thnn_fused_gru_cell(*gates, hx, b_ih, b_hh)[0]
    return hidden


gru: Callable[..., Any] = partial(_one_state, "gru")
rnn_tanh: Callable[..., Any] = partial(_one_state, "rnn_tanh")
rnn_relu: Callable[..., Any] = partial(_one_state, "rnn_relu")


def _keeps(input: Tensor, params: list[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in (input, *params))
