"""The plan of a step: its fusion groups, why other ops are apart, and a verdict on each op."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace

from rooftile.errors import InputError
from rooftile.plan import kinds
from rooftile.plan.cover import (
    compiler_parts,
    compiler_rule,
    library_call,
    library_epilogue,
    sdpa_call,
)
from rooftile.plan.fusion import Fused, fuse
from rooftile.plan.grouping import Group
from rooftile.plan.match import Match
from rooftile.plan.ours import names_of, rooftile_ops, whole_of
from rooftile.plan.traffic import fused_cost, least_s
from rooftile.plan.triage import Case, triage, why_not
from rooftile.records.cost import Cost
from rooftile.records.estimate import Estimate, OpEstimate
from rooftile.records.plan import FusionGroup, Plan, Refusal, Verdict

HOT_SHARE = 0.01

_NUMBER = re.compile(r"\d+")


def decide(estimate: Estimate, *, hot_share: float = HOT_SHARE) -> Plan:
    """Group the ops of a step into kernels and say what to do about each.

    Args:
        estimate: A priced graph.
        hot_share: Share of the step's least time, 0 to 1, from which ops of one kind are hot.

    Returns:
        Groups, the greatest saving first; refusals; a verdict an op that launches a kernel.

    Raises:
        InputError: ``hot_share`` is no share.
    """
    if not 0 <= hot_share <= 1:
        raise InputError(f"hot_share must be from 0 to 1, got {hot_share}")
    fused = fuse(estimate)
    costs = {row.index: row.cost for row in estimate.ops}
    ours = rooftile_ops(fused)
    made = [_group(group, fused, costs, ours) for group in fused.groups() if len(group.ops) > 1]
    ordered = sorted(made, key=lambda group: (-group.saved_s, -group.saved_bytes, group.ops))
    groups = tuple(replace(group, id=number) for number, group in enumerate(ordered))
    refusals = tuple(
        Refusal(p, c, found.reason, found.detail)
        for (p, c), found in sorted(fused.objections.items())
        if _worth_telling(p, c, fused)
    )
    verdicts = _verdicts(fused, groups, ours, hot_share)
    return Plan(estimate, groups, refusals, verdicts, hot_share)


def _group(
    group: Group, fused: Fused, costs: dict[int, Cost], ours: dict[int, Match]
) -> FusionGroup:
    group.ops.sort()
    ops = [fused.op(i) for i in group.ops]
    rows = [fused.estimate.ops[i] for i in group.ops]
    device = fused.estimate.device
    cost = fused_cost(ops, costs, fused.links)
    before_bytes = sum(row.cost.bytes for row in rows)
    before_s = sum(row.least_s for row in rows)
    after_s = least_s(cost, device)
    rule = compiler_rule(group, fused)
    whole = bool(rule) and not group.anchored
    saved = (before_bytes - cost.bytes, before_s - after_s)
    cover = rule
    if not whole:
        parts = [_part_saved(part, fused, costs) for part in compiler_parts(group, fused)]
        saved = (sum(part[0] for part in parts), sum(part[1] for part in parts))
        cover = ""
    if group.anchored:
        cover = (
            sdpa_call(group, fused) if group.kind == "attention" else library_epilogue(group, fused)
        )
    return FusionGroup(
        id=0,
        ops=tuple(group.ops),
        kind=group.kind or ("row" if group.axes else "pointwise"),
        bytes_before=before_bytes,
        bytes_after=cost.bytes,
        before_s=before_s,
        after_s=after_s,
        module=_shared_module([op.module for op in ops]),
        line=next((op.line for op in ops if op.line), ""),
        compiler=whole,
        compiler_saved_bytes=saved[0],
        compiler_saved_s=saved[1],
        cover=cover,
        rooftile_ops=names_of(group.ops, ours),
        rooftile_whole=whole_of(group.ops, ours),
    )


def _part_saved(part: list[int], fused: Fused, costs: dict[int, Cost]) -> tuple[int, float]:
    """Bytes and time that torch.compile saves where it fuses a part of a group only."""
    if len(part) < 2:
        return 0, 0.0
    cost = fused_cost([fused.op(i) for i in part], costs, fused.links)
    before_s = sum(fused.estimate.ops[i].least_s for i in part)
    saved_s = before_s - least_s(cost, fused.estimate.device)
    return sum(costs[i].bytes for i in part) - cost.bytes, saved_s


def _worth_telling(p: int, c: int, fused: Fused) -> bool:
    """Two kernels of libraries side by side are no news."""
    return not (fused.op(p).name in kinds.LIBRARY and fused.op(c).name in kinds.LIBRARY)


@dataclass(frozen=True, slots=True)
class _Heat:
    """Shares of the step's least time.

    Attributes:
        like: By an op's index: that of all ops which one kernel for it would serve.
        left: By a group's id: what groups like it save beyond torch.compile.
        hot: From which on it counts.
    """

    like: dict[int, float]
    left: dict[int, float]
    hot: float


def _verdicts(
    fused: Fused, groups: tuple[FusionGroup, ...], ours: dict[int, Match], hot_share: float
) -> tuple[Verdict, ...]:
    of_op = {i: group for group in groups for i in group.ops}
    rows = [row for row in fused.estimate.ops if row.bound != "free"]
    heat = _heat(rows, groups, of_op, fused.estimate.totals.least_s, hot_share)
    return tuple(
        _verdict(row, of_op.get(row.index), fused, heat, "".join(names_of([row.index], ours)))
        for row in rows
    )


def _heat(
    rows: list[OpEstimate],
    groups: tuple[FusionGroup, ...],
    of_op: dict[int, FusionGroup],
    step_s: float,
    hot: float,
) -> _Heat:
    by_index = {row.index: row for row in rows}
    alike: dict[int, Hashable] = {}
    left: dict[Hashable, float] = defaultdict(float)
    for group in groups:
        members = [by_index[i] for i in group.ops]
        alike[group.id] = tuple((m.name, m.phase, m.shapes) for m in members)
        if step_s:
            left[alike[group.id]] += (group.saved_s - group.compiler_saved_s) / step_s
    keys: dict[int, Hashable] = {}
    shares: dict[Hashable, float] = defaultdict(float)
    for row in rows:
        found = of_op.get(row.index)
        if found is None or (row.cost.matrix_flops and found.kind != "attention"):
            key: Hashable = (row.name, row.phase, row.shapes, _NUMBER.sub("#", row.module))
        else:
            key = alike[found.id]
        keys[row.index] = key
        shares[key] += row.share
    return _Heat(
        {index: shares[key] for index, key in keys.items()},
        {number: left[key] for number, key in alike.items()},
        hot,
    )


def _verdict(
    row: OpEstimate, group: FusionGroup | None, fused: Fused, heat: _Heat, ours: str
) -> Verdict:
    share = heat.like[row.index]
    case, call = _case(row, group, fused, heat)
    rule = triage(case)
    cover = call if rule.action in ("USE LIBRARY", "LEAVE IT") else ""
    if group is not None and rule.action == "AUTO-FUSE":
        cover = group.cover if group.compiler else "torch.compile: a part of the group"
    if rule.action == "HAND-WRITE":
        cover = _written(group, ours)
    return Verdict(
        index=row.index,
        action=rule.action,
        rule=rule.name,
        reason=rule.reason,
        at_stake_s=_at_stake(row, group),
        share=share,
        cover=cover,
        why_not=why_not(case, ours),
        group=None if group is None else group.id,
        rooftile_op=ours,
    )


def _written(group: FusionGroup | None, ours: str) -> str:
    """Which ops of Rooftile's are the kernel that should be written, "" where none is."""
    if group is None or group.rooftile_whole or not group.rooftile_ops:
        return ours
    return f"{', '.join(group.rooftile_ops)} for a part"


