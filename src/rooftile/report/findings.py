"""The few findings of a plan that are worth acting on: insight, action, what it saves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from rooftile import units
from rooftile.records.estimate import OpEstimate
from rooftile.records.plan import Action, FusionGroup, Plan, Verdict
from rooftile.report.columns import Line, pairs

SHOWN = 5
_NAMED = 6  # ops of a kernel that are named


@dataclass(frozen=True, slots=True)
class Finding:
    """Kernels alike, and what to do about them.

    Attributes:
        insight: What is the case, with numbers.
        action: What to do: the verdict and what covers it.
        saves: Bytes, time and share of the step.
        saved_s: The time [s].
        groups: The groups it is about.
    """

    insight: str
    action: str
    saves: str
    saved_s: float
    groups: tuple[FusionGroup, ...]


def findings(plan: Plan, top: int = SHOWN) -> list[Finding]:
    """The fusion groups worth acting on, those alike together, the greatest saving first.

    Args:
        plan: The plan of a step.
        top: So many at most.
    """
    rows = {row.index: row for row in plan.estimate.ops}
    alike: dict[Hashable, list[FusionGroup]] = defaultdict(list)
    for group in plan.groups:
        members = [rows[i] for i in group.ops]
        alike[group.kind, tuple((m.name, m.phase, m.shapes) for m in members)].append(group)
    verdicts = {verdict.index: verdict for verdict in plan.verdicts}
    found = [_finding(groups, rows, verdicts, plan) for groups in alike.values()]
    worth = [item for item in found if item is not None]
    return sorted(worth, key=lambda item: -item.saved_s)[:top]


def verdict_counts(plan: Plan) -> dict[Action, int]:
    """Ops by what to do about them."""
    counts: dict[Action, int] = {
        "LEAVE IT": 0, "USE LIBRARY": 0, "AUTO-FUSE": 0, "HAND-WRITE": 0
    }  # fmt: skip
    for verdict in plan.verdicts:
        counts[verdict.action] += 1
    return counts


def finding_lines(plan: Plan, top: int = SHOWN) -> list[Line]:
    """Verdicts, savings and findings as text."""
    totals = plan.estimate.totals
    counts = verdict_counts(plan)
    saved_bytes = sum(group.saved_bytes for group in plan.groups)
    saved_s = sum(group.saved_s for group in plan.groups)
    by_compiler = sum(group.compiler_saved_bytes for group in plan.groups)
    shown = ", ".join(f"{units.count(n)} {action}" for action, n in counts.items())
    lines = [
        ("verdicts", shown),
        (
            "fusion",
            f"{units.count(len(plan.groups))} groups save {units.traffic(saved_bytes)} of "
            f"{units.traffic(totals.bytes)} and {units.seconds(saved_s)} "
            f"({units.percent(saved_s, totals.least_s)}) at least times; "
            f"torch.compile's rules cover {units.traffic(by_compiler)} of it",
        ),
    ]
    for number, finding in enumerate(findings(plan, top), start=1):
        lines += [
            (f"{number}. Insight", finding.insight),
            ("   Action", finding.action),
            ("   Saves", finding.saves),
        ]
    return pairs(lines)


def _finding(
    groups: list[FusionGroup],
    rows: dict[int, OpEstimate],
    verdicts: dict[int, Verdict],
    plan: Plan,
) -> Finding | None:
    """What groups alike have in common; None where their ops are left as they are."""
    first = groups[0]
    deciding = _deciding(first, rows, verdicts)
    if deciding.action == "LEAVE IT":
        return None
    saved_s = sum(group.saved_s for group in groups)
    saved_bytes = sum(group.saved_bytes for group in groups)
    times = f"{units.count(len(groups))} x " if len(groups) > 1 else ""
    before = units.traffic(first.bytes_before)
    each = " each" if len(groups) > 1 else ""
    return Finding(
        insight=(
            f"{times}{_names(first, rows)}{_place(groups)}: {len(first.ops)} kernels move {before}"
            f"{each}, one {first.kind} kernel moves {units.traffic(first.bytes_after)}"
        ),
        action=_action(first, deciding),
        saves=(
            f"{units.traffic(saved_bytes)}, {units.seconds(saved_s)}, "
            f"{units.percent(saved_s, plan.estimate.totals.least_s)} of the step"
        ),
        saved_s=saved_s,
        groups=tuple(groups),
    )


def _deciding(
    group: FusionGroup, rows: dict[int, OpEstimate], verdicts: dict[int, Verdict]
) -> Verdict:
    """The verdict on the op beside the products that takes the longest: it is the group's."""
    beside = [i for i in group.ops if not rows[i].cost.matrix_flops] or list(group.ops)
    return verdicts[max(beside, key=lambda i: rows[i].least_s)]


def _action(group: FusionGroup, verdict: Verdict) -> str:
    text = f"{verdict.action} ({verdict.cover})" if verdict.cover else verdict.action
    if verdict.action == "AUTO-FUSE" and not group.compiler:
        left = group.saved_bytes - group.compiler_saved_bytes
        text += f"; the {units.traffic(left)} that it leaves takes a kernel by hand"
    if verdict.action == "HAND-WRITE":
        text += f": {verdict.reason}"
    return text


def _names(group: FusionGroup, rows: dict[int, OpEstimate]) -> str:
    names = [rows[i].name for i in group.ops]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _place(groups: list[FusionGroup]) -> str:
    """Where it is: the line, else the module."""
    first = groups[0]
    return f" at {first.line}" if first.line else f" in {first.module}" if first.module else ""
