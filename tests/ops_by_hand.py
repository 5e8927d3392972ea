"""Op records made by hand: what the formulas are tested with."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from rooftile.cost.graph import price
from rooftile.records.cost import Cost
from rooftile.records.graph import Attr, Op, Operand
from rooftile.records.tensor import Tensor, contiguous

_storages = itertools.count(1_000)


def tensor(*shape: int, dtype: str = "float32") -> Tensor:
    """A contiguous tensor in a storage of its own."""
    return contiguous(shape, dtype, next(_storages))


def strided(
    base: Tensor, shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0
) -> Tensor:
    """A view of another tensor's storage."""
    return Tensor(shape, base.dtype, stride, base.storage, offset)


def op(
    name: str,
    inputs: Mapping[str, Tensor],
    outputs: tuple[Tensor, ...] | Tensor = (),
    *,
    changed: tuple[str, ...] = (),
    filled: tuple[str, ...] = (),
    index: int = 0,
    **attrs: Attr,
) -> Op:
    """An op of our name.

    Args:
        name: Ours.
        inputs: Tensor arguments by role, in order.
        outputs: Results.
        changed: Roles that are read and written.
        filled: Roles that are written only.
        index: Position in the graph.
        attrs: Other arguments.
    """
    operands = tuple(
        Operand(role, t, reads=role not in filled, writes=role in (*changed, *filled))
        for role, t in inputs.items()
    )
    results = (outputs,) if isinstance(outputs, Tensor) else outputs
    return Op(index, f"aten.{name}.default", name, operands, results, dict(attrs))


def cost_of(
    name: str,
    inputs: Mapping[str, Tensor],
    outputs: tuple[Tensor, ...] | Tensor = (),
    *,
    changed: tuple[str, ...] = (),
    filled: tuple[str, ...] = (),
    **attrs: Attr,
) -> Cost:
    """The price of such an op, which must have one."""
    cost = price(op(name, inputs, outputs, changed=changed, filled=filled, **attrs))
    assert cost is not None, f"{name} has no formula"
    return cost
