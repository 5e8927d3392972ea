"""Steps along a graph's values, for those that look for a known function in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rooftile.plan.links import Links
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Flow:
    """Ops of one pass that hand each other whole tensors; views of them are stepped over.

    Attributes:
        ops: Of the graph, by index.
        links: Who reads what whom wrote.
    """

    ops: tuple[Op, ...]
    links: Links

    def made(self, reader: Op, tensor: Tensor, *names: str) -> Op | None:
        """The op that alone wrote all that an operand holds, in the reader's pass.

        Args:
            reader: Who reads it.
            tensor: The operand.
            names: What the op may be; all of them where none is given.
        """
        found = self.links.producers.get(reader.index, ())
        writers = [w for w, storage in found if storage == tensor.storage]
        if len(writers) != 1:
            return None
        op = self.ops[writers[0]]
        whole = op.phase == reader.phase and op.writes[0].storage == tensor.storage
        if not whole or op.writes[0].numel != tensor.numel or (names and op.name not in names):
            return None
        return op

    def operands(self, op: Op, *names: str) -> tuple[Op, Tensor] | None:
        """Of an op's two operands the one that such an op made, and the other tensor."""
        if len(op.reads) != 2:
            return None
        for mine, other in (op.reads, op.reads[::-1]):
            if (made := self.made(op, mine, *names)) is not None:
                return made, other
        return None

    def readers(self, op: Op) -> list[Op]:
        """All that read an op's results in its pass."""
        found = dict.fromkeys(self.links.readers(op))
        return [self.ops[c] for c in found if self.ops[c].phase == op.phase]

    def next(self, op: Op, *names: str) -> Op | None:
        """The op that alone reads a result in its pass, if it is such a one."""
        readers = self.readers(op)
        if len(readers) != 1 or readers[0].name not in names or self.leaves(op):
            return None
        return readers[0]

    def leaves(self, op: Op) -> bool:
        """Whether a result outlives the step."""
        return any((op.index, t.storage) in self.links.wanted for t in op.writes[:1])

    def closed(self, ops: Iterable[Op], *leaving: Op) -> bool:
        """Whether nobody else in the pass wants a result of these ops, but for the named ones'."""
        members = list(ops)
        inside = {op.index for op in members}
        out = {op.index for op in leaving}
        return not any(
            self.leaves(op) or any(reader.index not in inside for reader in self.readers(op))
            for op in members
            if op.index not in out
        )

    def cast_before(self, reader: Op, tensor: Tensor) -> Op | None:
        """The change of dtype that made an operand."""
        made = self.made(reader, tensor, "copy")
        return made if made is not None and _casts(made) else None

    def cast_after(self, op: Op) -> Op | None:
        """The change of dtype that alone reads a result."""
        found = self.next(op, "copy")
        return found if found is not None and _casts(found) else None


def _casts(op: Op) -> bool:
    return bool(op.outputs) and op.reads[0].dtype != op.outputs[0].dtype
