"""The rules of what torch.compile fuses, beside the kernels that it makes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from rooftile.plan import kinds
from rooftile.records.agreement import Agreement, Disagreement
from rooftile.records.graph import Phase
from rooftile.records.plan import FusionGroup, Plan


def agreement(
    plan: Plan,
    kernels: Mapping[Phase, Sequence[frozenset[int]]],
    versions: Mapping[str, str],
    device: str,
) -> Agreement:
    """Compare a plan's groups with the compiler's kernels.

    An op that the compiler put into no kernel was folded into another; what it left of the group
    must be within one kernel.

    Args:
        plan: The plan.
        kernels: Pass to the ops of each kernel.
        versions: Of the compiler.
        device: What it decided for.
    """
    graph = plan.estimate.graph
    found: list[Disagreement] = []
    asked = 0
    for group in plan.groups:
        if not group.compiler or graph.ops[group.ops[0]].phase not in kernels:
            continue
        asked += 1
        split = _split(group, kernels[graph.ops[group.ops[0]].phase])
        if split > 1:
            found.append(_noted(plan, group.id, group.ops, split, f"{split} kernels, not one"))
    apart = len(found)
    for made in kernels.values():
        found += _joined(plan, made)
    return Agreement(
        target=graph.target,
        passes=tuple(kernels),
        groups=asked,
        agreed=asked - apart,
        disagreements=_alike(found),
        versions=dict(versions),
        device=device,
    )


def _joined(plan: Plan, kernels: Sequence[frozenset[int]]) -> list[Disagreement]:
    """Kernels that do all of several groups, each of which no other kernel does as well.

    An op that the plan leaves alone is a group of its own, numbered below 0. A group that is in
    several kernels whole is computed again in each, where it is cheap.
    """
    graph = plan.estimate.graph
    holders: dict[int, list[int]] = defaultdict(list)
    touched: dict[int, set[int]] = defaultdict(set)
    of_op = {verdict.index: -1 - verdict.index for verdict in plan.verdicts}
    of_op.update({i: group.id for group in plan.groups for i in group.ops})
    for kernel in kernels:
        for i in kernel:
            if i in of_op:
                touched[of_op[i]].add(i)
    for number, kernel in enumerate(kernels):
        for group in sorted({of_op[i] for i in kernel if i in of_op}):
            if touched[group] <= kernel:
                holders[group].append(number)
    alone: dict[int, list[int]] = defaultdict(list)
    for group, numbers in holders.items():
        if len(numbers) == 1:
            alone[numbers[0]].append(group)
    found = []
    for number, groups in sorted(alone.items()):
        members = tuple(sorted(i for i in kernels[number] if i in of_op))
        library = any(graph.ops[i].name in kinds.LIBRARY for i in kernels[number])
        if len(groups) > 1 and not library:
            single = sum(group < 0 for group in groups)
            parts = [f"{len(groups) - single} groups"] if len(groups) > single else []
            parts += [f"{single} single ops"] if single else []
            words = f"one kernel of {' and '.join(parts)} that the plan keeps apart"
            first = max(groups) if max(groups) >= 0 else None
            found.append(_noted(plan, first, members, 1, words))
    return found


def _split(group: FusionGroup, kernels: Sequence[frozenset[int]]) -> int:
    """Kernels that the compiler makes of a group: 1 where one holds all that is left of it.

    Another kernel that shares ops with it and has some of its own computes them again for itself;
    one that has none of its own is a part of the group.
    """
    members = set(group.ops)
    touching = [kernel for kernel in kernels if kernel & members]
    left = frozenset().union(*touching) & members
    whole = [kernel for kernel in touching if kernel >= left]
    parts = [kernel for kernel in touching if kernel <= members and kernel not in whole[:1]]
    if whole and not parts:
        return 1
    return max(len(touching), 1)


def _noted(
    plan: Plan, group: int | None, ops: tuple[int, ...], kernels: int, words: str
) -> Disagreement:
    known = [plan.estimate.graph.ops[i] for i in ops]
    line = next((op.line for op in known if op.line), "")
    return Disagreement(group, ops, tuple(op.name for op in known), line, kernels, 1, words)


def _alike(found: Sequence[Disagreement]) -> tuple[Disagreement, ...]:
    """Those of one kind together, the first stands for all."""
    alike: dict[Hashable, list[Disagreement]] = defaultdict(list)
    for item in found:
        alike[item.names, item.line, item.detail].append(item)
    return tuple(replace(items[0], times=len(items)) for items in alike.values())
