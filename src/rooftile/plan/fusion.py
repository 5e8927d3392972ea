"""Which ops may share a kernel, what that saves, and why others may not.

First, ops are taken in order: a pointwise op or a row reduction joins the kernels of its producers,
else one that reads the same tensor, where loops and order allow it. Then attention written out is
found: product, row softmax, product. Then each product takes what is pointwise behind it, or in
front of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rooftile.plan import kinds
from rooftile.plan.anchors import attach_products, join_attention
from rooftile.plan.grouping import (
    Group,
    bar,
    barred,
    join,
    loops_fit,
    run_as_one,
)
from rooftile.plan.kinds import Shape, shape_of
from rooftile.plan.legality import (
    CALL,
    KERNEL,
    PASS,
    REUSED,
    SPACE,
    Objection,
    between,
    joins_nothing,
    overwrites,
    picks_one,
    size_of,
    sram_bytes,
)
from rooftile.plan.links import Links, link
from rooftile.records.estimate import Estimate
from rooftile.records.graph import Op

# So many kernels a new op may join at once: one that concatenates hundreds joins the latest.
_JOINED_AT_ONCE = 8


@dataclass(slots=True)
class Fused:
    """The kernels of a step.

    Attributes:
        estimate: What they were made from.
        links: Who reads whom.
        shapes: The loop of each op that launches a kernel.
        group_of: The group of each such op; ops alone have one each.
        objections: Why a producer and its consumer are in different kernels.
        sram: Bytes that a block can keep.
        reduced: Ops that in their group come from a reduction.
    """

    estimate: Estimate
    links: Links
    shapes: dict[int, Shape]
    group_of: dict[int, Group]
    objections: dict[tuple[int, int], Objection]
    sram: int
    reduced: set[int] = field(default_factory=set)

    def op(self, index: int) -> Op:
        """The op at a position of the graph."""
        return self.estimate.graph.ops[index]

    def groups(self) -> list[Group]:
        """All groups, in the order of their first op."""
        return list(dict.fromkeys(group.root() for group in self.group_of.values()))


def fuse(estimate: Estimate) -> Fused:
    """Group the ops of a step into kernels, in time linear in their number.

    Args:
        estimate: A priced graph.

    Returns:
        The kernels, each legal by the rules of ``plan/legality.py``.
    """
    launched = [row.bound != "free" for row in estimate.ops]
    links = link(estimate.graph, launched)
    fused = Fused(estimate, links, {}, {}, {}, sram_bytes(estimate.device))
    last_reader: dict[int, int] = {}
    for op in estimate.graph.ops:
        if launched[op.index]:
            _place(op, fused, last_reader)
    join_attention(fused)
    attach_products(fused)
    _name_the_rest(fused)
    return fused


def _place(op: Op, fused: Fused, last_reader: dict[int, int]) -> None:
    """Put an op into a group: those it may join, or one of its own."""
    shape = fused.shapes[op.index] = shape_of(op)
    alone = joins_nothing(op, shape, fused.estimate.ops[op.index].bound)
    group = Group([op.index], op.phase, 0, shape.numel, shape.axes)
    group.composed = bool(shape.axes) and not shape.whole
    group.anchored = alone is not None
    producers = dict.fromkeys(p for p, _ in fused.links.producers[op.index])
    earlier = list(dict.fromkeys([*producers, *sorted(fused.links.before[op.index])]))
    behind = list(dict.fromkeys(fused.group_of[p].root() for p in earlier))
    found: list[Group] = []
    if alone is None:
        siblings = [
            last_reader[t.storage]
            for t in op.reads
            if t.storage in last_reader and t.numel == shape.numel
        ]
        if not fused.estimate.ops[op.index].cost.read_bytes:
            siblings = []  # a shape alone is borrowed
        found = _candidates(op, group, fused, list(producers), siblings)
    else:
        for p in producers:
            fused.objections[p, op.index] = alone
    found, level = _settle(group, found, behind)
    group.level = level
    for other in found:
        group = join(other, group)
    fused.group_of[op.index] = group
    if shape.axes or any(
        p in fused.reduced for p in producers if fused.group_of[p].root() is group
    ):
        fused.reduced.add(op.index)
    for other in behind:
        if other is not group and other.root() is not group:
            other.after.add(group)
    for tensor in op.reads:
        last_reader[tensor.storage] = op.index


def _settle(group: Group, found: list[Group], behind: list[Group]) -> tuple[list[Group], int]:
    """As many of the groups as may run as one kernel with a new one, and its level."""
    while found:
        level = run_as_one([*found, group], behind)
        if level is not None:
            return found, level
        found = found[:-1]
    return [], max((other.level + 1 for other in behind), default=0)


def _candidates(
    op: Op, group: Group, fused: Fused, producers: list[int], siblings: list[int]
) -> list[Group]:
    """Groups that an op may join, the latest first; why not the others is noted."""
    refused: dict[Group, Objection] = {}
    asked: dict[Group, bool] = {}
    for p in producers:
        other = fused.group_of[p].root()
        found = _objects(op, p, other, fused)
        if found is not None:
            fused.objections[p, op.index] = found
            refused.setdefault(other, found)
        grows = all(c == op.index for c in _same_pass(fused, p))
        asked[other] = asked.get(other, True) and grows
    for p in [*siblings, *fused.links.before[op.index]]:
        other = fused.group_of[p].root()
        if (found := overwrites(op, fused.op(p))) is not None:
            refused.setdefault(other, found)
        beside = not other.anchored and (other.phase, other.numel) == (op.phase, group.numel)
        # what is pointwise waits for its readers, unless its neighbour is pointwise too
        if p in siblings and beside and (group.axes or not other.axes):
            asked.setdefault(other, False)
    chosen: list[Group] = []
    loop = Group([], op.phase, 0, group.numel, group.axes, group.composed)
    for other in sorted(asked, key=lambda g: (-g.level, g.ops[0])):
        if other in refused:
            if not other.anchored:
                bar(other, group)
            continue
        found = _fits(op, other, chosen, loop, fused, asked[other])
        if found is not None:
            _note(op, other, producers, fused, found)
            continue
        chosen.append(other)
        loop.numel = max(loop.numel, other.numel)
        loop.axes, loop.composed = loop.axes or other.axes, loop.composed or other.composed
    return chosen[:_JOINED_AT_ONCE]


def _fits(
    op: Op, other: Group, chosen: list[Group], loop: Group, fused: Fused, grows: bool
) -> Objection | None:
    """Why a group cannot run in the loop that an op and the groups chosen so far make."""
    if any(barred(other, group) for group in chosen):
        return Objection(SPACE, "two of the kernels it would join may not be one")
    size = max(size_of(t) for t in (*op.reads, *op.writes))
    shape = fused.shapes[op.index]
    found = loops_fit(other, loop, shape, size=size, sram=fused.sram, grows=grows)
    if found is not None and found.reason == SPACE and other.numel < loop.numel and not grows:
        return Objection(REUSED, "its result is used elsewhere too, and is repeated here")
    return found


def _objects(op: Op, p: int, other: Group, fused: Fused) -> Objection | None:
    """Why an op may not share a kernel with a producer."""
    producer = fused.op(p)
    if producer.phase != op.phase:
        return Objection(PASS, f"{producer.name} runs in the {producer.phase} pass")
    if other.anchored:
        row = fused.estimate.ops[p]
        alone = joins_nothing(producer, fused.shapes[p], row.bound)
        return alone or Objection(CALL, f"{producer.name} belongs to a library's kernel")
    if p in fused.reduced and op.name in kinds.MOVES and not picks_one(op, fused.shapes[p]):
        return Objection(SPACE, f"{op.name} takes {producer.name}'s elements from other places")
    found = between(producer, fused.shapes[p], op, fused.shapes[op.index])
    return found or overwrites(op, producer)


def _same_pass(fused: Fused, p: int) -> list[int]:
    """All that read an op's results in the same pass."""
    producer = fused.op(p)
    return [c for c in fused.links.readers(producer) if fused.op(c).phase == producer.phase]


def _note(op: Op, other: Group, producers: list[int], fused: Fused, found: Objection) -> None:
    for p in producers:
        if fused.group_of[p].root() is other:
            fused.objections.setdefault((p, op.index), found)


def _name_the_rest(fused: Fused) -> None:
    """Every edge between two kernels gets its reason; edges within one have none."""
    edges = {(p, index) for index, written in fused.links.producers.items() for p, _ in written}
    for p, c in edges:
        if fused.group_of[p].root() is fused.group_of[c].root():
            fused.objections.pop((p, c), None)
        elif (p, c) not in fused.objections:
            fused.objections[p, c] = Objection(
                KERNEL, "a kernel that needs the one's result must run before the other"
            )
