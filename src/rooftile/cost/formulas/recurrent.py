"""Recurrent layers: LSTM, GRU and plain RNN, all steps, layers and directions as one op.

Matrix work: every weight matrix of every layer and direction meets each step's row once, so ``2 *
rows * elements of the weight matrices``, rows being steps times batch. Vector work of a cell, an
element of the hidden state: LSTM 3 sigmoids of 4, 2 tanh, 3 for the cell state, 1 for the output;
GRU 2 sigmoids, 1 tanh, 1 for the reset gate, 4 for the mix; RNN its tanh or ReLU; and for each gate
one addition of the two products and two of the biases. The backward is twice the forward: one
product for the gradient of what came in, one for that of the weight. Where no weight wants its
gradient the second is left out, with the biases' sums; where the input wants none, the first
layer's product towards it.

Bytes are the op's arguments and results, each once: what one layer hands to the next and a weight
read again at each step stay on the chip at best.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rooftile.cost.formulas.matmul import matmul_flops
from rooftile.cost.formulas.operands import (
    Formula,
    cost,
    flag,
    mask,
    matrix_math,
    members,
    operand,
    reads_without,
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


@dataclass(frozen=True, slots=True)
class _Layer:
    """What a layer's weights say of its work.

    Attributes:
        matrices: The weight matrices of all layers and directions.
        cells: Elements of a step's state, over all layers and directions.
        gates: Gates of a cell.
        cell: Vector FLOP of an element of a cell, without the gates' sums.
        biased: The gates have biases.
    """

    matrices: list[Tensor]
    cells: int
    gates: int
    cell: int
    biased: bool

    def vector(self, biases: bool) -> int:
        """Vector FLOP of a step: a sum of two products a gate, and of two biases."""
        return self.cells * (self.cell + self.gates * (1 + 2 * (biases and self.biased)))


def _layer(op: Op) -> _Layer:
    mode, parameters = _mode(op), _parameters(op)
    matrices = [p for p in parameters if len(p.shape) == 2]
    # a cell has two weights of gates * hidden rows; a projection has fewer
    first = matrices[0].shape[0] if matrices else 0
    return _Layer(
        matrices=matrices,
        cells=first // GATES[mode] * sum(p.shape[0] == first for p in matrices) // 2,
        gates=GATES[mode],
        cell=_CELL_FLOPS[mode],
        biased=any(len(p.shape) == 1 for p in parameters),
    )


def _forward(op: Op) -> Cost:
    x, layer = operand(op, "input", "data"), _layer(op)
    rows = rows_of(x)
    return cost(
        op,
        f"recurrent.{op.name}",
        matrix=2 * rows * sum(p.numel for p in layer.matrices),
        vector=rows * layer.vector(biases=True),
        math=matrix_math(op, x),
    )


def _backward(op: Op) -> Cost:
    """By cuDNN's mask: gradients of the input, of the two states and of the weights."""
    x, layer = operand(op, "input"), _layer(op)
    rows = rows_of(x)
    dx, *_, dweights = mask(op, "output_mask", 4)
    elements = sum(p.numel for p in layer.matrices)
    unmet = [] if dx else _towards_input(op, layer)
    # no gradient comes of a bias; without rows all are zeros, whatever stands in a weight
    unread = [p for p in _parameters(op) if len(p.shape) == 1 or not rows] + unmet
    return cost(
        op,
        "recurrent.rnn_backward",
        matrix=2 * rows * (elements * (1 + dweights) - sum(p.numel for p in unmet)),
        vector=2 * rows * layer.vector(biases=dweights),
        math=matrix_math(op, x),
        reads=[t for t in reads_without(op, *(() if dweights else ("input",))) if t not in unread],
    )


def _towards_input(op: Op, layer: _Layer) -> list[Tensor]:
    """The first layer's weights that meet the input, in each direction."""
    directions = 2 if flag(op, "bidirectional") else 1
    rows = layer.matrices[0].shape[0] if layer.matrices else 0
    met = [p for p in layer.matrices if p.shape[0] == rows][::2]  # each is followed by the state's
    return met[:directions]


def _cell(op: Op, mode: str, passes: int) -> Cost:
    """One step's gates after their products: no matrix work; backward two passes."""
    biases = op.operand("input_bias") is not None or flag(op, "has_bias")
    elements = operand(op, "cx", "hx", "grad_hy").numel
    per_element = _CELL_FLOPS[mode] + GATES[mode] * (1 + 2 * biases)
    return cost(op, f"recurrent.{op.name}", vector=passes * elements * per_element)


OPS: dict[str, Formula] = {
    "rnn": _forward,
    "rnn_backward": _backward,
    "lstm": _forward,
    "gru": _forward,
    "rnn_tanh": _forward,
    "rnn_relu": _forward,
    "lstm_gates": partial(_cell, mode="lstm", passes=1),
    "gru_gates": partial(_cell, mode="gru", passes=1),
    "lstm_gates_backward": partial(_cell, mode="lstm", passes=2),
    "gru_gates_backward": partial(_cell, mode="gru", passes=2),
}
