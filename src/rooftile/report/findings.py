"""A plan in words: verdicts, what fusion saves, and the findings that save the most."""

from __future__ import annotations

from rooftile import units
from rooftile.records.plan import Action, Plan
from rooftile.report.columns import Line, pairs
from rooftile.report.insights import insights

SHOWN = 5


def verdict_counts(plan: Plan) -> dict[Action, int]:
    """Ops by what to do about them."""
    actions: tuple[Action, ...] = ("LEAVE IT", "USE LIBRARY", "AUTO-FUSE", "HAND-WRITE")
    counts = dict.fromkeys(actions, 0)
    for verdict in plan.verdicts:
        counts[verdict.action] += 1
    return counts


def finding_lines(plan: Plan, top: int = SHOWN) -> list[Line]:
    """Verdicts, savings and findings, each as Insight, Action and Saves.

    Args:
        plan: What to do about a step.
        top: So many findings at most.
    """
    totals = plan.estimate.totals
    saved_bytes = sum(group.saved_bytes for group in plan.groups)
    saved_s = sum(group.saved_s for group in plan.groups)
    by_compiler = sum(group.compiler_saved_bytes for group in plan.groups)
    shown = ", ".join(f"{units.count(n)} {action}" for action, n in verdict_counts(plan).items())
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
    for number, finding in enumerate(insights(plan, top), start=1):
        lines += [
            (f"{number}. Insight", finding.text),
            ("   Action", finding.action),
            ("   Saves", finding.saves),
        ]
    return pairs(lines)
