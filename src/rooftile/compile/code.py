"""Machine code as a list of what matters in it, and what follows from the list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rooftile.compile.flow import Loop, find_loops
from rooftile.records.resources import AccessKind, MemoryAccess


@dataclass(frozen=True, slots=True)
class Touch:
    """An instruction that touches device memory.

    Attributes:
        at: Its place in the code: a byte offset or a line.
        kind: What it does.
        width_bytes: Bytes of one thread; 0: a bulk copy.
    """

    at: int
    kind: AccessKind
    width_bytes: int


@dataclass(frozen=True, slots=True)
class Code:
    """What machine code holds.

    Attributes:
        touches: Instructions that touch device memory, in order.
        jumps: From and to of every jump.
        stops: Jumps without a condition and ends: the code does not go on behind them.
        tensor_core: Matrix instructions by name.
        barriers: Whether threads of a block wait for each other.
        burst_bytes: Most bytes of loads under way at once in one thread.
        code_bytes: Size [B].
    """

    touches: tuple[Touch, ...]
    jumps: tuple[tuple[int, int], ...]
    stops: frozenset[int]
    tensor_core: dict[str, int]
    barriers: bool
    burst_bytes: int
    code_bytes: int

    def loops(self) -> tuple[Loop, ...]:
        """Loops that touch device memory, in the order of the code: others, such as a wait for a
        barrier, move nothing and have no number."""
        end = max((at for at in (*self.stops, *(t.at for t in self.touches))), default=0) + 1
        return tuple(
            loop
            for loop in find_loops(self.jumps, self.stops, end)
            if any(loop.holds(touch.at) for touch in self.touches)
        )

    def accesses(self) -> tuple[MemoryAccess, ...]:
        """The touches counted by kind, width and innermost loop."""
        loops = self.loops()
        counted = Counter(
            (_innermost(touch.at, loops), touch.kind, touch.width_bytes) for touch in self.touches
        )
        return tuple(
            MemoryAccess(kind=kind, width_bytes=width, count=count, loop=loop)
            for (loop, kind, width), count in sorted(counted.items())
        )


def _innermost(at: int, loops: Sequence[Loop]) -> int:
    """Number of the smallest loop around a place, from 1; 0 where there is none."""
    around = [(loop.size, number) for number, loop in enumerate(loops, 1) if loop.holds(at)]
    return min(around)[1] if around else 0
