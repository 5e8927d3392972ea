"""A captured graph priced on a device: every op's work, the floors under its time, the sums.

Ops of one name, shapes, strides, dtypes and attributes, whose operands share storages alike, cost
the same: a model's layers are priced once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from rooftile.cost.formulas import FORMULAS
from rooftile.cost.regions import region_bytes
from rooftile.cost.roofline import bound, times
from rooftile.records.cost import Cost
from rooftile.records.device import Device
from rooftile.records.estimate import Bound, Estimate, OpEstimate, Times, Totals
from rooftile.records.graph import Graph, Op
from rooftile.records.tensor import Tensor

# Of a list of tensors (an optimiser's parameters) so many are shown.
_SHOWN = 4


def price(op: Op) -> Cost | None:
    """The work of one op, None where no formula has its name.

    Args:
        op: As captured.

    Returns:
        FLOP and bytes of one call, whatever the device.

    Raises:
        InputError: The op has a formula, but not the operands and attributes that it needs.
    """
    formula = FORMULAS.get(op.name)
    return formula(op) if formula is not None else None


def estimate(graph: Graph, device: Device) -> Estimate:
    """Every op of a graph under a device's roofline.

    An op without a formula is bound ``"unpriced"``: its bytes are those of its regions, its least
    time is theirs. An op that fills nothing but empty tensors is free, formula or not.

    Args:
        graph: As captured.
        device: The GPU.

    Returns:
        One row an op in the graph's order, and the sums over the step.

    Raises:
        InputError: An op has not what its formula needs, or the device no roof for its dtype.
    """
    known: dict[Hashable, _Priced] = {}
    rows: list[_Priced] = []
    for op in graph.ops:
        key = _key(op)
        priced = known.get(key)
        if priced is None:
            priced = known[key] = _priced(op, device)
        rows.append(priced)
    totals = _totals(rows)
    ops = tuple(
        _row(op, priced, totals.least_s) for op, priced in zip(graph.ops, rows, strict=True)
    )
    return Estimate(graph, device, ops, totals)


@dataclass(frozen=True, slots=True)
class _Priced:
    """What all ops of one kind have in common."""

    cost: Cost
    times: Times
    bound: Bound
    least_s: float
    shapes: str


def _row(op: Op, priced: _Priced, step_s: float) -> OpEstimate:
    return OpEstimate(
        index=op.index,
        name=op.name,
        aten=op.aten,
        phase=op.phase,
        module=op.module,
        line=op.line,
        shapes=priced.shapes,
        cost=priced.cost,
        bound=priced.bound,
        times=priced.times,
        least_s=priced.least_s,
        share=priced.least_s / step_s if step_s else 0.0,
    )


def _priced(op: Op, device: Device) -> _Priced:
    cost = price(op)
    unpriced = cost is None
    if cost is None:
        cost = _unpriced(op)
        unpriced = cost.kernels > 0
    floors = times(cost, device)
    which: Bound = "unpriced" if unpriced else bound(cost, floors)
    return _Priced(cost, floors, which, floors.least_s, _shapes(op))


def _unpriced(op: Op) -> Cost:
    """The bytes of an op that no formula knows: whatever it is, empty results take no kernel."""
    write = region_bytes(op.writes)
    if op.writes and not write:
        return Cost(kernels=0)
    return Cost(read_bytes=region_bytes(op.reads), write_bytes=write)


def _key(op: Op) -> Hashable:
    """Equal for ops that cost the same: storages are numbered within the op.

    Where a storage stands more than once, offsets say how its regions lie to each other.
    """
    places: dict[int, int] = {}
    tensors: list[Hashable] = [op.name, tuple(op.attrs.items())]
    for o in op.inputs:
        t = o.tensor
        place = places.setdefault(t.storage, len(places))
        tensors.append((o.role, o.reads, o.writes, t.shape, t.stride, t.dtype, place))
    for t in op.outputs:
        place = places.setdefault(t.storage, len(places))
        tensors.append((t.shape, t.stride, t.dtype, place))
    if len(places) < len(op.inputs) + len(op.outputs):
        tensors.append(tuple(o.tensor.offset for o in op.inputs))
        tensors.append(tuple(t.offset for t in op.outputs))
    return tuple(tensors)


def _totals(rows: list[_Priced]) -> Totals:
    bound_s: dict[str, float] = {}
    for row in rows:
        if row.bound != "free":
            bound_s[row.bound] = bound_s.get(row.bound, 0.0) + row.least_s
    costs = [row.cost for row in rows]
    unpriced = [row.cost for row in rows if row.bound == "unpriced"]
    return Totals(
        ops=sum(cost.kernels > 0 for cost in costs),
        unpriced_ops=len(unpriced),
        matrix_flops=sum(cost.matrix_flops for cost in costs),
        dense_matrix_flops=sum(cost.dense_matrix_flops for cost in costs),
        vector_flops=sum(cost.vector_flops for cost in costs),
        bytes=sum(cost.bytes for cost in costs),
        unpriced_bytes=sum(cost.bytes for cost in unpriced),
        least_s=sum(row.least_s for row in rows),
        bound_s=bound_s,
    )


def _shapes(op: Op) -> str:
    """Shapes and dtypes for people: ``2048x4096, 4096x14336 -> 2048x14336 bfloat16``.

    One dtype stands at the end where all tensors have it, else each behind its shape.
    """
    inputs = [o.tensor for o in op.inputs if o.tensor.numel or o.writes]
    outputs = [t for t in op.outputs if t.numel] or list(op.outputs[:1])
    dtypes = {t.dtype for t in (*inputs, *outputs)}
    shared = dtypes.pop() if len(dtypes) == 1 else ""
    text = " -> ".join(part for part in (_listed(inputs, shared), _listed(outputs, shared)) if part)
    return f"{text} {shared}".strip()


def _listed(tensors: list[Tensor], shared: str) -> str:
    shown = [_shape(t) + ("" if shared else f" {t.dtype}") for t in tensors[:_SHOWN]]
    if len(tensors) > _SHOWN:
        shown.append(f"and {len(tensors) - _SHOWN:,} more")
    return ", ".join(shown)


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"
