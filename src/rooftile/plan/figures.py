"""The deterministic figures of a plan by name, and two estimates beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from rooftile.records.difference import Change, Difference
from rooftile.records.estimate import Estimate, OpEstimate
from rooftile.records.plan import Plan


def figures(plan: Plan) -> dict[str, float]:
    """What a gate may name: counts and bytes, the same on every machine.

    Returns:
        Name to value: ops, unpriced ones and the shares of ops and bytes they are, bytes, FLOP,
        groups and what they save, and ops by verdict.
    """
    totals = plan.estimate.totals
    counts = {"leave_it": 0, "use_library": 0, "auto_fuse": 0, "hand_write": 0}
    for verdict in plan.verdicts:
        counts[verdict.action.lower().replace(" ", "_").replace("-", "_")] += 1
    return {
        "ops": totals.ops,
        "bytes": totals.bytes,
        "flops": totals.matrix_flops + totals.vector_flops,
        "matrix_flops": totals.matrix_flops,
        "dense_matrix_flops": totals.dense_matrix_flops,
        "vector_flops": totals.vector_flops,
        "unpriced_ops": totals.unpriced_ops,
        "unpriced_share": totals.unpriced_ops / totals.ops if totals.ops else 0.0,
        "unpriced_bytes": totals.unpriced_bytes,
        "unpriced_bytes_share": totals.unpriced_bytes / totals.bytes if totals.bytes else 0.0,
        "groups": len(plan.groups),
        "saved_bytes": sum(group.saved_bytes for group in plan.groups),
        "compiler_saved_bytes": sum(group.compiler_saved_bytes for group in plan.groups),
        **counts,
    }


def compare(before: Estimate, after: Estimate) -> Difference:
    """What changed from one estimate to another, by op and by line.

    Args:
        before: The first one.
        after: The other, of whatever device: bytes and FLOP do not depend on it.
    """
    return Difference(
        before=before.graph.target,
        after=after.graph.target,
        total=_changes(before, after, lambda row: "step").get("step") or Change("step", *[0] * 6),
        by_op=_sorted(_changes(before, after, lambda row: row.name)),
        by_line=_sorted(_changes(before, after, lambda row: row.line or "(unknown)")),
    )


def _changes(
    before: Estimate, after: Estimate, key: Callable[[OpEstimate], str]
) -> dict[str, Change]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * 6)
    for side, estimate in enumerate((before, after)):
        for row in estimate.ops:
            if row.bound == "free":
                continue
            entry = sums[key(row)]
            entry[side] += 1
            entry[2 + side] += row.cost.bytes
            entry[4 + side] += 0 if row.bound == "unpriced" else row.cost.flops
    return {name: Change(name, *entry) for name, entry in sums.items()}


def _sorted(changes: dict[str, Change]) -> tuple[Change, ...]:
    """Only what changed, the largest change of traffic first."""
    moved = [
        change
        for change in changes.values()
        if change.bytes
        or change.before_ops != change.after_ops
        or change.before_flops != change.after_flops
    ]
    return tuple(sorted(moved, key=lambda change: (-abs(change.bytes), change.name)))
