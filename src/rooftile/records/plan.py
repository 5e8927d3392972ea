"""What to do about each op: which ones share a kernel, what that saves, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rooftile.records.estimate import Estimate

SCHEMA_VERSION = 1

Action = Literal["LEAVE IT", "USE LIBRARY", "AUTO-FUSE", "HAND-WRITE"]


@dataclass(frozen=True, slots=True)
class FusionGroup:
    """Ops that may share one kernel.

    Attributes:
        id: Number of the group in the plan.
        ops: Indices of its ops, in the order they run.
        kind: What shape of kernel it is: ``"pointwise"``, ``"row"`` (around a reduction over rows),
            ``"matmul epilogue"``, ``"matmul prologue"`` or ``"attention"``.
        bytes_before: Traffic of the ops one by one.
        bytes_after: Traffic of the one kernel: regions from outside once, what escapes once.
        before_s: Least time of the ops one by one [s].
        after_s: Least time of the one kernel [s].
        module: The deepest module path that all its ops share.
        line: Line of its first op.
        compiler: Whether torch.compile keeps all its intermediates out of memory, by the rules in
            ``plan/``; it may take more than one kernel for that.
        compiler_saved_bytes: Traffic that torch.compile avoids: all of it, or that of the part
            which it makes one kernel of.
        compiler_saved_s: Least time that it avoids [s].
        cover: What runs the group as it is: a library's call or a rule of the compiler; "" if
            nothing does.
        rooftile_ops: Ops of ``rooftile.ops`` that do its work or parts of it, by their full names.
        rooftile_whole: One of them does all of it.
    """

    id: int
    ops: tuple[int, ...]
    kind: str
    bytes_before: int
    bytes_after: int
    before_s: float
    after_s: float
    module: str
    line: str
    compiler: bool
    compiler_saved_bytes: int = 0
    compiler_saved_s: float = 0.0
    cover: str = ""
    rooftile_ops: tuple[str, ...] = ()
    rooftile_whole: bool = False

    @property
    def saved_bytes(self) -> int:
        """Traffic that the one kernel avoids."""
        return self.bytes_before - self.bytes_after

    @property
    def saved_s(self) -> float:
        """Least time that the one kernel avoids [s]."""
        return self.before_s - self.after_s


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a producer and its consumer may not share a kernel.

    Attributes:
        producer: Index of the op that writes.
        consumer: Index of the op that reads.
        reason: The named reason.
        detail: What exactly stands in the way, in words.
    """

    producer: int
    consumer: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about one op, and why.

    Attributes:
        index: The op's position in the graph.
        action: What to do.
        rule: Name of the row of the decision table that decided.
        reason: The rule's sentence, with this op's numbers.
        at_stake_s: Time that acting on it can save at most [s].
        share: Part of the step's least time that it and all ops like it (same op, shapes, place in
            the module tree up to numbers) take, 0 to 1: what decides whether it is hot.
        cover: What does the work: a library call, a compiler rule or a Rooftile op; "" for none.
        why_not: Each other action, and why it is not the one.
        group: The op's fusion group, None where it has none.
        rooftile_op: The op of ``rooftile.ops`` that does its work, alone or with its neighbours, by
            its full name, whatever the action; "" for none.
    """

    index: int
    action: Action
    rule: str
    reason: str
    at_stake_s: float
    share: float
    cover: str
    why_not: dict[str, str]
    group: int | None
    rooftile_op: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about every op of a step.

    Attributes:
        estimate: What the plan decides on.
        groups: Fusion groups, the greatest saving first.
        refusals: Pairs that may not be fused.
        verdicts: One an op that launches a kernel, in the order of the graph.
        hot_share: Share of the step from which an op counts as hot.
        kind: Tells this record's JSON from others.
    """

    estimate: Estimate
    groups: tuple[FusionGroup, ...]
    refusals: tuple[Refusal, ...]
    verdicts: tuple[Verdict, ...]
    hot_share: float
    kind: Literal["rooftile.plan"] = "rooftile.plan"
    schema_version: int = SCHEMA_VERSION
