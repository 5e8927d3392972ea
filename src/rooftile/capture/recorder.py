"""Every op that runs, turned into a record as torch dispatches it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from rooftile.capture.bounds import largest
from rooftile.capture.fused import REPLACED
from rooftile.capture.lines import LineFinder
from rooftile.capture.mixed import refuse_mixed
from rooftile.capture.modules import ModuleStack
from rooftile.capture.norm import ON_A_GPU
from rooftile.capture.notes import note
from rooftile.capture.place import place
from rooftile.capture.signature import ACCUMULATING, FILLS, Argument, Signature, signature_of
from rooftile.capture.values import Values
from rooftile.records.graph import Attr, Op, Operand, Phase, Scalar
from rooftile.records.tensor import Tensor

_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
_DEVICE = torch.ops.prim.device.default
# Autograd's node that adds a gradient to its leaf; it has no number of its own.
_ACCUMULATE = "torch::autograd::AccumulateGrad"


class Recorder(TorchDispatchMode):
    """Records every op below it. Storages stay alive, so that no two share a number.

    Attributes:
        ops: What ran, in order.
        phase: Given to each op that is recorded; the caller sets it.
        paused: Nothing is recorded while the caller has set it.
        values: What is known to stand in small tensors.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing compiles while a capture runs: spare torch the guard around each dispatch."""
        return False

    def __init__(self, modules: ModuleStack, values: Values) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[Op] = []
        self.phase: Phase = "forward"
        self.paused = False
        self.values = values
        self._modules = modules
        self._lines = LineFinder()
        self._signatures: dict[Any, Signature] = {}
        self._storages: dict[int, int] = {}
        self._alive: list[Any] = []
        self._forward_of: dict[int, tuple[str, str]] = {}
        self._drawn = _sequence_number()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is _DEVICE:  # two of three dispatches under fake tensors
            return args[0].fake_device if isinstance(args[0], FakeTensor) else func(*args)
        kwargs = kwargs or {}
        signature = self._signatures.get(func)
        if signature is None:
            signature = self._signatures[func] = signature_of(func)
        if signature.composite:
            # only inference mode lets a composite op come this far: take it apart as autograd does
            with self:
                stand_in = REPLACED.get(signature.base) or REPLACED.get(signature.overload)
                parts = (stand_in or func.decompose)(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        refuse_mixed(func, args, kwargs, self._place)
        result = self.values.run(self, signature, func, args, kwargs, self._largest)
        if signature.base in ON_A_GPU:
            result = ON_A_GPU[signature.base](result)
        if not (signature.skip or self.paused):
            self._record(signature, args, kwargs, result)
        return result

    def storage_of(self, tensor: torch.Tensor) -> int:
        """The number of the tensor's storage."""
        if tensor.layout is torch.sparse_coo:  # what it moves is its values
            tensor = tensor._values()
        storage = tensor.untyped_storage()
        key = storage._cdata
        number = self._storages.get(key)
        if number is None:
            number = self._storages[key] = len(self._storages)
            self._alive.append(storage)
        return number

    def aside(self, function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Op]]:
        """Call a function, and hand back with its result the ops it ran, recorded nowhere else."""
        start = len(self.ops)
        result = function(*args)
        ran = self.ops[start:]
        del self.ops[start:]
        return result, ran

    def _largest(self, base: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The largest result of an op whose values are not known, said to the user."""
        answer = largest(base, args, kwargs)
        if answer is not None:
            n = args[0].numel() if base != "unique_dim" else args[0].shape[args[1]]
            note(
                f"{base} at {self.here()}: what it selects is in the values; all {n:,} are taken, "
                "so what follows is counted from above"
            )
        return answer

    def here(self) -> str:
        """The user's line that is running."""
        stated = place.get()
        return stated[1] if stated else self._lines.find(depth=3) or "an unknown line"

    def _record(
        self, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        inputs: list[Operand] = []
        attrs: dict[str, Attr] = {}
        for argument, value in zip(signature.positional, args, strict=False):
            self._argument(signature, argument, value, inputs, attrs)
        for name, value in kwargs.items():
            argument = signature.by_name.get(name) or Argument(name, False, False)
            self._argument(signature, argument, value, inputs, attrs)
        results = (t for t in _tensors(result) if not _is_argument(t, args, kwargs))
        outputs = tuple(self._tensor(t) for t in results)
        if signature.tf32 and _tf32_allowed(signature.tf32):
            attrs["tf32"] = True
        if attrs.get("accumulate") and signature.base in ACCUMULATING:
            first = inputs[0]
            inputs[0] = Operand(first.role, first.tensor, reads=True, writes=True)
        module, line = self._place()
        self.ops.append(
            Op(
                index=len(self.ops),
                aten=signature.aten,
                name=signature.name,
                inputs=tuple(inputs),
                outputs=outputs,
                attrs=attrs,
                module=module,
                line=line,
                phase=self.phase,
            )
        )

    def _argument(
        self,
        signature: Signature,
        argument: Argument,
        value: Any,
        inputs: list[Operand],
        attrs: dict[str, Attr],
    ) -> None:
        if isinstance(value, torch.Tensor):
            inputs.append(self._operand(signature, argument, argument.name, value))
            if argument.name in _ENDS:
                self._lengths(_ENDS[argument.name], value, attrs)
        elif isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            inputs.extend(
                self._operand(signature, argument, f"{argument.name}.{i}", v)
                for i, v in enumerate(value)
                if isinstance(v, torch.Tensor)
            )
        else:
            attr = _attr(value)
            if attr is not None:
                attrs[argument.name] = attr

    def _lengths(self, name: str, ends: torch.Tensor, attrs: dict[str, Attr]) -> None:
        """How long the sequences of a packed batch are: it decides how many pairs there are."""
        lengths = self.values.steps(ends)
        if lengths is None:
            note("packed sequences of unknown lengths are taken as equally long")
        else:
            attrs[name] = lengths

    def _operand(
        self, signature: Signature, argument: Argument, role: str, value: torch.Tensor
    ) -> Operand:
        fills = argument.is_out or (argument.writes and signature.base in FILLS)
        return Operand(role, self._tensor(value), reads=not fills, writes=argument.writes)

    def _tensor(self, t: torch.Tensor) -> Tensor:
        shape, dtype = tuple(t.shape), _dtype(t.dtype)
        if t.layout is not torch.strided:
            return Tensor(shape, dtype, (0,) * t.dim(), self.storage_of(t))
        return Tensor(shape, dtype, t.stride(), self.storage_of(t), int(t.storage_offset()))

    def _place(self) -> tuple[str, str]:
        """Module and line of the op that is being dispatched.

        A backward op has no frame of its own; autograd numbers its nodes, and a forward op is
        dispatched with its node's number drawn. It claims all numbers drawn since the op before: an
        in-place op draws several. Ops without a gradient find none left to claim.
        """
        stated = place.get()
        module, line = stated or (self._modules.path, self._lines.find(depth=4))
        node = torch._C._current_autograd_node()
        if node is None:
            drawn = _sequence_number()
            for number in range(self._drawn, drawn):
                self._forward_of[number] = (module, line)
            self._drawn = max(self._drawn, drawn)
            return module, line
        if node.name() == _ACCUMULATE:
            forward_module, forward_line = self._first_reader(node.variable)  # type: ignore[attr-defined]
        else:
            forward_module, forward_line = self._forward_of.get(node._sequence_nr(), ("", ""))
        return module or forward_module, line or forward_line

    def _first_reader(self, leaf: torch.Tensor) -> tuple[str, str]:
        """Where a leaf was read first: what happens to its gradient belongs there."""
        storage = self.storage_of(leaf)
        for op in self.ops:
            if op.line and any(o.tensor.storage == storage for o in op.inputs):
                return op.module, op.line
        return "", ""


def _tf32_allowed(kind: str) -> bool:
    """Whether torch's switch lets float32 work of that kind run in TF32."""
    if kind == "matmul":
        return torch.get_float32_matmul_precision() != "highest"
    return torch.backends.cudnn.allow_tf32


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return []


def _is_argument(t: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """An in-place op returns its own argument: it stands among the inputs already."""
    values = (*args, *kwargs.values())
    return any(t is v for v in values) or any(
        t is w for v in values if isinstance(v, (list, tuple)) for w in v
    )


# Where the sequences of a packed batch end, by the argument's name: which lengths follow from it.
_ENDS = {
    "cu_seq_q": "q_lens",
    "cu_seq_k": "k_lens",
    "cum_seq_q": "q_lens",
    "cum_seq_k": "k_lens",
    "cu_seqlens_q": "q_lens",
    "cu_seqlens_k": "k_lens",
}
_DTYPES: dict[torch.dtype, str] = {}


def _dtype(dtype: torch.dtype) -> str:
    name = _DTYPES.get(dtype)
    if name is None:
        name = _DTYPES[dtype] = str(dtype).removeprefix("torch.")
    return name


def _attr(value: Any) -> Attr:
    """A non-tensor argument as JSON can hold it; None for what says nothing about the work."""
    if isinstance(value, (list, tuple)):
        return tuple(v for v in map(_scalar, value) if v is not None)
    return _scalar(value)


def _scalar(value: Any) -> Scalar:
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.dtype):
        return _dtype(value)
    return int(value) if isinstance(value, torch.SymInt) else None
