"""What stands out in a step, as Insight, Action and Saves: for the page, the text and SARIF.

The layers of a model repeat: what happens alike in each of them is one finding, and its module is
written ``model.layers.*.mlp``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rooftile import units
from rooftile.records.estimate import Estimate, OpEstimate
from rooftile.records.plan import Action, FusionGroup, Plan, Verdict

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a whole part of a dotted path
_LISTED = 6  # names of a chain that are written out
_WORTH = 0.01  # share of the step from which an op without a verdict is worth a word

RULES: dict[Action, str] = {
    "HAND-WRITE": "hand-write",
    "AUTO-FUSE": "auto-fuse",
    "USE LIBRARY": "use-library",
}


@dataclass(frozen=True, slots=True)
class Insight:
    """Something about a step that is worth acting on.

    Attributes:
        rule: ``"auto-fuse"``, ``"use-library"``, ``"hand-write"``, ``"memory-bound"``,
            ``"launch-bound"`` or ``"unpriced"``.
        text: What is so, with its numbers.
        action: What to do about it.
        saves: What that saves at most, in words.
        saved_s: The same as a time [s].
        share: The same as a part of the step's least time, 0 to 1.
        ops: Indices of the ops it is about.
    """

    rule: str
    text: str
    action: str
    saves: str
    saved_s: float
    share: float
    ops: tuple[int, ...]


def estimate_of(record: Estimate | Plan) -> Estimate:
    """The estimate itself, or the one that a plan decides on."""
    return record.estimate if isinstance(record, Plan) else record


def insights(record: Estimate | Plan, top: int | None = None) -> list[Insight]:
    """What stands out, the greatest saving first; all of it, or the ``top`` ones.

    A plan's findings are its verdicts; an estimate alone tells which walls its ops stand at.
    """
    estimate = estimate_of(record)
    if isinstance(record, Plan):
        found = [*_fusions(record), *_single_ops(record)]
    else:
        found = [*_memory_bound(estimate), *_launch_bound(estimate)]
    found.extend(_unpriced(estimate))
    return sorted(found, key=lambda finding: -finding.saved_s)[:top]


def module_pattern(module: str) -> str:
    """A module's path with the number of every layer starred: ``"model.layers.*.mlp"``."""
    return _NUMBER.sub("*", module)


