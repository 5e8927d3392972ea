"""Writes by index: only what is touched.

An in-place write touches the elements it names and reads them only if it accumulates; out of place
the whole table is copied first. Accumulating is one FLOP an element added, a mean counts too and
divides. Which places a mask names is data: every one, at most.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from rooftile.cost.formulas.arithmetic import addition, product
from rooftile.cost.formulas.gather import gathered_bytes
from rooftile.cost.formulas.operands import (
    Formula,
    axis,
    broadcast,
    cost,
    flag,
    in_place,
    number,
    operand,
    ranked,
    reads_without,
    some_members,
)
from rooftile.cost.regions import region_bytes
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor


def _is_mask(index: Tensor) -> bool:
    return index.dtype in ("bool", "uint8")


def _indexed(op: Op, table: Tensor) -> int:
    """Elements of the table that a list of indices names, at most.

    A role's number says which dimension its index stands for; a boolean mask stands for as many as
    it has and may name every place. Indices broadcast against each other; dimensions without an
    index are taken whole.
    """
    taken: set[int] = set()
    shapes: list[tuple[int, ...]] = []
    masked = 1
    shift = 0
    for o in op.inputs:
        if not o.role.startswith("indices."):
            continue
        span = len(o.tensor.shape) if _is_mask(o.tensor) else 1
        first = int(o.role.split(".")[1]) + shift
        taken.update(range(first, first + span))
        shift += span - 1
        if _is_mask(o.tensor):
            masked *= o.tensor.numel
        else:
            shapes.append(o.tensor.shape)
    rest = prod(n for dim, n in enumerate(table.shape) if dim not in taken)
    return prod(broadcast(shapes)) * masked * rest


def _write(op: Op, elements: int, source: str, *, adds: bool, more: int = 0) -> Cost:
    """Elements written by index, from as many of the source; ``more`` FLOP each beside the sum."""
    table = operand(op, "self")
    others = region_bytes(reads_without(op, "self", source, "out"))
    values = op.operand(source)
    read = others + (gathered_bytes(values, elements) if values is not None else 0)
    touched = gathered_bytes(table, elements)
    if in_place(op):
        read += touched if adds else 0
        write = touched
    else:
        read += region_bytes([table])
        write = region_bytes(op.writes)
    vector = elements * (addition(table) * adds + more)
    return cost(op, f"scatter.{op.name}", vector=vector, read_bytes=read, write_bytes=write)


def _scatter(op: Op) -> Cost:
    """Writes, or reduces where torch's argument says how."""
    elements = operand(op, "index").numel
    return _write(op, elements, "src", adds=op.attrs.get("reduce") is not None)


def _scatter_add(op: Op) -> Cost:
    return _write(op, operand(op, "index").numel, "src", adds=True)


def _averaging(op: Op) -> int:
    """FLOP an element beyond its sum: where the reduction is a mean, it counts and divides."""
    return 2 if op.attrs.get("reduce") == "mean" else 0


def _scatter_reduce(op: Op) -> Cost:
    elements = operand(op, "index").numel
    return _write(op, elements, "src", adds=True, more=_averaging(op))


def _index_reduce(op: Op) -> Cost:
    source = operand(op, "source")
    return _write(op, source.numel, "source", adds=True, more=_averaging(op))


def _index_add(op: Op) -> Cost:
    source = operand(op, "source")
    factor = product(source) if number(op, "alpha", 1) != 1 else 0
    return _write(op, source.numel, "source", adds=True, more=factor)


def _index_copy(op: Op) -> Cost:
    return _write(op, operand(op, "source").numel, "source", adds=False)


def _index_fill(op: Op) -> Cost:
    table, index = operand(op, "self"), operand(op, "index")
    dim = axis(op, "dim", len(table.shape))
    row = prod(n for i, n in enumerate(table.shape) if i != dim)
    return _write(op, index.numel * row, "value", adds=False)


def _index_put(op: Op) -> Cost:
    some_members(op, "indices")
    elements = _indexed(op, operand(op, "self"))
    return _write(op, elements, "values", adds=flag(op, "accumulate"))


def _put(op: Op) -> Cost:
    return _write(op, operand(op, "index").numel, "source", adds=flag(op, "accumulate"))


def _masked_scatter(op: Op) -> Cost:
    """Consecutive elements of the source go where the mask is set: a running sum of the mask."""
    elements, flags = operand(op, "self").numel, operand(op, "mask").numel
    written = _write(op, elements, "source", adds=False)
    return replace(written, vector_flops=flags if written.kernels else 0)


def _embedding_renorm(op: Op) -> Cost:
    """Rows that the indices name are measured (square, sum) and cut to a norm, in place."""
    width = ranked(op, 2, "self").shape[-1]
    elements = min(operand(op, "indices").numel * width, operand(op, "self").numel)
    return _write(op, elements, "source", adds=True, more=2)


def _index_backward(op: Op) -> Cost:
    """A dense gradient of zeros with the taken elements added; the table itself is not read."""
    dy = operand(op, "grad")
    return cost(
        op, f"scatter.{op.name}", vector=dy.numel * addition(dy), reads=reads_without(op, "self")
    )


OPS: dict[str, Formula] = {
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
    "index_add": _index_add,
    "index_reduce": _index_reduce,
    "index_copy": _index_copy,
    "index_fill": _index_fill,
    "index_put": _index_put,
    "put": _put,
    "masked_scatter": _masked_scatter,
    "embedding_renorm": _embedding_renorm,
    "gather_backward": _index_backward,
    "index_select_backward": _index_backward,
}
