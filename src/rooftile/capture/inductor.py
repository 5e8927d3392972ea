"""Which ops of a captured graph torch.compile's Inductor puts into one Triton kernel.

The graph is built again as FX, one node an op, and handed to Inductor, which is stopped once it has
decided on its kernels. Nothing is generated and nothing runs. Without a GPU Inductor is told to
make Triton kernels for the CPU: its rules that ask for a GPU (how a reduction is split, when an
expensive value is kept) may decide otherwise there.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from rooftile.capture import attention, norm, recurrent, scan  # noqa: F401  (they define ops)
from rooftile.errors import InputError
from rooftile.records.graph import Attr, Graph, Op, Phase
from rooftile.records.tensor import Tensor, contiguous

# What the stack trace of a node is here: which op it was made from. Inductor keeps it.
_PLACE = 'File "op", line {}, in captured'
_INDEX = re.compile(r'File "op", line (\d+), in captured')


class _DecidedError(BaseException):
    """Inductor has its kernels. Caught here alone, past every handler of errors."""


def inductor_kernels(
    graph: Graph, phase: Phase, device: Literal["cpu", "cuda"] = "cpu"
) -> list[frozenset[int]]:
    """Ask Inductor for the kernels of one pass of a graph.

    Args:
        graph: As captured.
        phase: The pass; what it takes from others is its input, what they take from it its output.
        device: What Inductor decides for; ``"cuda"`` needs a GPU.

    Returns:
        The ops of each kernel by their index in the graph, library calls included; an op that
        Inductor computes in several kernels is in all of them.

    Raises:
        InputError: The pass has no op, or one that cannot be called as it was recorded.
    """
    ops = [op for op in graph.ops if op.phase == phase]
    if not ops:
        raise InputError(f"phase must be one that the graph has, got {phase!r}")
    kernels: list[frozenset[int]] = []
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, _stopped(kernels):
        module, inputs = _Builder(graph, ops, device).build()
        from torch._inductor.compile_fx import compile_fx

        del fake
        try:
            with torch.no_grad():
                compile_fx(module, inputs)
        except _DecidedError:
            return kernels
        except Exception as error:
            words = str(error).strip().split("\n")[0]
            raise InputError(f"Inductor cannot take the {phase} pass: {words}") from error
    raise InputError(f"Inductor made no kernel of the {phase} pass")


class _Builder:
    """Writes ops down as FX nodes, each storage known by the tensors that name it."""

    def __init__(self, graph: Graph, ops: Sequence[Op], device: str) -> None:
        self.ops = ops
        self.device = device
        self.nodes = fx.Graph()
        self.made: dict[Tensor, fx.Node] = {}
        self.inputs: list[torch.Tensor] = []
        own = {op.index for op in ops}
        outside = {t.storage for op in graph.ops if op.index not in own for t in op.reads}
        self.wanted = outside | {*graph.results, *graph.parameters}
        self.last: fx.Node | None = None

    def build(self) -> tuple[fx.GraphModule, list[torch.Tensor]]:
        """The module and fake tensors for what it takes from outside."""
        fresh: set[Tensor] = set()
        for op in self.ops:
            for operand in op.inputs:
                if operand.tensor not in fresh and operand.tensor not in self.made:
                    self.made[operand.tensor] = self._input(operand.tensor)
            fresh.update(op.outputs)
        results: dict[Tensor, fx.Node] = {}
        for op in self.ops:
            self._write(op)
            for tensor in op.writes:
                if tensor.storage in self.wanted:
                    results[tensor] = self.made[tensor]
        self.nodes.output(tuple(results.values()))
        return fx.GraphModule(torch.nn.Module(), self.nodes), self.inputs

    def _input(self, tensor: Tensor) -> fx.Node:
        node = self.nodes.placeholder(f"input_{len(self.inputs)}")
        dtype = getattr(torch, tensor.dtype)
        self.inputs.append(
            torch.empty_strided(tensor.shape, tensor.stride, dtype=dtype, device=self.device)
        )
        return node

    def _write(self, op: Op) -> None:
        """One op as one node, and a node for each of several results."""
        target = _target(op)
        node = self.nodes.call_function(target, kwargs=self._arguments(op))
        node.meta["stack_trace"] = _PLACE.format(op.index)
        returns = target._schema.returns
        if len(returns) == 1 and not str(returns[0].type).startswith("List"):
            for tensor in op.outputs or op.writes[:1]:
                self.made[tensor] = node
            return
        fresh = iter(op.outputs)
        for place, tensor in enumerate(fresh):
            part = self.nodes.call_function(operator.getitem, (node, place))
            part.meta["stack_trace"] = _PLACE.format(op.index)
            self.made[tensor] = part

    def _arguments(self, op: Op) -> dict[str, Any]:
        """Operands and attributes by their names in the signature."""
        given: dict[str, Any] = {name: _attribute(name, value) for name, value in op.attrs.items()}
        for operand in op.inputs:
            name, _, place = operand.role.partition(".")
            if place:
                given.setdefault(name, [])
                given[name].append(self.made[operand.tensor])
            else:
                given[name] = self.made[operand.tensor]
        arguments = _target(op)._schema.arguments
        empty = {a.name: None for a in arguments if not a.has_default_value()}
        known = {a.name for a in arguments}
        if "device" in known:
            given["device"] = torch.device(self.device)
        if "memory_format" in known and op.outputs and _row_major(op.outputs[0]):
            given["memory_format"] = torch.contiguous_format  # a record has strides in its place
        return {**empty, **{name: value for name, value in given.items() if name in known}}


# Ops that capture keeps whole and torch has too.
_TORCHS = {
    "rooftile_capture.rms_norm.default": "aten._fused_rms_norm.default",
    "rooftile_capture.rms_norm_backward.default": "aten._fused_rms_norm_backward.default",
}


def _target(op: Op) -> Any:
    """The op itself."""
    namespace, _, rest = _TORCHS.get(op.aten, op.aten).partition(".")
    found: Any = getattr(torch.ops, namespace, None)
    try:
        for part in rest.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise InputError(f"{op.aten} is no op that can be called again") from error
    return found


def _row_major(tensor: Tensor) -> bool:
    """Whether its elements stand in order without gaps."""
    return tensor.stride == contiguous(tensor.shape, tensor.dtype, tensor.storage).stride


def _attribute(name: str, value: Attr) -> Any:
    """An attribute as torch takes it: dtypes by their name."""
    if isinstance(value, str) and "dtype" in name:
        return getattr(torch, value.removeprefix("torch."))
    return list(value) if isinstance(value, tuple) else value


@contextmanager
def _stopped(kernels: list[frozenset[int]]) -> Iterator[None]:
    """Inductor as it makes Triton kernels, stopped where it has decided on them."""
    from torch._inductor import config

    def note(nodes: list[Any]) -> list[Any]:
        kernels.extend(_ops_of(node) for node in nodes)
        raise _DecidedError

    settings = {
        "cpu_backend": "triton",
        "force_pointwise_cat": True,  # as on a GPU; a CPU copies into the joined tensor
        "_post_fusion_custom_pass": note,
        "force_disable_caches": True,
    }
    with config.patch(settings):
        yield


def _ops_of(kernel: Any) -> frozenset[int]:
    """The ops that a scheduled kernel was made from."""
    indices: set[int] = set()
    for node in kernel.get_nodes():
        for origin in getattr(node.node, "origins", ()):
            indices.update(int(i) for i in _INDEX.findall(origin.meta.get("stack_trace") or ""))
    return frozenset(indices)
