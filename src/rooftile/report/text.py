"""An audit as text: the table of ops or groups, then the totals in absolute numbers."""

from __future__ import annotations

from collections import defaultdict
from typing import TextIO

from rooftile import units
from rooftile.records.estimate import Estimate, OpEstimate
from rooftile.records.plan import Plan
from rooftile.report.columns import Column, Line, align, pairs, width_of, write_lines
from rooftile.report.findings import finding_lines
from rooftile.report.table import By, GroupRow, OpRow, group_rows, launched, op_rows

_MEASURES = (
    Column("FLOP", "right"),
    Column("bytes", "right"),
    Column("FLOP/byte", "right"),
    Column("bound", styled=True),
    Column("least time", "right"),
    Column("share", "right"),
)
_OP_COLUMNS = (
    Column("op", cut="end"),
    Column("phase"),
    Column("module", cut="start"),
    Column("line", cut="start"),
    Column("shapes and dtype", cut="end"),
    *_MEASURES,
)


def write_audit(
    estimate: Estimate,
    out: TextIO,
    *,
    by: By | None = None,
    top: int | None = None,
    plan: Plan | None = None,
) -> None:
    """Write an audit: plain lines to a pipe, coloured and fitted to its width to a terminal.

    Args:
        estimate: What to show.
        out: Where to.
        by: One row a group of ops instead of one an op: ``"op"``, ``"module"`` or ``"line"``.
        top: Only so many rows, the longest least time first.
        plan: What to do about the ops: a column of verdicts, and findings below the totals.

    Raises:
        InputError: ``by`` or ``top`` is out of range.
    """
    write_lines(audit_lines(estimate, by=by, top=top, plan=plan, width=width_of(out)), out)


def audit_lines(
    estimate: Estimate,
    *,
    by: By | None = None,
    top: int | None = None,
    plan: Plan | None = None,
    width: int | None = None,
) -> list[Line]:
    """The lines of :func:`write_audit`, none longer than ``width`` where the words allow it."""
    if by is None:
        rows = op_rows(estimate, top, free=False)
        cells = [_op_cells(row) for row in rows]
        columns: tuple[Column, ...] = _OP_COLUMNS
        if plan is not None:
            actions = {verdict.index: verdict.action for verdict in plan.verdicts}
            columns = (*columns, Column("verdict"))
            cells = [[*c, actions[row.index]] for c, row in zip(cells, rows, strict=True)]
        table = align(columns, cells, width)
        listed, of = len(rows), estimate.totals.ops
    else:
        groups = group_rows(estimate, by, top)
        columns = (Column(by, cut="start"), Column("ops", "right"), *_MEASURES)
        table = align(columns, [_group_cells(row) for row in groups], width)
        listed, of = len(groups), len(group_rows(estimate, by))
    blank: Line = (("", ""),)
    lines = [*table, blank, *pairs(_listing(estimate, listed, of, by) + total_pairs(estimate))]
    return lines if plan is None else [*lines, blank, *finding_lines(plan)]


def total_pairs(estimate: Estimate) -> list[tuple[str, str]]:
    """The totals of a step: what each is and its figure, in absolute numbers."""
    totals = estimate.totals
    return [
        *_matrix_pairs(launched(estimate)),
        ("vector FLOP", units.count(totals.vector_flops)),
        ("bytes", f"{units.count(totals.bytes)} ({units.traffic(totals.bytes)})"),
        ("least time", _least_time(estimate)),
        *(
            (f"  {bound}", f"{units.seconds(time)}, {units.percent(time, totals.least_s)}")
            for bound, time in sorted(totals.bound_s.items(), key=lambda item: -item[1])
            if time > 0
        ),
        *_priced_pairs(estimate),
        *(("assumed", words) for words in estimate.graph.assumptions),
    ]


def _listing(estimate: Estimate, listed: int, of: int, by: By | None) -> list[tuple[str, str]]:
    """What was audited, and what of it the table does not show."""
    graph, device = estimate.graph, estimate.device
    what = "ops" if by is None else f"groups by {by}"
    free = len(estimate.ops) - len(launched(estimate))
    shown = f"{units.count(listed)} of {units.count(of)} {what}"
    if free:
        shown += f"; {units.count(free)} more launch no kernel (views, allocation)"
    return [
        ("target", f"{graph.target}, {graph.mode}"),
        ("GPU", f"{device.name} ({device.id})" if device.id != device.name else device.name),
        ("listed", shown),
    ]


