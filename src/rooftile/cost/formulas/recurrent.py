"""Recurrent layers: LSTM, GRU and plain RNN, all steps, layers and directions as one op.

Matrix work: every weight matrix of every layer and direction meets each step's row once, so ``2 *
rows * elements of the weight matrices``, rows being steps times batch. Vector work of a cell, an
element of the hidden state: LSTM 3 sigmoids of 4, 2 tanh, 3 for the cell state, 1 for the output;
GRU 2 sigmoids, 1 tanh, 1 for the reset gate, 4 for the mix; RNN its tanh or ReLU; and for each gate
one addition of the two products and two of the biases. The backward is twice the forward: one
product for the gradient of the input, one for that of the weight.

Bytes are the op's arguments and results, each once: what one layer hands to the next and a weight
read again at each step stay on the chip at best.
"""

from __future__ import annotations

from rooftile.cost.formulas.matmul import matmul_flops
from rooftile.cost.formulas.operands import (
    Formula,
    cost,
    flag,
    matrix_math,
    members,
    operand,
    rows_of,
)
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_CELL_FLOPS = {"lstm": 3 * 4 + 2 + 3 + 1, "gru": 2 * 4 + 1 + 1 + 4, "rnn_tanh": 1, "rnn_relu": 1}
# cuDNN's numbers, which torch passes on
_MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")


def rnn_matrix_flops(
    mode: str,
    rows: int,
    input_size: int,
    hidden_size: int,
    *,
    num_layers: int = 1,
    bidirectional: bool = False,
    proj_size: int = 0,
) -> int:
    """FLOP of a recurrent layer's products, forward.

    Args:
        mode: ``"lstm"``, ``"gru"``, ``"rnn_tanh"`` or ``"rnn_relu"``.
        rows: Steps times batch.
        input_size: Width of the input.
        hidden_size: Width of the state.
        num_layers: Layers.
        bidirectional: Two directions a layer.
        proj_size: Width an LSTM's output is projected to; 0 for none.
    """
    directions = 2 if bidirectional else 1
    state = proj_size or hidden_size
    gates = GATES[mode] * hidden_size
    total = 0
    for layer in range(num_layers):
        width = input_size if layer == 0 else state * directions
        cell = matmul_flops(rows, gates, width + state)
        total += directions * (cell + matmul_flops(rows, proj_size, hidden_size))
    return total


def _mode(op: Op) -> str:
    """Of our op and torch's fused ones an attribute; of torch's composite ones the name."""
    mode = op.attrs.get("mode", op.name)
    if isinstance(mode, int) and 0 <= mode < len(_MODES):
        return _MODES[mode]
    if isinstance(mode, str) and mode in GATES:
        return mode
    raise InputError(f"{op.aten}: mode must be one of {', '.join(GATES)}, got {mode!r}")


def _parameters(op: Op) -> list[Tensor]:
    """Weights and biases: a list, or the arguments of torch's layer of one direction."""
    listed = members(op, "params") or members(op, "weight")
    single = [o.tensor for o in op.inputs if o.role.startswith("weight") and "." not in o.role]
    found = listed or [t for t in single if t.numel]
    if not found:
        raise InputError(f"{op.aten}: must have weights, got {[o.role for o in op.inputs]}")
    return found


def _price(op: Op, passes: int) -> Cost:
    x = operand(op, "input", "data")
    mode = _mode(op)
    rows = rows_of(x)
    matrices = [p for p in _parameters(op) if len(p.shape) == 2]
    biases = any(len(p.shape) == 1 for p in _parameters(op))
    # a cell has two weights of gates * hidden rows; a projection has fewer
    first = matrices[0].shape[0] if matrices else 0
    states = first // GATES[mode] * sum(p.shape[0] == first for p in matrices) // 2
    per_element = _CELL_FLOPS[mode] + GATES[mode] * (1 + 2 * biases)
    return cost(
        op,
        f"recurrent.{op.name}",
        matrix=passes * 2 * rows * sum(p.numel for p in matrices),
        vector=passes * rows * states * per_element,
        math=matrix_math(op, x),
    )


def _forward(op: Op) -> Cost:
    return _price(op, passes=1)


def _backward(op: Op) -> Cost:
    return _price(op, passes=2)


def _cell(op: Op, mode: str, passes: int) -> Cost:
    """One step's gates after their products: no matrix work."""
    biases = op.operand("input_bias") is not None or flag(op, "has_bias")
    elements = operand(op, "cx", "hx", "grad_hy").numel
    per_element = _CELL_FLOPS[mode] + GATES[mode] * (1 + 2 * biases)
    return cost(op, f"recurrent.{op.name}", vector=passes * elements * per_element)


def _lstm_cell(op: Op) -> Cost:
    return _cell(op, "lstm", passes=1)


def _gru_cell(op: Op) -> Cost:
    return _cell(op, "gru", passes=1)


def _lstm_cell_backward(op: Op) -> Cost:
    return _cell(op, "lstm", passes=2)


def _gru_cell_backward(op: Op) -> Cost:
    return _cell(op, "gru", passes=2)


OPS: dict[str, Formula] = {
    "rnn": _forward,
    "rnn_backward": _backward,
    "lstm": _forward,
    "gru": _forward,
    "rnn_tanh": _forward,
    "rnn_relu": _forward,
    "lstm_gates": _lstm_cell,
    "gru_gates": _gru_cell,
    "lstm_gates_backward": _lstm_cell_backward,
    "gru_gates_backward": _gru_cell_backward,
}
