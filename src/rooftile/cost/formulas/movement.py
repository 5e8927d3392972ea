"""Ops that compute nothing: views, allocation, copies, fills, random numbers.

A view and an allocation move nothing and launch nothing. A copy reads its source and fills its
target without reading it. ``reshape``, ``contiguous``, ``to`` and their kind are a view where the
result stands in the storage of an input, else a copy. Zeros, ones and random numbers are written
and read nothing, whatever tensor lends them its shape.
"""

from __future__ import annotations

from rooftile.cost.formulas.arithmetic import addition
from rooftile.cost.formulas.operands import Formula, cost, operand, result
from rooftile.cost.regions import region_bytes
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.spec.dtypes import itemsize


def _free(op: Op) -> Cost:
    return Cost(kernels=0, formula=f"movement.{op.name}")


def _copy(op: Op) -> Cost:
    """Everything that is not filled is read; what is filled is not."""
    sources = [o.tensor for o in op.inputs if not o.writes]
    if not sources:
        raise InputError(f"{op.aten}: must have a tensor to copy from, got none")
    return cost(op, f"movement.{op.name}", reads=sources)


def _copy_or_view(op: Op) -> Cost:
    held = {o.tensor.storage for o in op.inputs}
    if all(t.storage in held for t in op.outputs):
        return _free(op)
    return _copy(op)


def _fill(op: Op) -> Cost:
    """A value given as a tensor is read."""
    value = op.operand("value")
    if not op.writes:
        raise InputError(f"{op.aten}: must fill a tensor, got none")
    return cost(op, f"movement.{op.name}", reads=[value] if value is not None else [])


def _draw(op: Op) -> Cost:
    """Random numbers: a distribution's parameters are read, a tensor that lends its shape not."""
    parameters = ("mean", "std", "p") if op.outputs else ("p",)
    if not op.writes:
        raise InputError(f"{op.aten}: must fill a tensor, got none")
    given = [t for role in parameters if (t := op.operand(role)) is not None]
    return cost(op, f"movement.{op.name}", reads=given)


def _sample(op: Op) -> Cost:
    """Draws by the weights of its input: a running sum of them."""
    weights = operand(op, "self")
    return cost(op, f"movement.{op.name}", vector=weights.numel)


def _pad_backward(op: Op) -> Cost:
    """The gradient of what was repeated is added up; the input lends its shape."""
    dy = operand(op, "grad_output")
    return cost(op, f"movement.{op.name}", vector=dy.numel * addition(dy), reads=[dy])


def _unfold_backward(op: Op) -> Cost:
    """Windows overlap: one addition an element of the gradient."""
    dy = operand(op, "grad_in", "self")
    return cost(op, f"movement.{op.name}", vector=dy.numel * addition(dy))


def _item(op: Op) -> Cost:
    """One element goes to the host."""
    source = operand(op, "self")
    read = min(region_bytes([source]), itemsize(source.dtype))
    return cost(op, "movement.item", read_bytes=read, write_bytes=0)


def _look(op: Op) -> Cost:
    """What is read to be checked, and kept nowhere."""
    if not op.reads:
        raise InputError(f"{op.aten}: must have a tensor to look at, got none")
    return cost(op, f"movement.{op.name}", write_bytes=0)


def _masked_scatter_backward(op: Op) -> Cost:
    """What a mask selects, one after the other, then zeros: a running sum of the mask."""
    flags = operand(op, "mask").numel
    return cost(op, f"movement.{op.name}", vector=flags)


def _triangle(op: Op) -> Cost:
    """Half is copied, half is zero: read as a whole, as the kernel's rows are."""
    return cost(op, f"movement.{op.name}", writes=[result(op)])


OPS: dict[str, Formula] = {
    **dict.fromkeys(("view", "empty"), _free),
    **dict.fromkeys(("reshape", "contiguous", "to"), _copy_or_view),
    **dict.fromkeys(
        (
            "as_strided_scatter",
            "block_diag",
            "cat",
            "channel_shuffle",
            "copy",
            "diag",
            "diagonal_scatter",
            "flip",
            "im2col",
            "lu_unpack",
            "pad",
            "repeat",
            "repeat_interleave",
            "roll",
            "scatter_slice",
            "slice_backward",
            "foreach_copy",
        ),
        _copy,
    ),
    **dict.fromkeys(("fill", "foreach_zero"), _fill),
    "random": _draw,
    "multinomial": _sample,
    "pad_backward": _pad_backward,
    "unfold_backward": _unfold_backward,
    "item": _item,
    "look": _look,
    "masked_scatter_backward": _masked_scatter_backward,
    "tril": _triangle,
    "triu": _triangle,
}
