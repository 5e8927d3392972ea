"""What one kernel moves that does the work of several ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rooftile.cost.formulas.joined import joined
from rooftile.cost.regions import region_bytes
from rooftile.cost.roofline import times
from rooftile.errors import InputError
from rooftile.plan.links import Links
from rooftile.records.cost import Cost
from rooftile.records.device import Device
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor


@dataclass(slots=True)
class _Kernel:
    """Regions that a kernel reads from outside and leaves behind, as its ops are walked through."""

    fresh: set[int]
    written: dict[int, list[Tensor]]
    reads: list[Tensor]
    writes: list[Tensor]
    counted_reads: int = 0
    counted_writes: int = 0

    def inside(self, tensor: Tensor) -> bool:
        """Whether the kernel itself made this region."""
        if tensor.storage in self.fresh:
            return True
        made = self.written.get(tensor.storage)
        return made is not None and region_bytes(made) == region_bytes([*made, tensor])


def fused_cost(ops: Iterable[Op], costs: Mapping[int, Cost], links: Links) -> Cost:
    """The work of one kernel that runs these ops.

    Reads are the distinct regions that come from outside, writes those that are read outside or
    outlive the step. An op whose formula moves less than its regions (a gather) counts with its
    formula, but never with what comes from inside.

    Args:
        ops: In the order they run.
        costs: Of each op, by its index.
        links: Of the graph they come from.

    Raises:
        InputError: There is no op.
    """
    ops = list(ops)
    if not ops:
        raise InputError("ops must hold at least one op, got none")
    members = {op.index for op in ops}
    kernel = _Kernel(set(), {}, [], [])
    for op in ops:
        _walk(op, costs[op.index], kernel, links, members)
    return joined(
        (costs[op.index] for op in ops),
        read_bytes=region_bytes(kernel.reads) + kernel.counted_reads,
        write_bytes=region_bytes(kernel.writes) + kernel.counted_writes,
    )


def least_s(cost: Cost, device: Device) -> float:
    """Least time of a kernel [s]."""
    return times(cost, device).least_s


def _walk(op: Op, cost: Cost, kernel: _Kernel, links: Links, members: set[int]) -> None:
    """Add one op's regions to the kernel's."""
    outside = [t for t in op.reads if not kernel.inside(t)]
    if region_bytes(op.reads) == cost.read_bytes:
        kernel.reads += outside
    else:
        kernel.counted_reads += min(region_bytes(outside), cost.read_bytes)
    held = {o.tensor.storage for o in op.inputs}
    left = [t for t in op.writes if links.escapes(op.index, t.storage, members)]
    whole = region_bytes(op.writes)
    if whole <= cost.write_bytes:
        kernel.writes += left
        kernel.counted_writes += cost.write_bytes - whole
    elif left:
        kernel.counted_writes += min(region_bytes(left), cost.write_bytes)
    for tensor in op.writes:
        if tensor.storage not in held:
            kernel.fresh.add(tensor.storage)
        kernel.written.setdefault(tensor.storage, []).append(tensor)