def chain(names: Sequence[str]) -> str:
    """The names of ops that follow each other; of a long chain the first ones and how many more."""
    shown = ", ".join(names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"


def _fusions(plan: Plan) -> Iterable[Insight]:
    """Groups of ops that should share a kernel, alike ones together."""
    ops = {op.index: op for op in plan.estimate.ops}
    verdicts = {verdict.index: verdict for verdict in plan.verdicts}
    alike: dict[tuple[str, ...], list[FusionGroup]] = defaultdict(list)
    for group in plan.groups:
        chief = _chief(group, ops, verdicts)
        if chief.action != "LEAVE IT":
            names = chain([ops[index].name for index in group.ops])
            key = (chief.action, _cover(chief, group), chief.rule, group.kind, names)
            alike[(*key, module_pattern(group.module))].append(group)
    for groups in alike.values():
        names = chain([ops[index].name for index in groups[0].ops])
        yield _fusion(plan.estimate, groups, _chief(groups[0], ops, verdicts), names)


def _fusion(estimate: Estimate, groups: list[FusionGroup], chief: Verdict, names: str) -> Insight:
    """One finding about groups that are alike."""
    before = sum(group.bytes_before for group in groups)
    after = sum(group.bytes_after for group in groups)
    saved_s = sum(group.saved_s for group in groups)
    where = module_pattern(groups[0].module) or "the step"
    times = f", {len(groups)} times" if len(groups) > 1 else ""
    return Insight(
        rule=RULES[chief.action],
        text=f"{names} in {where}{times}: {units.traffic(before)} as "
        f"{units.count(len(groups[0].ops))} kernels, {units.traffic(after)} as one.",
        action=_action(chief, groups[0]),
        saves=_saves(estimate, saved_s, before - after),
        saved_s=saved_s,
        share=_share(estimate, saved_s),
        ops=tuple(index for group in groups for index in group.ops),
    )


def _single_ops(plan: Plan) -> Iterable[Insight]:
    """Ops outside every group that should be done otherwise, alike ones together."""
    grouped = {index for group in plan.groups for index in group.ops}
    ops = {op.index: op for op in plan.estimate.ops}
    alike: dict[tuple[str, ...], list[Verdict]] = defaultdict(list)
    for verdict in plan.verdicts:
        if verdict.index not in grouped and verdict.action != "LEAVE IT" and verdict.at_stake_s > 0:
            op = ops[verdict.index]
            key = (verdict.action, _cover(verdict), verdict.rule, op.name, op.bound)
            alike[(*key, module_pattern(op.module))].append(verdict)
    for verdicts in alike.values():
        yield _single_op(plan.estimate, verdicts, [ops[verdict.index] for verdict in verdicts])


def _single_op(estimate: Estimate, verdicts: list[Verdict], ops: list[OpEstimate]) -> Insight:
    """One finding about ops that are alike."""
    chief, first = verdicts[0], ops[0]
    taken = sum(op.least_s for op in ops)
    saved_s = sum(verdict.at_stake_s for verdict in verdicts)
    where = module_pattern(first.module) or "the step"
    times = f", {len(ops)} times" if len(ops) > 1 else ""
    bound = "without a formula" if first.bound == "unpriced" else f"{first.bound}-bound"
    return Insight(
        rule=RULES[chief.action],
        text=f"{first.name} in {where}{times}: {bound}, "
        f"{units.seconds(taken)} and {units.traffic(sum(op.cost.bytes for op in ops))}.",
        action=_action(chief),
        saves=_saves(estimate, saved_s, None),
        saved_s=saved_s,
        share=_share(estimate, saved_s),
        ops=tuple(verdict.index for verdict in verdicts),
    )


def _memory_bound(estimate: Estimate) -> Iterable[Insight]:
    """Kinds of op that wait for memory during at least a hundredth of the step."""
    by_name: dict[str, list[OpEstimate]] = defaultdict(list)
    for op in estimate.ops:
        if op.bound == "memory":
            by_name[op.name].append(op)
    for name, ops in by_name.items():
        taken = sum(op.least_s for op in ops)
        if _share(estimate, taken) >= _WORTH:
            moved = sum(op.cost.bytes for op in ops)
            yield Insight(
                rule="memory-bound",
                text=f"{_number(ops, name)} at the memory wall: {units.traffic(moved)} in "
                f"{units.seconds(taken)}, {units.percent(_share(estimate, taken))} of the step.",
                action="Let the ops that hand each other these bytes share a kernel.",
                saves=f"at most {_saves(estimate, taken, moved)}",
                saved_s=taken,
                share=_share(estimate, taken),
                ops=tuple(op.index for op in ops),
            )


def _launch_bound(estimate: Estimate) -> Iterable[Insight]:
    """Ops too small for the launch of their kernel."""
    ops = [op for op in estimate.ops if op.bound == "launch"]
    taken = sum(op.least_s for op in ops)
    if ops:
        names = chain([name for name, _ in Counter(op.name for op in ops).most_common()])
        yield Insight(
            rule="launch-bound",
            text=f"{_number(ops, '')} shorter than a kernel's launch ({names}): "
            f"{units.seconds(taken)} in all.",
            action="Fuse them into their neighbours, or launch the step as one CUDA graph.",
            saves=f"at most {_saves(estimate, taken, None)}",
            saved_s=taken,
            share=_share(estimate, taken),
            ops=tuple(op.index for op in ops),
        )


def _unpriced(estimate: Estimate) -> Iterable[Insight]:
    """Ops whose FLOP nobody has counted."""
    by_name: dict[str, list[OpEstimate]] = defaultdict(list)
    for op in estimate.ops:
        if op.bound == "unpriced":
            by_name[op.aten].append(op)
    for aten, ops in by_name.items():
        moved = sum(op.cost.bytes for op in ops)
        yield Insight(
            rule="unpriced",
            text=f"{_number(ops, aten)} without a formula: {units.traffic(moved)}, FLOP not "
            "counted.",
            action="Read the step's totals as without its FLOP, and measure it.",
            saves="nothing; it is a gap in what is known",
            saved_s=0.0,
            share=0.0,
            ops=tuple(op.index for op in ops),
        )


def _chief(group: FusionGroup, ops: dict[int, OpEstimate], verdicts: dict[int, Verdict]) -> Verdict:
    """The verdict that speaks for a group: that on its longest op, a matrix product last."""
    return verdicts[max(group.ops, key=lambda i: (not ops[i].cost.matrix_flops, ops[i].least_s))]


def _action(verdict: Verdict, group: FusionGroup | None = None) -> str:
    """The verdict's word, what covers it, and its reason."""
    cover = _cover(verdict, group)
    return f"{verdict.action}{f' ({cover})' if cover else ''}: {verdict.reason}"


def _cover(verdict: Verdict, group: FusionGroup | None = None) -> str:
    """What does the work, and which of Rooftile's ops does it too."""
    ours = verdict.rooftile_op
    if group is not None:
        ours = ", ".join(group.rooftile_ops)
        ours += " for a part" if ours and not group.rooftile_whole else ""
    if not ours or verdict.cover == ours:
        return verdict.cover
    return f"{verdict.cover}; or {ours}" if verdict.cover else ours


def _saves(estimate: Estimate, saved_s: float, saved_bytes: int | None) -> str:
    """A saving in absolute numbers."""
    share = units.percent(_share(estimate, saved_s))
    words = f"{units.seconds(saved_s)}, {share} of the step"
    return words if saved_bytes is None else f"{words}; {units.traffic(saved_bytes)}"


def _share(estimate: Estimate, part_s: float) -> float:
    """Part of the step's least time; 0 where the step takes none."""
    whole = estimate.totals.least_s
    return part_s / whole if whole else 0.0


def _number(ops: Sequence[OpEstimate], name: str) -> str:
    """How many ops, of which name."""
    return f"{units.count(len(ops))}{f' {name}' if name else ''} {'op' if len(ops) == 1 else 'ops'}"
