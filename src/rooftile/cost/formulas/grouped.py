"""Grouped matrix products, as a mixture of experts runs them.

``offs`` cuts the rows (or columns, or the inner dimension) of one operand into one group a matrix
of the other. Where the cuts lie is data, which a shape does not tell: every row is taken to belong
to a group, and ``min(groups, rows)`` matrices are read, since a group without a row reads none.
"""

from __future__ import annotations

from rooftile.cost.formulas.matmul import grouped_matrices
from rooftile.cost.formulas.operands import (
    Formula,
    cost,
    matrix_math,
    narrowed,
    operand,
    reads_without,
)
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor
from rooftile.spec.dtypes import dtype


def _first(matrices: Tensor, rows: int) -> Tensor:
    """As many of the stacked matrices as ``rows`` rows can use."""
    return narrowed(matrices, 0, 0, grouped_matrices(matrices.shape[0], rows))


def _grouped_mm(op: Op) -> Cost:
    a, b = operand(op, "self"), operand(op, "mat2")
    values = dtype(a.dtype).values
    match len(a.shape), len(b.shape):
        case 2, 3:  # rows of a in groups: [T, K] x [E, K, N]
            flops = 2 * a.shape[0] * b.shape[1] * values * b.shape[2]
            used = [a, _first(b, a.shape[0])]
        case 3, 2:  # columns of b in groups: [E, M, K] x [K, T]
            flops = 2 * a.shape[1] * a.shape[2] * values * b.shape[1]
            used = [_first(a, b.shape[1]), b]
        case 2, 2:  # the inner dimension in groups: [M, T] x [T, N], one result a group
            flops = 2 * a.shape[0] * a.shape[1] * values * b.shape[1]
            used = [a, b]
        case 3, 3:
            flops = 2 * a.shape[0] * a.shape[1] * a.shape[2] * values * b.shape[2]
            used = [a, b]
        case _:
            raise InputError(
                f"{op.aten}: operands must have 2 or 3 dimensions, got {a.shape} and {b.shape}"
            )
    reads = used + reads_without(op, "self", "mat2")
    return cost(op, "grouped.grouped_mm", matrix=flops, math=matrix_math(op, a), reads=reads)


OPS: dict[str, Formula] = {"grouped_mm": _grouped_mm, "scaled_grouped_mm": _grouped_mm}
