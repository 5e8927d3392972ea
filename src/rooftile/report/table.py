"""An estimate as rows: one an op, or one a group of ops. Text and CSV are written from these."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from typing import Literal, TypeVar

from rooftile.errors import InputError
from rooftile.records.estimate import Bound, Estimate, OpEstimate

By = Literal["op", "module", "line"]
T = TypeVar("T", OpEstimate, "GroupRow")

GROUPINGS: tuple[By, ...] = ("op", "module", "line")


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op; the FLOP of an unpriced op are None, never 0."""

    index: int
    op: str
    aten: str
    phase: str
    module: str
    line: str
    shapes: str
    matrix_flops: int | None
    dense_matrix_flops: int | None
    vector_flops: int | None
    read_bytes: int
    write_bytes: int
    flop_per_byte: float | None
    bound: Bound
    least_s: float
    warm_s: float
    share: float
    formula: str

    @property
    def flops(self) -> int | None:
        """Needed FLOP, matrix and vector together."""
        if self.matrix_flops is None or self.vector_flops is None:
            return None
        return self.matrix_flops + self.vector_flops


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Ops that share a name, a module or a line; FLOP and FLOP/byte are those of priced ops."""

    group: str
    ops: int
    unpriced_ops: int
    matrix_flops: int
    vector_flops: int
    bytes: int
    flop_per_byte: float | None
    bound: Bound
    least_s: float
    share: float


def op_rows(estimate: Estimate, top: int | None = None, *, free: bool = True) -> list[OpRow]:
    """Every op in the order of the step, or the ``top`` ones with the longest least time.

    Args:
        estimate: Whose ops.
        top: Only so many.
        free: Ops that launch no kernel too.

    Raises:
        InputError: ``top`` is less than 1.
    """
    check_selection(None, top)
    ops = list(estimate.ops) if free else launched(estimate)
    if top is not None:
        ops = _longest(ops, top)
    return [_op_row(op) for op in ops]


def group_rows(estimate: Estimate, by: By, top: int | None = None) -> list[GroupRow]:
    """Ops that launch a kernel, grouped; the group with the longest least time first.

    Args:
        estimate: What to group.
        by: ``"op"``: our op's name; ``"module"``: its path; ``"line"``: the user's file and line.
        top: Only so many groups.

    Raises:
        InputError: ``by`` is none of these, or ``top`` is less than 1.
    """
    check_selection(by, top)
    groups: dict[str, list[OpEstimate]] = defaultdict(list)
    for op in launched(estimate):
        groups[_key(op, by)].append(op)
    return _longest([_group_row(name, ops) for name, ops in groups.items()], top)


def launched(estimate: Estimate) -> list[OpEstimate]:
    """The ops that launch a kernel."""
    return [op for op in estimate.ops if op.bound != "free"]


def check_selection(by: str | None, top: int | None) -> By | None:
    """Refuse a grouping or a number of rows that no table has, before any work is done for it.

    Returns:
        ``by``, known to be one of the groupings or None.

    Raises:
        InputError: ``by`` is no grouping, or ``top`` is less than 1.
    """
    if top is not None and top < 1:
        raise InputError(f"top must be at least 1, got {top}")
    for known in GROUPINGS:
        if by == known:
            return known
    if by is not None:
        raise InputError(f"by must be one of {', '.join(GROUPINGS)}, got {by!r}")
    return None


def audit_csv(estimate: Estimate, *, by: By | None = None, top: int | None = None) -> str:
    """The rows as CSV with a header: units in the names, plain numbers, None is empty.

    Raises:
        InputError: ``by`` or ``top`` is out of range.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    row_type = OpRow if by is None else GroupRow
    rows = op_rows(estimate, top) if by is None else group_rows(estimate, by, top)
    writer.writerow(field.name for field in fields(row_type))
    writer.writerows(astuple(row) for row in rows)
    return text.getvalue()


def _op_row(op: OpEstimate) -> OpRow:
    """One op's figures, laid flat."""
    cost = op.cost
    priced = op.bound != "unpriced"
    return OpRow(
        index=op.index,
        op=op.name,
        aten=op.aten,
        phase=op.phase,
        module=op.module,
        line=op.line,
        shapes=op.shapes,
        matrix_flops=cost.matrix_flops if priced else None,
        dense_matrix_flops=cost.dense_matrix_flops if priced else None,
        vector_flops=cost.vector_flops if priced else None,
        read_bytes=cost.read_bytes,
        write_bytes=cost.write_bytes,
        flop_per_byte=cost.intensity if priced and cost.bytes else None,
        bound=op.bound,
        least_s=op.least_s,
        warm_s=op.times.warm_s,
        share=op.share,
        formula=cost.formula,
    )


def _group_row(name: str, ops: list[OpEstimate]) -> GroupRow:
    """The sums of a group. Its wall is the one at which it spends the most time."""
    priced = [op for op in ops if op.bound != "unpriced"]
    at_wall: dict[Bound, float] = defaultdict(float)
    for op in ops:
        at_wall[op.bound] += op.least_s
    flops = sum(op.cost.flops for op in priced)
    priced_bytes = sum(op.cost.bytes for op in priced)
    return GroupRow(
        group=name,
        ops=len(ops),
        unpriced_ops=len(ops) - len(priced),
        matrix_flops=sum(op.cost.matrix_flops for op in priced),
        vector_flops=sum(op.cost.vector_flops for op in priced),
        bytes=sum(op.cost.bytes for op in ops),
        flop_per_byte=flops / priced_bytes if priced_bytes else None,
        bound=max(at_wall, key=lambda bound: at_wall[bound]),
        least_s=sum(op.least_s for op in ops),
        share=sum(op.share for op in ops),
    )


def _key(op: OpEstimate, by: By) -> str:
    """The group an op belongs to."""
    if by == "op":
        return op.name
    if by == "module":
        return op.module or "(outside every module)"
    return op.line or "(unknown)"


def _longest(items: Iterable[T], top: int | None) -> list[T]:
    """The ``top`` items by least time; the earlier one first where two are equal."""
    return sorted(items, key=lambda item: -item.least_s)[:top]
