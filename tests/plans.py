"""A plan made by hand on the estimate of :mod:`estimates`, and a step of many ops."""

from __future__ import annotations

from dataclasses import replace

import estimates

from rooftile.records.cost import Cost
from rooftile.records.estimate import Estimate, OpEstimate, Times, Totals
from rooftile.records.plan import FusionGroup, Plan, Refusal, Verdict

US = 1e-6


def verdict(index: int, action: str, stake_us: float = 0.0, group: int | None = None) -> Verdict:
    """A verdict whose words name the op."""
    return Verdict(
        index=index,
        action=action,  # type: ignore[arg-type]
        rule=f"rule-of-{action.lower().replace(' ', '-')}",
        reason=f"reason of op {index}",
        at_stake_s=stake_us * US,
        share=0.1,
        cover={"USE LIBRARY": "cuBLAS", "AUTO-FUSE": "torch.compile"}.get(action, ""),
        why_not={"HAND-WRITE": f"not by hand for op {index}"},
        group=group,
    )


def plan() -> Plan:
    """Ops 1 and 2 share a kernel: 300 MB become 100 MB, 300 us become 120 us."""
    group = FusionGroup(
        0, (1, 2), "pointwise", 3 * 10**8, 10**8, 300 * US, 120 * US, "model", "m.py:3", True
    )
    verdicts = (
        verdict(0, "USE LIBRARY", 40.0),
        verdict(1, "AUTO-FUSE", 100.0, 0),
        verdict(2, "AUTO-FUSE", 80.0, 0),
        verdict(3, "LEAVE IT"),
    )
    refusals = (Refusal(0, 1, "a library call in between", "matmul is cuBLAS's"),)
    return Plan(estimates.estimate(), (group,), refusals, verdicts, 0.01)


def many(count: int, name: str = "mul", module: str = "model.layers.{layer}.mlp") -> Plan:
    """A step of ``count`` ops in layers of 100, every tenth of 20,000 of another size, and a plan.

    Op ``i`` takes ``i % 2000 + 3`` us. ``name`` and ``module`` are every op's; ``{layer}`` is
    its layer.
    """
    ops = []
    for i in range(count):
        size = i % 2000 + 3
        moved = 3_350_000 * size
        ops.append(
            OpEstimate(
                index=i,
                name=name,
                aten="aten.mul.Tensor",
                phase="forward" if i < count // 3 else "backward",
                module=module.format(layer=i // 100),
                line=f"pkg/model.py:{i % 50 + 1}",
                shapes=f"{size}x4096, {size}x4096 -> {size}x4096 bfloat16",
                cost=Cost(0, moved // 6, moved // 3 * 2, moved // 3, formula="pointwise.mul"),
                bound="memory",
                times=Times(2 * US, 0.0, moved // 6 / 66.9e12, size * US, size * US),
                least_s=size * US,
                share=0.0,
            )
        )
    whole = sum(op.least_s for op in ops)
    moved = sum(op.cost.bytes for op in ops)
    totals = Totals(
        count, 0, 0, 0, sum(op.cost.flops for op in ops), moved, 0, whole, {"memory": whole}
    )
    ready = tuple(replace(op, share=op.least_s / whole) for op in ops)
    step = Estimate(estimates.graph(), estimates.GPU, ready, totals)
    groups = tuple(
        FusionGroup(
            g, (2 * g, 2 * g + 1), "pointwise", 10**7, 5 * 10**6, 6 * US, 3 * US,
            ops[2 * g].module, ops[2 * g].line, True,
        )
        for g in range(count // 2)
    )  # fmt: skip
    verdicts = tuple(
        replace(
            verdict(i, "AUTO-FUSE", 1.5, i // 2),
            reason=f"bound by bytes, {i % 500} us at stake",
            why_not={"HAND-WRITE": "the compiler covers it"},
        )
        for i in range(count)
    )
    return Plan(step, groups, (), verdicts, 0.01)