def _matrix_pairs(ops: list[OpEstimate]) -> list[tuple[str, str]]:
    """Matrix FLOP by family of formulas and by phase; the dense count where a mask saves some."""
    needed: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    dense: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for op in ops:
        if op.cost.dense_matrix_flops or op.cost.matrix_flops:
            family = op.cost.formula.partition(".")[0] or op.name
            needed[family][op.phase] += op.cost.matrix_flops
            dense[family][op.phase] += op.cost.dense_matrix_flops
    lines = []
    for family, phases in sorted(needed.items(), key=lambda item: -sum(item[1].values())):
        if phases == dense[family]:
            lines.append((f"{family} FLOP", _by_phase(phases)))
        else:
            lines.append((f"{family} FLOP, effective", _by_phase(phases)))
            lines.append((f"{family} FLOP, dense", _by_phase(dense[family])))
    return lines


def _by_phase(phases: dict[str, int]) -> str:
    """A sum and its parts."""
    whole = units.count(sum(phases.values()))
    if len(phases) == 1:
        return whole
    return f"{whole} ({', '.join(f'{name} {units.count(n)}' for name, n in phases.items())})"


def _least_time(estimate: Estimate) -> str:
    """The step's least time, and the two ends of its interval."""
    launch_s = sum(op.times.launch_s for op in estimate.ops)
    warm_s = sum(op.times.warm_s for op in estimate.ops)
    return (
        f"{units.seconds(estimate.totals.least_s)} with cold caches "
        f"({units.seconds(warm_s)} where data fits the L2, "
        f"{units.seconds(launch_s)} of launches alone)"
    )


def _priced_pairs(estimate: Estimate) -> list[tuple[str, str]]:
    """How much of the step has a formula, and every op that has none."""
    totals = estimate.totals
    ops, moved = totals.ops - totals.unpriced_ops, totals.bytes - totals.unpriced_bytes
    lines = [
        (
            "priced",
            f"{units.count(ops)} of {units.count(totals.ops)} ops "
            f"({units.percent(ops, totals.ops)}), {units.count(moved)} of "
            f"{units.count(totals.bytes)} bytes ({units.percent(moved, totals.bytes)})",
        )
    ]
    unpriced: dict[str, list[int]] = defaultdict(list)
    for op in estimate.ops:
        if op.bound == "unpriced":
            unpriced[op.aten].append(op.cost.bytes)
    for aten, sizes in sorted(unpriced.items(), key=lambda item: (-sum(item[1]), item[0])):
        word = "op" if len(sizes) == 1 else "ops"
        lines.append(
            (
                "unpriced",
                f"{aten}: {units.count(len(sizes))} {word}, {units.count(sum(sizes))} bytes",
            )
        )
    return lines


def _op_cells(row: OpRow) -> list[str]:
    """One op's row of the table."""
    return [
        row.op,
        row.phase,
        row.module or "-",
        row.line or "-",
        row.shapes or "-",
        "?" if row.flops is None else units.flop(row.flops).removesuffix("FLOP").strip(),
        units.traffic(row.read_bytes + row.write_bytes),
        _intensity(row.flop_per_byte),
        row.bound,
        units.seconds(row.least_s),
        units.percent(row.share),
    ]


def _group_cells(row: GroupRow) -> list[str]:
    """One group's row of the table; ``+ ?`` where ops without a formula are among it."""
    flops = units.flop(row.matrix_flops + row.vector_flops).removesuffix("FLOP").strip()
    if row.unpriced_ops:
        flops = "?" if row.unpriced_ops == row.ops else f"{flops} + ?"
    return [
        row.group,
        units.count(row.ops),
        flops,
        units.traffic(row.bytes),
        _intensity(row.flop_per_byte),
        row.bound,
        units.seconds(row.least_s),
        units.percent(row.share),
    ]


def _intensity(value: float | None) -> str:
    """FLOP per byte, or a dash where there is none."""
    return "-" if value is None else units.intensity(value)
