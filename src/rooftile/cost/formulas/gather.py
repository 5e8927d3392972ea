"""Reads by index: only the rows taken, never more than the table.

Which rows an index names is data. The count is that of distinct rows at most: ``min(index,
table)``. The dense gradient of a table is zeros with a row added for each taken.
"""

from __future__ import annotations

from math import prod

from rooftile.cost.formulas.arithmetic import addition
from rooftile.cost.formulas.operands import (
    Formula,
    axis,
    cost,
    operand,
    ranked,
    reads_without,
    result,
    some_members,
)
from rooftile.cost.regions import region_bytes
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor
from rooftile.spec.dtypes import itemsize

_BAG_MODES = ("sum", "mean", "max")


def gathered_bytes(table: Tensor, elements: int) -> int:
    """Bytes of that many elements of a table, each once: never more than the table."""
    return min(region_bytes([table]), elements * itemsize(table.dtype))


def embedding_forward(
    tokens: int, rows: int, width: int, itemsize: int, index_itemsize: int
) -> Cost:
    """One row a token: the rows that ``tokens`` can name, at most the table's, and the indices.

    Args:
        tokens: Indices.
        rows: Of the table.
        width: Of a row.
        itemsize: Bytes of an element of the table.
        index_itemsize: Bytes of an index.
    """
    return Cost(
        read_bytes=min(tokens, rows) * width * itemsize + tokens * index_itemsize,
        write_bytes=tokens * width * itemsize,
        formula="gather.embedding_forward",
    )


def _take(op: Op, source: str, elements: int, vector: int = 0) -> Cost:
    """Elements of one operand; all of the others."""
    table = operand(op, source)
    read = gathered_bytes(table, elements) + region_bytes(reads_without(op, source))
    return cost(op, f"gather.{op.name}", vector=vector, read_bytes=read)


def _embedding(op: Op) -> Cost:
    width = ranked(op, 2, "weight").shape[-1]
    return _take(op, "weight", operand(op, "indices").numel * width)


def _bag_mode(op: Op) -> str:
    mode = op.attrs.get("mode", 0)
    if not isinstance(mode, int) or not 0 <= mode < len(_BAG_MODES):
        raise InputError(f"{op.aten}: mode must be 0, 1 or 2, got {mode!r}")
    return _BAG_MODES[mode]


def _embedding_bag(op: Op) -> Cost:
    """The rows of a bag are added up, weighted and divided where the op says so, or compared."""
    elements = operand(op, "indices").numel * ranked(op, 2, "weight").shape[-1]
    weighted = op.operand("per_sample_weights") is not None
    divided = result(op).numel if _bag_mode(op) == "mean" else 0
    return _take(op, "weight", elements, vector=elements * (1 + weighted) + divided)


def _embedding_bag_backward(op: Op) -> Cost:
    """A dense gradient: zeros, and a bag's gradient added to each row that the bag took."""
    dy, indices = ranked(op, 2, "grad"), operand(op, "indices")
    mode = _bag_mode(op)
    if mode == "max":  # one row an element of the bag; maximum_indices says which
        reads = [dy, operand(op, "maximum_indices")]
        return cost(op, f"gather.{op.name}", vector=dy.numel, reads=reads)
    elements = indices.numel * dy.shape[-1]
    weighted = op.operand("per_sample_weights") is not None
    unread = ("offsets", "maximum_indices", *(("bag_size",) if mode == "sum" else ()))
    return cost(
        op,
        f"gather.{op.name}",
        vector=elements * (1 + weighted) + (dy.numel if mode == "mean" else 0),
        reads=reads_without(op, *unread),
    )


def _bag_weights_backward(op: Op) -> Cost:
    """A weight's gradient is the product of its row and its bag's gradient."""
    elements = operand(op, "indices").numel * ranked(op, 2, "weight").shape[-1]
    read = gathered_bytes(operand(op, "weight"), elements)
    read += region_bytes(reads_without(op, "weight", "offsets"))
    return cost(op, f"gather.{op.name}", vector=2 * elements, read_bytes=read)


def _embedding_backward(op: Op) -> Cost:
    """A dense gradient: zeros, and a row added for each token."""
    dy = operand(op, "grad_output", "grad")
    return cost(op, f"gather.{op.name}", vector=dy.numel * addition(dy))


def _index_select(op: Op) -> Cost:
    table, index = operand(op, "self"), operand(op, "index")
    dim = axis(op, "dim", len(table.shape))
    row = prod(n for i, n in enumerate(table.shape) if i != dim)
    return _take(op, "self", index.numel * row)


def _gather(op: Op) -> Cost:
    return _take(op, "self", operand(op, "index", "indices").numel)


def _index(op: Op) -> Cost:
    some_members(op, "indices")
    return _take(op, "self", result(op).numel)


OPS: dict[str, Formula] = {
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
    "embedding_bag_backward": _embedding_bag_backward,
    "embedding_bag_weights_backward": _bag_weights_backward,
    "embedding_backward": _embedding_backward,
    "index_select": _index_select,
    "index": _index,
    "gather": _gather,
    "take": _gather,
}
