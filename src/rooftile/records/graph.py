"""The ops of one step, in order, as a GPU would run them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from rooftile.records.tensor import Tensor

SCHEMA_VERSION = 1

Scalar = bool | int | float | str | None
Attr = Scalar | tuple[Scalar, ...]
Phase = Literal["forward", "backward", "optimizer"]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor argument of an op.

    Attributes:
        role: The argument's name in the op's signature; ``"tensors.0"`` for a list's members.
        tensor: The region the argument names.
        reads: The op's result depends on what stands there.
        writes: The op changes what stands there.
    """

    role: str
    tensor: Tensor
    reads: bool = True
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """One op of the graph.

    Attributes:
        index: Position in the graph.
        aten: The op as torch names it, ``"aten.addmm.default"``: for people and for debugging.
        name: Our op, the key of its formula: ``"matmul"``, ``"gelu"``, ``"view"``, or torch's own
            name where no formula stands in the table.
        inputs: Tensor arguments in the order of the signature.
        outputs: Tensors the op returns and did not get: fresh results, or views of its inputs.
        attrs: Other arguments by name: numbers, flags, short lists.
        module: Path of the module that ran it, ``"model.layers.0.mlp"``; "" outside every module.
        line: The user's own ``file.py:12``; a backward op has its forward op's. "" if unknown.
        phase: Where in the step it runs.
    """

    index: int
    aten: str
    name: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Tensor, ...]
    attrs: dict[str, Attr] = field(default_factory=dict)
    module: str = ""
    line: str = ""
    phase: Phase = "forward"

    def operand(self, role: str) -> Tensor | None:
        """The tensor argument of that name, or None where it was not given."""
        for operand in self.inputs:
            if operand.role == role:
                return operand.tensor
        return None

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """Regions whose content the op uses."""
        return tuple(o.tensor for o in self.inputs if o.reads)

    @property
    def writes(self) -> tuple[Tensor, ...]:
        """Regions the op fills: its fresh results and the arguments it changes."""
        changed = tuple(o.tensor for o in self.inputs if o.writes)
        return changed + self.outputs


@dataclass(frozen=True, slots=True)
class Edge:
    """One op reads what another wrote last.

    Attributes:
        producer: Index of the op that wrote the storage last before.
        consumer: Index of the op that reads it.
        storage: Number of the storage between them.
    """

    producer: int
    consumer: int
    storage: int


@dataclass(frozen=True, slots=True)
class Graph:
    """The ops of one step.

    Attributes:
        target: What was captured, as the user named it.
        mode: ``"infer"`` or ``"train"``.
        ops: All ops in the order they run.
        inputs: Storages of the example inputs.
        parameters: Storages of the parameters and buffers, to their names.
        results: Storages that are still wanted after the step: outputs, gradients, new state.
        assumptions: What was taken for granted, in words for the user.
        versions: Package to version: ``{"torch": "2.13.0"}``.
        kind: Tells this record's JSON from others.
        schema_version: Of this record and all below it.
    """

    target: str
    mode: Literal["infer", "train"]
    ops: tuple[Op, ...]
    inputs: tuple[int, ...] = ()
    parameters: dict[int, str] = field(default_factory=dict)
    results: tuple[int, ...] = ()
    assumptions: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    kind: Literal["rooftile.graph"] = "rooftile.graph"
    schema_version: int = SCHEMA_VERSION

    def edges(self) -> Iterator[Edge]:
        """Who reads whose result, by storage: each reader is joined to the last writer before it.

        A view is no writer: its readers are joined to whoever filled the storage under it.
        """
        last_writer: dict[int, int] = {}
        for op in self.ops:
            for storage in dict.fromkeys(t.storage for t in op.reads):
                if storage in last_writer:
                    yield Edge(last_writer[storage], op.index, storage)
            held = {o.tensor.storage for o in op.inputs}
            fresh = (t.storage for t in op.outputs if t.storage not in held)
            changed = (o.tensor.storage for o in op.inputs if o.writes)
            for storage in (*fresh, *changed):
                last_writer[storage] = op.index
