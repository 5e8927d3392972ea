"""Who reads what whom wrote, and in which order ops must run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from rooftile.records.graph import Graph, Op
from rooftile.records.tensor import Tensor


@dataclass(slots=True)
class Links:
    """Dependencies between the ops of a graph that launch kernels.

    Attributes:
        producers: Of each op: who wrote what it reads, and in which storage.
        before: Of each op: who must run before it without handing it a value: it overwrites what
            they read or wrote.
        consumers: Of each op and storage it writes: who reads that.
        wanted: Writes whose result outlives the step: op and storage.
    """

    producers: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    before: dict[int, set[int]] = field(default_factory=dict)
    consumers: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    wanted: set[tuple[int, int]] = field(default_factory=set)

    def readers(self, op: Op) -> list[int]:
        """All that read any result of an op."""
        return [c for t in op.writes for c in self.consumers.get((op.index, t.storage), ())]

    def escapes(self, op: int, storage: int, group: frozenset[int] | set[int]) -> bool:
        """Whether what an op writes is read outside a group, or outlives the step."""
        if (op, storage) in self.wanted:
            return True
        return any(reader not in group for reader in self.consumers.get((op, storage), ()))


def link(graph: Graph, launched: list[bool]) -> Links:
    """The dependencies of a graph, in one pass over it.

    Args:
        graph: As captured.
        launched: Of each op, whether it launches a kernel; views and allocations hand on storages.

    Returns:
        Dependencies by the index of the op.
    """
    links = Links()
    whole: dict[int, Tensor] = {}
    writers: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = defaultdict(list)
    for op in graph.ops:
        if not launched[op.index]:
            _note_fresh(op, whole)
            continue
        read = {t.storage for t in op.reads}
        written = {t.storage: t for t in op.writes}
        links.producers[op.index] = [(w, s) for s in read for w in writers.get(s, ())]
        for writer, storage in links.producers[op.index]:
            links.consumers[writer, storage].append(op.index)
        order = {r for s in written for r in readers.get(s, ())}
        order |= {w for s in written for w in writers.get(s, ())}
        links.before[op.index] = order - {w for w, _ in links.producers[op.index]}
        for storage in read:
            readers[storage].append(op.index)
        _note_fresh(op, whole)
        for storage, tensor in written.items():
            covers = tensor.numel >= whole.setdefault(storage, tensor).numel
            writers[storage] = [op.index] if covers else [*writers.get(storage, ()), op.index]
            readers[storage] = []
    _want(graph, links, writers)
    return links


def _note_fresh(op: Op, whole: dict[int, Tensor]) -> None:
    """Remember each storage by the tensor that it was made for."""
    for tensor in op.outputs:
        whole.setdefault(tensor.storage, tensor)


def _want(graph: Graph, links: Links, writers: dict[int, list[int]]) -> None:
    """What is left in a result, a parameter or an input at the end."""
    for storage in {*graph.results, *graph.parameters, *graph.inputs}:
        links.wanted |= {(writer, storage) for writer in writers.get(storage, ())}
