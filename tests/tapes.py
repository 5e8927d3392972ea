"""Small graphs, written down op by op, and their plan."""

from __future__ import annotations

from dataclasses import replace

from rooftile.cost.graph import estimate
from rooftile.plan.decide import decide
from rooftile.records.graph import Graph, Op, Operand
from rooftile.records.plan import FusionGroup, Plan
from rooftile.records.tensor import Tensor, contiguous
from rooftile.spec.devices import device

ROWS, COLS = 1024, 512
N = ROWS * COLS * 2  # bytes of one bfloat16 tensor of that shape


class Tape:
    """Ops in the order they are written down; every fresh tensor has a storage of its own."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.inputs: list[int] = []
        self.storages = 0
        self.phase = "forward"

    def fresh(self, *shape: int, dtype: str = "bfloat16") -> Tensor:
        """A new dense tensor that no op of the tape fills."""
        self.storages += 1
        return contiguous(shape, dtype, self.storages)

    def input(self, *shape: int, dtype: str = "bfloat16") -> Tensor:
        """A tensor that is there before the step."""
        tensor = self.fresh(*shape, dtype=dtype)
        self.inputs.append(tensor.storage)
        return tensor

    def op(self, name: str, *reads: Tensor, out: Tensor | None = None, roles=(), **attrs) -> Tensor:
        """An op whose result has the shape of its first operand, unless another is given."""
        result = out if out is not None else self.fresh(*reads[0].shape, dtype=reads[0].dtype)
        names = roles or ("self", "other", "value", "third", "fourth")
        inputs = tuple(Operand(role, t) for role, t in zip(names, reads, strict=False))
        self.ops.append(Op(len(self.ops), f"aten.{name}.default", name, inputs, (result,), attrs,
                           phase=self.phase))  # fmt: skip
        return result

    def change(self, name: str, target: Tensor, *reads: Tensor, **attrs) -> Tensor:
        """An op in place."""
        others = tuple(Operand(f"other{i}", t) for i, t in enumerate(reads))
        inputs = (Operand("self", target, writes=True), *others)
        self.ops.append(
            Op(len(self.ops), f"aten.{name}_.default", name, inputs, (), attrs, phase=self.phase)
        )
        return target

    def view(self, tensor: Tensor, shape: tuple[int, ...], stride=None, offset=0) -> Tensor:
        """Another look at a storage."""
        dense = contiguous(shape, tensor.dtype, tensor.storage)
        seen = replace(dense, stride=stride or dense.stride, offset=offset)
        self.ops.append(
            Op(len(self.ops), "aten.view.default", "view", (Operand("self", tensor),), (seen,),
               phase=self.phase)
        )  # fmt: skip
        return seen

    def mm(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of two matrices."""
        out = self.fresh(a.shape[0], b.shape[1], dtype=a.dtype)
        return self.op("mm", a, b, out=out, roles=("self", "mat2"))

    def bmm(self, a: Tensor, b: Tensor) -> Tensor:
        """The products of two batches of matrices."""
        out = self.fresh(a.shape[0], a.shape[1], b.shape[2], dtype=a.dtype)
        return self.op("bmm", a, b, out=out, roles=("self", "mat2"))

    def mean(self, x: Tensor, name: str = "mean", dim: int = -1) -> Tensor:
        """A reduction that keeps its dimension."""
        shape = list(x.shape)
        shape[dim] = 1
        return self.op(name, x, out=self.fresh(*shape, dtype=x.dtype), dim=(dim,), keepdim=True)

    def graph(self, *results: Tensor) -> Graph:
        """The graph that leaves these results behind."""
        wanted = tuple(t.storage for t in results)
        return Graph("tape", "infer", tuple(self.ops), tuple(self.inputs), {}, wanted)

    def plan(self, *results: Tensor, gpu: str = "h100-sxm", hot_share: float = 0.01) -> Plan:
        """Its plan on a GPU."""
        return decide(estimate(self.graph(*results), device(gpu)), hot_share=hot_share)


def only(plan: Plan) -> FusionGroup:
    """The one group of a plan."""
    (group,) = plan.groups
    return group


def reasons(plan: Plan) -> dict[tuple[int, int], str]:
    """Why a producer and its consumer are in two kernels."""
    return {(refusal.producer, refusal.consumer): refusal.reason for refusal in plan.refusals}


def traffic(group: FusionGroup) -> tuple[int, int]:
    """Bytes of a group before and after it is fused."""
    return group.bytes_before, group.bytes_after
