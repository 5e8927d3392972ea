"""One step's plans on several GPUs beside each other: where a verdict flips."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from rooftile.records.estimate import OpEstimate
from rooftile.records.plan import Plan, Verdict
from rooftile.records.whatif import Kind, OnGpu, Place, WhatIf

_NUMBER = re.compile(r"\d+")


def what_if(plans: Sequence[Plan]) -> WhatIf:
    """Compare plans of one graph.

    Args:
        plans: Of the same graph, each on its own GPU, at least one.
    """
    first = plans[0].estimate
    verdicts = [{v.index: v for v in plan.verdicts} for plan in plans]
    rows: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row in first.ops:
        if row.bound != "free":
            module = _NUMBER.sub("#", row.module)
            rows[row.name, row.phase, row.shapes, module].append(row.index)
    kinds = [_kind(indices, plans, verdicts) for indices in rows.values()]
    kinds.sort(key=lambda kind: (not kind.flips, -max(place.share for place in kind.on)))
    graph = first.graph
    return WhatIf(graph.target, graph.mode, tuple(_on(plan) for plan in plans), tuple(kinds))


def _on(plan: Plan) -> OnGpu:
    counts: dict[str, int] = defaultdict(int)
    for verdict in plan.verdicts:
        counts[verdict.action] += 1
    device, totals = plan.estimate.device, plan.estimate.totals
    return OnGpu(
        gpu=device.id,
        name=device.name,
        least_s=totals.least_s,
        bound_s=totals.bound_s,
        saved_bytes=sum(group.saved_bytes for group in plan.groups),
        saved_s=sum(group.saved_s for group in plan.groups),
        verdicts=dict(counts),
    )


def _kind(
    indices: list[int], plans: Sequence[Plan], verdicts: Sequence[dict[int, Verdict]]
) -> Kind:
    on = tuple(
        _place([plan.estimate.ops[i] for i in indices], known[indices[0]])
        for plan, known in zip(plans, verdicts, strict=True)
    )
    row = plans[0].estimate.ops[indices[0]]
    return Kind(
        name=row.name,
        shapes=row.shapes,
        module=_NUMBER.sub("#", row.module),
        line=row.line,
        ops=len(indices),
        on=on,
        flips=len({place.action for place in on}) > 1,
    )


def _place(rows: list[OpEstimate], verdict: Verdict) -> Place:
    return Place(
        bound=rows[0].bound,
        action=verdict.action,
        rule=verdict.rule,
        least_s=sum(row.least_s for row in rows),
        share=sum(row.share for row in rows),
    )
