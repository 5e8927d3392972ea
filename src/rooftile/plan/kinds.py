"""What an op is to a planner: how its result depends on its operands' elements.

A pointwise op computes an element of its result from elements of its operands, wherever they stand.
A row op reduces along some dimensions; of some of them (softmax, norms, running sums) the result is
as large as the input. A matmul is a product that a library's tiles compute. Everything else runs
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from rooftile.cost.formulas import (
    attention_ops,
    convolution,
    grouped,
    loss,
    matmul,
    pointwise,
    reduction,
)
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor

Form = Literal["pointwise", "row", "matmul", "attention", "alone"]

# A dimension of an iteration space: its step in elements of the row-major space, its length.
Axes = tuple[tuple[int, int], ...]

_COPIES = "contiguous copy fill reshape to tril triu"
# Their result's element stands elsewhere in an operand.
MOVES = frozenset(
    [
        "cat",
        "channel_shuffle",
        "embedding",
        "flip",
        "gather",
        "index",
        "index_select",
        "pad",
        "repeat",
        "roll",
        "slice_backward",
        "take",
    ]
)
_PRODUCTS = "mm bmm addmm addmm_activation baddbmm addbmm matmul linear int_mm scaled_mm"
_SOFTMAX = "softmax log_softmax safe_softmax softmax_backward log_softmax_backward"
_NORMS = "layer_norm rms_norm layer_norm_backward rms_norm_backward"
# Over a group's or a channel's elements, as one op.
_GROUPED_NORMS = "group_norm batch_norm batch_norm_with_update"
# Gradients of norms: a row's for the input, a column's for the weight.
ROWS_AND_COLUMNS = frozenset({"layer_norm_backward", "rms_norm_backward"})

POINTWISE = frozenset(
    {name for name in pointwise.OPS if not name.startswith("foreach_")}
    | {name for name in loss.OPS if name.endswith("_backward")}
    | set(_COPIES.split())
    | MOVES
)
_REDUCTIONS = frozenset(
    [
        "all",
        "amax",
        "amin",
        "aminmax",
        "any",
        "argmax",
        "argmin",
        "count_nonzero",
        "logsumexp",
        "max",
        "mean",
        "min",
        "nansum",
        "norm",
        "prod",
        "std",
        "std_mean",
        "sum",
        "var",
        "var_mean",
    ]
)
# Running sums along one dimension: a row in, a row out.
SCANS = frozenset(["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"])
_LOSSES = frozenset(
    name for name in loss.OPS if not name.endswith("_backward") and name != "cross_entropy"
)
PRODUCTS = frozenset(_PRODUCTS.split())
CONVOLUTIONS = frozenset(convolution.OPS)
ATTENTION = frozenset(attention_ops.OPS)
RANDOM = frozenset({"random", "multinomial"})
DATA_DEPENDENT = frozenset({"item", "masked_select", "nonzero", "unique", "bincount", "histc"})
LIBRARY = frozenset(matmul.OPS) | frozenset(grouped.OPS) | CONVOLUTIONS | ATTENTION

assert set(reduction.OPS) >= _REDUCTIONS | SCANS  # names of one table


@dataclass(frozen=True, slots=True)
class Shape:
    """The loop an op runs.

    Attributes:
        form: How it computes.
        space: Length of each dimension it loops over.
        axes: Dimensions it reduces; empty where it reduces none.
        whole: It reduces and gives a result as large as its input.
    """

    form: Form
    space: tuple[int, ...]
    axes: Axes = ()
    whole: bool = False

    @property
    def numel(self) -> int:
        """Iterations."""
        return prod(self.space)

    @property
    def reduced(self) -> int:
        """Iterations that one result takes."""
        return prod(length for _, length in self.axes)

    @property
    def results(self) -> int:
        """Elements it gives."""
        return self.numel if self.whole or not self.axes else self.numel // max(self.reduced, 1)


def shape_of(op: Op) -> Shape:
    """The loop of an op that launches a kernel."""
    if op.name in POINTWISE:
        return Shape("pointwise", _filled(op).shape) if op.writes else Shape("alone", ())
    if op.name in PRODUCTS:
        return Shape("matmul", _filled(op).shape)
    if op.name in CONVOLUTIONS and op.outputs:
        return Shape("matmul", op.outputs[0].shape)
    if op.name in ATTENTION:
        return Shape("attention", ())
    return _row_shape(op) or Shape("alone", ())


def _row_shape(op: Op) -> Shape | None:
    """The loop of an op that reduces; None of one that does not."""
    if not op.reads:
        return None
    x = op.reads[0].shape
    if op.name in _REDUCTIONS and op.operand("other") is None:
        return Shape("row", x, _axes(x, _dims(op, len(x))))
    if op.name in SCANS or op.name in _SOFTMAX.split():
        return Shape("row", x, _axes(x, _dims(op, len(x))), whole=True)
    if op.name in _NORMS.split():
        return Shape("row", x, _axes(x, _normalised(op, len(x))), whole=True)
    if op.name in _GROUPED_NORMS.split():
        return _grouped_norm(op, x)
    if op.name == "nll_loss":  # picks one element a row; the mean over rows is a few bytes
        return Shape("pointwise", op.reads[1].shape)
    if op.name in _LOSSES:
        kept = op.attrs.get("reduction", 1) == 0
        return Shape("pointwise", x) if kept else Shape("row", x, _axes(x, range(len(x))))
    return None


def _grouped_norm(op: Op, x: tuple[int, ...]) -> Shape:
    if op.name == "group_norm":
        groups = op.attrs.get("group", 1)
        size = prod(x[1:]) // groups if isinstance(groups, int) and groups else prod(x[1:])
        return Shape("row", x, ((1, size),), whole=True)
    if op.name == "batch_norm" and not op.attrs.get("training", False):
        return Shape("pointwise", x)
    return Shape("row", x, _axes(x, [d for d in range(len(x)) if d != 1]), whole=True)


def _filled(op: Op) -> Tensor:
    """The tensor that says how often a pointwise op computes."""
    return op.outputs[0] if op.outputs else op.writes[0]


def _dims(op: Op, rank: int) -> list[int]:
    """Dimensions of a reduction; all of them where none is named."""
    given = op.attrs.get("dim")
    named = given if isinstance(given, tuple) else () if given is None else (given,)
    dims = [d % max(rank, 1) for d in named if isinstance(d, int)]
    return dims or list(range(rank))


def _normalised(op: Op, rank: int) -> list[int]:
    """The trailing dimensions of a norm."""
    given = op.attrs.get("normalized_shape")
    weight = op.operand("weight")
    trailing = len(given) if isinstance(given, tuple) else len(weight.shape) if weight else 1
    return list(range(rank - trailing, rank))


def _axes(shape: tuple[int, ...], dims: list[int] | range) -> Axes:
    """Dimensions as steps and lengths, neighbours joined, in ascending order of their step."""
    axes: list[tuple[int, int]] = []
    step = 1
    for d in reversed(range(len(shape))):
        if d in dims and shape[d] != 1:
            if axes and axes[-1][0] * axes[-1][1] == step:
                axes[-1] = (axes[-1][0], axes[-1][1] * shape[d])
            else:
                axes.append((step, shape[d]))
        step *= shape[d]
    return tuple(axes)