def _case(
    row: OpEstimate, group: FusionGroup | None, fused: Fused, heat: _Heat
) -> tuple[Case, str]:
    """What is known of an op, and the library's call that does its work ("" if none)."""
    op = fused.op(row.index)
    call = library_call(op, fused.estimate.device.vendor)
    fuses = False
    if group is not None:
        fuses = _enough(group, heat) and group.compiler_saved_s > 0 and op.name not in kinds.LIBRARY
        if group.kind == "attention":
            call = group.cover
            fuses = fuses and not call
        elif not group.compiler and op.name not in kinds.LIBRARY:
            # a call for the op alone leaves the group's saving where it is
            alone = call if heat.left[group.id] < heat.hot else ""
            call = group.cover or alone
    case = Case(
        bound=row.bound,
        library=bool(call),
        compiler=fuses,
        hot=heat.like[row.index] >= heat.hot,
        expressible=_expressible(row, group),
    )
    return case, call


def _enough(group: FusionGroup, heat: _Heat) -> bool:
    """Whether torch.compile's part of a saving is the answer.

    It is where what it leaves is not hot, and for what stands beside a product where it avoids most
    of the traffic. Of attention it leaves the scores in memory: most is not enough there.
    """
    if group.compiler or heat.left[group.id] < heat.hot:
        return True
    return group.kind != "attention" and 2 * group.compiler_saved_bytes >= group.saved_bytes


def _expressible(row: OpEstimate, group: FusionGroup | None) -> bool:
    """A group that saves something, or matrix work, which tiles of any op can hold."""
    if group is not None and (group.saved_bytes > 0 or group.saved_s > 0):
        return True
    return row.bound == "compute" and row.cost.matrix_flops > 0


def _at_stake(row: OpEstimate, group: FusionGroup | None) -> float:
    """Its part of what its group saves, by its part of the group's time [s]."""
    if group is None or not group.before_s:
        return 0.0
    return group.saved_s * row.least_s / group.before_s


def _shared_module(paths: list[str]) -> str:
    """The deepest path that all share."""
    parts = [path.split(".") for path in paths if path]
    if not parts or len(parts) < len(paths):
        return ""
    shared = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)
