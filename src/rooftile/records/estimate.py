"""What a graph costs on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rooftile.records.cost import Cost
from rooftile.records.device import Device
from rooftile.records.graph import Graph, Phase

SCHEMA_VERSION = 1

Bound = Literal["memory", "compute", "launch", "unpriced", "free"]


@dataclass(frozen=True, slots=True)
class Times:
    """The floors under one op's time [s].

    Attributes:
        launch_s: Launch floor of its kernels.
        matrix_s: Matrix FLOP over the matrix roof.
        vector_s: Vector FLOP over the vector roof.
        hbm_s: Bytes over the bandwidth of device memory, caches cold.
        l2_s: Bytes over the L2's bandwidth, where all of them fit into the L2 and that bandwidth
            is known; else ``hbm_s``.
    """

    launch_s: float
    matrix_s: float
    vector_s: float
    hbm_s: float
    l2_s: float

    @property
    def least_s(self) -> float:
        """The least time with cold caches: the largest of the floors."""
        return max(self.launch_s, self.matrix_s, self.vector_s, self.hbm_s)

    @property
    def warm_s(self) -> float:
        """The least time with the data in the L2."""
        return max(self.launch_s, self.matrix_s, self.vector_s, self.l2_s)


@dataclass(frozen=True, slots=True)
class OpEstimate:
    """One op on one device.

    Attributes:
        index: The op's position in the graph.
        name: Our op's name.
        aten: Torch's name for it.
        phase: Where in the step it runs.
        module: Path of its module.
        line: The user's file and line.
        shapes: Shapes and dtypes of its tensors, for people.
        cost: Its work; of an unpriced op only the bytes mean anything.
        bound: Which wall it hits. ``"free"``: no kernel runs (views, allocation).
        times: The floors under its time.
        least_s: The least time with cold caches [s].
        share: Part of the step's least time, 0 to 1.
    """

    index: int
    name: str
    aten: str
    phase: Phase
    module: str
    line: str
    shapes: str
    cost: Cost
    bound: Bound
    times: Times
    least_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the step, absolute.

    Attributes:
        ops: Ops that launch a kernel.
        unpriced_ops: Of these, ops without a formula.
        matrix_flops: Needed matrix FLOP.
        dense_matrix_flops: Matrix FLOP without the savings of a mask.
        vector_flops: All other FLOP.
        bytes: Bytes moved, unpriced ops included.
        unpriced_bytes: Bytes of unpriced ops.
        least_s: Sum of the ops' least times [s]. Unpriced ops count with their bytes.
        bound_s: Least time by bound [s].
    """

    ops: int
    unpriced_ops: int
    matrix_flops: int
    dense_matrix_flops: int
    vector_flops: int
    bytes: int
    unpriced_bytes: int
    least_s: float
    bound_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a graph costs on a device.

    Attributes:
        graph: What was priced.
        device: On which GPU.
        ops: One row an op of the graph, in its order.
        totals: Sums over the step.
        kind: Tells this record's JSON from others.
    """

    graph: Graph
    device: Device
    ops: tuple[OpEstimate, ...]
    totals: Totals
    kind: Literal["rooftile.estimate"] = "rooftile.estimate"
    schema_version: int = SCHEMA_VERSION
