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


gru: Callable[..., Any] = partial(_one_state, "gru")
rnn_tanh: Callable[..., Any] = partial(_one_state, "rnn_tanh")
rnn_relu: Callable[..., Any] = partial(_one_state, "rnn_relu")


def _keeps(input: Tensor, params: list[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in (input, *params))
