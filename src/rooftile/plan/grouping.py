"""Groups of ops that grow op by op, and never into a circle.

Every group has a level, and whatever must run after a group has a higher one. A group may take an
op, or another group, if the level it then needs is still below all that run after it. So no path
leaves a group and comes back, and the whole takes time linear in the number of ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rooftile.plan.kinds import Axes, Shape
from rooftile.plan.legality import SPACE, Objection, row_fits, shared_axes
from rooftile.records.graph import Phase

# A tensor that more than this many groups read (a rotary table) is taken to be read by the next
# group already: looking at all of them each time would not be linear.
_LOOKED_AT = 64


@dataclass(slots=True, eq=False)
class Group:
    """Ops that share a kernel so far.

    Attributes:
        ops: Their indices.
        phase: The pass they run in.
        level: Below the levels of all that run after it.
        numel: Iterations of its loop.
        axes: What its reductions reduce; empty where it has none.
        composed: It has a reduction whose op does not give back the row: whoever uses the row again
            must keep it.
        anchored: It holds a product or an attention.
        after: Groups that must run after it, as they were when they were noted.
        barred: Groups that it may not be joined with, likewise.
        into: The group it has become part of.
        kind: Set where it is more than its loop says.
    """

    ops: list[int]
    phase: Phase
    level: int
    numel: int
    axes: Axes = ()
    composed: bool = False
    anchored: bool = False
    after: set[Group] = field(default_factory=set)
    barred: set[Group] = field(default_factory=set)
    into: Group | None = None
    kind: str = ""

    def root(self) -> Group:
        """The group that it is part of now."""
        group = self
        while group.into is not None:
            group = group.into
        if self.into is not None and self.into is not group:
            self.into = group
        return group

    @property
    def rows(self) -> int:
        """Results of one of its reductions."""
        reduced = 1
        for _, length in self.axes:
            reduced *= length
        return self.numel // max(reduced, 1)


def run_as_one(groups: Sequence[Group], behind: Iterable[Group]) -> int | None:
    """The level of one kernel of several groups, None where it would have to wait for itself.

    Args:
        groups: To be joined.
        behind: Groups that must run before one of them.
    """
    together = set(groups)
    levels = [group.level for group in groups]
    levels += [group.level + 1 for group in behind if group not in together]
    level = max(levels)
    return level if all(_clear(group, level, together) for group in groups) else None


def join(a: Group, b: Group) -> Group:
    """One group of two that may run as one; ``b`` becomes part of ``a``."""
    a.ops += b.ops
    a.level = max(a.level, b.level)
    a.numel = max(a.numel, b.numel)
    a.axes = a.axes or b.axes
    a.composed = a.composed or b.composed
    a.anchored = a.anchored or b.anchored
    a.kind = a.kind or b.kind
    a.after |= b.after
    a.barred |= b.barred
    b.into = a
    return a


def bar(a: Group, b: Group) -> None:
    """Keep two groups apart for good."""
    a.barred.add(b)
    b.barred.add(a)


def barred(a: Group, b: Group) -> bool:
    """Whether two groups may not be joined."""
    few, other = (a, b) if len(a.barred) <= len(b.barred) else (b, a)
    return any(group.root() is other for group in few.barred)


def loops_fit(
    a: Group, b: Group, shape: Shape, *, size: int, sram: int, grows: bool
) -> Objection | None:
    """Why a group ``a`` cannot run in one loop with ``b``, whose latest op has ``shape``.

    Args:
        a: A group that ``b`` reads, or that reads what it reads.
        b: The group of the latest op.
        shape: The latest op's loop.
        size: Bytes of an element of a row.
        sram: Bytes that a block can keep.
        grows: Nobody else needs ``a``'s result, so it may be computed where it is repeated.
    """
    if a.numel != b.numel:
        small, large = (a, b) if a.numel < b.numel else (b, a)
        of_rows = bool(large.axes) and not small.axes and small.numel == large.rows
        if not of_rows and not (small is a and grows and not a.axes):
            if b.axes and a.axes:
                return shared_axes(a.axes, b.axes, a.numel) or _sizes(a, b)
            return _sizes(a, b)
    elif found := shared_axes(a.axes, b.axes, a.numel):
        return found
    again = a.composed and not shape.axes and shape.numel == max(a.numel, b.numel)
    return row_fits(a.axes, size, sram) if again else None


def _sizes(a: Group, b: Group) -> Objection:
    return Objection(SPACE, f"loops of {a.numel:,} and {b.numel:,} elements")


def _clear(group: Group, level: int, apart_from: set[Group]) -> bool:
    """Whether all that run after a group, but for some, are above a level."""
    if group.level == level:
        return True
    if len(group.after) > _LOOKED_AT:
        return False
    later = {after.root() for after in group.after}
    group.after = later - {group}
    return all(after.level > level for after in later if after not in apart_from)
