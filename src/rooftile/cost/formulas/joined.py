"""Several ops in one kernel: their FLOP add up, their traffic is the kernel's own."""

from __future__ import annotations

from collections.abc import Iterable

from rooftile.records.cost import Cost


def joined(costs: Iterable[Cost], *, read_bytes: int, write_bytes: int) -> Cost:
    """The work of one kernel that does what several ops do.

    Args:
        costs: Of the ops one by one.
        read_bytes: What the kernel reads from outside.
        write_bytes: What it leaves behind.
    """
    parts = list(costs)
    maths = [cost.math for cost in parts if cost.matrix_flops]
    return Cost(
        matrix_flops=sum(cost.matrix_flops for cost in parts),
        vector_flops=sum(cost.vector_flops for cost in parts),
        read_bytes=read_bytes,
        write_bytes=write_bytes,
        dense_matrix_flops=sum(cost.dense_matrix_flops for cost in parts),
        math=maths[0] if maths else "",
        vector_math="fp64" if any(cost.vector_math == "fp64" for cost in parts) else "fp32",
        kernels=1,
        formula="joined.joined",
    )
