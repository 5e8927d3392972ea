"""The decision table: what to do about a kernel, for every combination of what is known of it.

Rows are tried from the top; the first that fits decides. ``None`` in a column fits both answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import get_args

from rooftile.records.estimate import Bound
from rooftile.records.plan import Action


@dataclass(frozen=True, slots=True)
class Case:
    """What is known of a kernel.

    Attributes:
        bound: Which wall it hits.
        library: A library's call does all of it.
        compiler: torch.compile fuses it with what is beside it.
        hot: It takes at least the threshold's share of the step.
        expressible: With what is beside it, it can be written as tiles that fit SRAM, and then
            moves fewer bytes, starts fewer kernels or does its FLOP where no call does.
    """

    bound: Bound
    library: bool
    compiler: bool
    hot: bool
    expressible: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes:
        name: What the row is called.
        action: What to do.
        reason: Why, in one sentence.
        bounds: Walls it is for; empty for all.
        library: As the case's, or None for both.
        compiler: Likewise.
        hot: Likewise.
        expressible: Likewise.
    """

    name: str
    action: Action
    reason: str
    bounds: tuple[Bound, ...] = ()
    library: bool | None = None
    compiler: bool | None = None
    hot: bool | None = None
    expressible: bool | None = None

    def fits(self, case: Case) -> bool:
        """Whether the row is for this case."""
        return (not self.bounds or case.bound in self.bounds) and all(
            wanted is None or wanted == known
            for wanted, known in (
                (self.library, case.library),
                (self.compiler, case.compiler),
                (self.hot, case.hot),
                (self.expressible, case.expressible),
            )
        )


RULES: tuple[Rule, ...] = (
    Rule("free", "LEAVE IT", "It launches no kernel and moves nothing.", ("free",)),
    Rule(
        "cold, in a library",
        "LEAVE IT",
        "It is off the hot path, and a library's call does it already.",
        hot=False,
        library=True,
    ),
    Rule(
        "cold, fused for nothing",
        "LEAVE IT",
        "It is off the hot path; where torch.compile is on, it is fused for nothing.",
        hot=False,
        compiler=True,
    ),
    Rule("cold", "LEAVE IT", "It is off the hot path: no kernel pays for its upkeep.", hot=False),
    Rule(
        "hot, unpriced, in a library",
        "USE LIBRARY",
        "Its FLOP are not known, but a library's call does it.",
        ("unpriced",),
        library=True,
    ),
    Rule(
        "hot, unpriced, fused",
        "AUTO-FUSE",
        "Its FLOP are not known, but torch.compile fuses it.",
        ("unpriced",),
        compiler=True,
    ),
    Rule(
        "hot, unpriced",
        "LEAVE IT",
        "It has no formula, so nothing is promised: measure it first.",
        ("unpriced",),
    ),
    Rule(
        "compute, in a library",
        "USE LIBRARY",
        "It is bound by FLOP, and a vendor's kernel is tuned for them.",
        ("compute",),
        library=True,
    ),
    Rule(
        "compute, fused",
        "AUTO-FUSE",
        "It is bound by FLOP that no library has; torch.compile generates the kernel.",
        ("compute",),
        compiler=True,
    ),
    Rule(
        "compute, covered by nothing",
        "HAND-WRITE",
        "It is bound by FLOP, and neither a library nor the compiler does them: a kernel of tiles "
        "is the only way to the peak.",
        ("compute",),
        expressible=True,
    ),
    Rule(
        "compute, no tiles",
        "LEAVE IT",
        "It is bound by FLOP, covered by nothing, and no tile of it fits: change the algorithm, "
        "not the kernel.",
        ("compute",),
    ),
    Rule(
        "memory, fused",
        "AUTO-FUSE",
        "It is bound by bytes, and torch.compile keeps its intermediates out of memory.",
        ("memory",),
        compiler=True,
    ),
    Rule(
        "memory, in a library",
        "USE LIBRARY",
        "It is bound by bytes, and a library's one call moves each of them once.",
        ("memory",),
        library=True,
    ),
    Rule(
        "memory, covered by nothing",
        "HAND-WRITE",
        "It is bound by bytes that one kernel need not move, and neither a library nor the "
        "compiler writes that kernel.",
        ("memory",),
        expressible=True,
    ),
    Rule(
        "memory, nothing to save",
        "LEAVE IT",
        "It is bound by bytes, each of them moves once, and no group that the plan forms would "
        "spare any.",
        ("memory",),
    ),
    Rule(
        "launch, fused",
        "AUTO-FUSE",
        "Starting it takes longer than running it, and torch.compile makes fewer kernels.",
        ("launch",),
        compiler=True,
    ),
    Rule(
        "launch, in a library",
        "USE LIBRARY",
        "Starting it takes longer than running it: keep the library's call, batch it or capture "
        "it in a CUDA graph.",
        ("launch",),
        library=True,
    ),
    Rule(
        "launch, covered by nothing",
        "HAND-WRITE",
        "Starting it takes longer than running it, and one kernel can do several of its kind.",
        ("launch",),
        expressible=True,
    ),
    Rule(
        "launch, nothing to save",
        "LEAVE IT",
        "Starting it takes longer than running it, and it has nothing to share a kernel with: "
        "capture the step in a CUDA graph.",
        ("launch",),
    ),
)


@cache
def triage(case: Case) -> Rule:
    """The row of the table that decides a case.

    Args:
        case: What is known of a kernel.

    Returns:
        The first row that fits; there is one for every case.
    """
    for rule in RULES:
        if rule.fits(case):
            return rule
    raise AssertionError(f"no rule for {case}")  # a test walks through every case


def cases() -> Iterator[Case]:
    """Every case there is."""
    flags = (True, False)
    for bound, *known in product(get_args(Bound), flags, flags, flags, flags):
        yield Case(bound, *known)


@cache
def why_not(case: Case, ours: str = "") -> dict[str, str]:
    """Each action that was not chosen, and why; every call gives the same mapping.

    Args:
        case: What is known of a kernel.
        ours: The Rooftile op that is the kernel one would write, "" where there is none.
    """
    chosen = triage(case).action
    reasons = {
        "LEAVE IT": "it is on the hot path, and there is something to gain",
        "USE LIBRARY": _no_library(case),
        "AUTO-FUSE": _no_fusion(case),
        "HAND-WRITE": _no_kernel(case) + (f"; {ours} is written" if ours else ""),
    }
    return {action: reason for action, reason in reasons.items() if action != chosen}


def _no_library(case: Case) -> str:
    if case.bound == "free":
        return "nothing runs"
    if not case.library:
        return "no library's call does it"
    return "it runs it already" if not case.hot else "its call ends at the op's own bytes"


def _no_fusion(case: Case) -> str:
    if case.bound == "free":
        return "nothing runs"
    if not case.compiler:
        return "torch.compile does not fuse it with anything"
    if not case.hot:
        return "it is too small a part of the step to turn the compiler on for"
    return "a library's kernel reaches more of the peak"


def _no_kernel(case: Case) -> str:
    if case.bound == "free":
        return "nothing runs"
    if not case.hot:
        return "it is too small a part of the step to keep a kernel for"
    if case.bound == "unpriced":
        return "what it would save is not known"
    if case.library and case.bound in ("compute", "launch"):
        return "a library's kernel does it"
    if case.compiler:
        return "torch.compile writes the kernel"
    if case.library:
        return "a library's kernel does it"
    return "it saves nothing: no tiles of it fit SRAM, or it has no company"
