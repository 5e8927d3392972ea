"""An estimate made by hand: what the reports and the command line are tested with."""

from __future__ import annotations

import math
from dataclasses import replace

from rooftile.records.cost import Cost
from rooftile.records.device import Device, Figure, MemoryLevel
from rooftile.records.estimate import Estimate, OpEstimate, Times, Totals
from rooftile.records.graph import Graph, Op, Operand
from rooftile.records.tensor import contiguous

GPU = Device(
    id="h100-sxm",
    name="H100 SXM5 80 GB",
    vendor="NVIDIA",
    target="sm_90",
    peaks={"bf16": Figure(989.4e12, "datasheet", "B"), "fp32": Figure(66.9e12, "datasheet", "B")},
    bandwidth=Figure(3.35e12, "datasheet", "B"),
    memory_bytes=Figure(80e9, "datasheet", "B"),
    l2_bytes=Figure(52_428_800, "driver", "A"),
    units=Figure(132, "driver", "A"),
    launch_s=Figure(2e-6, "assumed", "C"),
    hierarchy=(
        MemoryLevel("registers", 132 * 262_144, None, "256 KiB an SM, derived"),
        MemoryLevel("HBM", 80_000_000_000, 3.35e12, "datasheet"),
    ),
    aliases=("NVIDIA H100 80GB HBM3",),
    notes=("Boost clock 1,830 MHz for tensor work.",),
)


def graph() -> Graph:
    """Five ops of a step: a matmul, an attention, a mask, an op without a formula and a view."""
    x = contiguous((2048, 4096), "bfloat16", 0)
    y = contiguous((2048, 4096), "bfloat16", 1)
    ops = (
        Op(0, "aten.mm.default", "matmul", (Operand("self", x),), (y,), {}, "model.q", "m.py:3"),
        Op(1, "rooftile.sdpa", "attention", (Operand("q", y),), (x,), {"is_causal": True}, "model"),
        Op(2, "aten.masked_fill.Scalar", "masked_fill", (), (x,), {"value": -math.inf}),
        Op(3, "aten.frobnicate.default", "aten.frobnicate", (), (x,), {"pad": (1, math.inf)}),
        Op(4, "aten.view.default", "view", (Operand("self", x),), (x,)),
    )
    ops = (*ops[:3], replace(ops[3], phase="backward", line="m.py:9"), ops[4])
    return Graph("toy.py:make", "train", ops, (0,), {0: "q.weight"}, (1,), ("loss: out.sum()",))


def op(index: int, bound: str, cost: Cost, times: Times, share: float) -> OpEstimate:
    """The estimate of one op of the graph above."""
    it = graph().ops[index]
    return OpEstimate(
        index,
        it.name,
        it.aten,
        it.phase,
        it.module,
        it.line,
        "(2048, 4096) bfloat16",
        cost,
        bound,  # type: ignore[arg-type]
        times,
        times.least_s,
        share,
    )


def estimate() -> Estimate:
    """The graph above, priced with round figures: 1,000 us in all."""
    us = 1e-6
    ops = (
        op(
            0,
            "compute",
            Cost(6 * 10**8, 0, 3 * 10**8, 10**8, 6 * 10**8, "bf16", formula="matmul.mm"),
            Times(2 * us, 600 * us, 0.0, 120 * us, 60 * us),
            0.6,
        ),
        op(
            1,
            "memory",
            Cost(10**8, 5 * 10**7, 10**8, 10**8, 2 * 10**8, "bf16", formula="attention.sdpa"),
            Times(2 * us, 50 * us, 10 * us, 200 * us, 100 * us),
            0.2,
        ),
        op(
            2,
            "memory",
            Cost(0, 10**7, 5 * 10**7, 5 * 10**7, formula="pointwise.masked_fill"),
            Times(2 * us, 0.0, 5 * us, 100 * us, 100 * us),
            0.1,
        ),
        op(
            3,
            "unpriced",
            Cost(read_bytes=5 * 10**7, write_bytes=5 * 10**7),
            Times(2 * us, 0.0, 0.0, 100 * us, 100 * us),
            0.1,
        ),
        op(4, "free", Cost(kernels=0, formula="view"), Times(0.0, 0.0, 0.0, 0.0, 0.0), 0.0),
    )
    totals = Totals(
        ops=4,
        unpriced_ops=1,
        matrix_flops=7 * 10**8,
        dense_matrix_flops=8 * 10**8,
        vector_flops=6 * 10**7,
        bytes=8 * 10**8,
        unpriced_bytes=10**8,
        least_s=1000 * us,
        bound_s={"compute": 600 * us, "memory": 300 * us, "unpriced": 100 * us},
    )
    return Estimate(graph(), GPU, ops, totals)
