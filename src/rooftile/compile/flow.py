"""Loops of machine code, by its control flow: a jump backward alone makes none.

What waits for a barrier stands behind the last instruction and jumps back into the middle of the
code; that is no loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

Graph = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Loop:
    """Code that runs again and again.

    Attributes:
        spans: First places of its parts, and where each ends.
    """

    spans: tuple[tuple[int, int], ...]

    def holds(self, place: int) -> bool:
        """Whether a place is in it."""
        return any(start <= place < end for start, end in self.spans)

    @property
    def start(self) -> int:
        """Its first place in the order of the code."""
        return self.spans[0][0]

    @property
    def size(self) -> int:
        """Places in it."""
        return sum(end - start for start, end in self.spans)


def find_loops(
    jumps: Sequence[tuple[int, int]], stops: Collection[int], end: int
) -> tuple[Loop, ...]:
    """All loops, in the order of the code, an outer one before what it holds.

    A loop is a part of the code each place of which can be reached from each other; the loops
    within it are those that are left without the place where it is entered.

    Args:
        jumps: From and to of every jump.
        stops: Places that the code does not go on from to the next: jumps without a condition, and
            ends.
        end: A place behind the last.
    """
    firsts = sorted({0, *(to for _, to in jumps), *(at + 1 for at, _ in jumps),
                     *(at + 1 for at in stops)})  # fmt: skip
    after = (*firsts[1:], max(end, firsts[-1] + 1))

    def block_of(place: int) -> int:
        return bisect_right(firsts, place) - 1

    following: dict[int, set[int]] = {block: {block + 1} for block in range(len(firsts) - 1)}
    following[len(firsts) - 1] = set()
    for at in stops:
        following[block_of(at)].discard(block_of(at) + 1)
    for at, to in jumps:
        following[block_of(at)].add(block_of(to))
    graph = {block: tuple(sorted(targets)) for block, targets in following.items()}
    found = [
        Loop(tuple((firsts[block], after[block]) for block in sorted(blocks)))
        for blocks in _loops(graph, set(graph))
    ]
    return tuple(sorted(found, key=lambda loop: (loop.start, -loop.size)))


def _loops(graph: Graph, within: set[int]) -> Iterator[set[int]]:
    """Blocks of each loop among some."""
    for part in _strong_parts(graph, within):
        if len(part) == 1 and not part & set(graph[min(part)]):
            continue
        yield part
        entries = {
            target
            for block in graph
            if block not in part
            for target in graph[block]
            if target in part
        }
        yield from _loops(graph, part - {min(entries or part)})


def _strong_parts(graph: Graph, within: set[int]) -> Iterator[set[int]]:
    """Sets of blocks that reach each other: Tarjan's algorithm, without recursion."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    waiting: set[int] = set()
    for root in sorted(within):
        if root in number:
            continue
        path = [(root, iter(graph[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        waiting.add(root)
        while path:
            block, targets = path[-1]
            target = next((t for t in targets if t in within), None)
            if target is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[block])
                if low[block] == number[block]:
                    part = set(stack[stack.index(block) :])
                    del stack[stack.index(block) :]
                    waiting -= part
                    yield part
            elif target not in number:
                number[target] = low[target] = len(number)
                stack.append(target)
                waiting.add(target)
                path.append((target, iter(graph[target])))
            elif target in waiting:
                low[block] = min(low[block], number[target])
