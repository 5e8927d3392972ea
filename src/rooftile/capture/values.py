"""What stands in small tensors: known, although the tensors of a capture have no memory.

A model asks its masks whether they hide anything, its positions whether sequences are packed, a
``linspace`` for a rate of dropout. Where everything that such a tensor came from is known (made by
the program itself, or given as a small real input), the same ops run beside on real memory, and the
question has its answer. Weights and what is computed of them are never known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from rooftile.capture.bounds import ctc_states
from rooftile.capture.signature import Signature, signature_of

# A mask of 2048 x 2048 is followed; what a model computes in floating point is not.
_INTEGER_LIMIT = 1 << 22
_FLOAT_LIMIT = 1 << 12
# Ops that make a tensor from nothing but its shape and numbers.
_FACTORIES = """
arange eye fill full full_like linspace logspace new_full new_ones new_zeros ones ones_like
scalar_tensor tril_indices triu_indices zero zeros zeros_like
"""
# Deterministic ops beside the pointwise ones: copies, reductions, searches.
_FOLLOWED = """
_local_scalar_dense _to_copy all amax amin aminmax any argmax argmin argsort bincount cat clone
constant_pad_nd contiguous copy count_nonzero cummax cummin cumprod cumsum diag_embed diagonal_copy
equal flip gather index index_select isin lift lift_fresh lift_fresh_copy masked_fill masked_select
max mean median min nonzero prod repeat repeat_interleave roll scatter searchsorted slice_scatter
sort stack sum topk tril triu unique_consecutive unique_dim _unique2 where bucketize std var norm
"""
# Their result, or its shape, is in the values.
_ASKING = {
    "_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim",
    "unique_consecutive", "bincount", "repeat_interleave",
}  # fmt: skip
_SHAPE_ONLY = {"full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"}
_NAMES = {*_FACTORIES.split(), *_FOLLOWED.split()}


class Values:
    """The contents of small tensors, by their storage."""

    def __init__(self) -> None:
        self._real: dict[int, torch.UntypedStorage] = {}
        self._alive: dict[int, torch.UntypedStorage] = {}  # so that no other takes its number
        self._followed: dict[Any, bool] = {}

    def of(self, tensor: Tensor) -> Tensor | None:
        """A real tensor with the same shape and contents; None where they are not known."""
        if tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        real = self._real.get(storage._cdata)
        if real is None:
            if isinstance(tensor, FakeTensor) or tensor.is_meta or not _small(tensor):
                return None
            return self._keep(tensor, tensor)
        return _view(real, tensor)

    def steps(self, tensor: Tensor) -> tuple[int, ...] | None:
        """The differences between neighbours of a row of integers; None where it is not known."""
        real = self.of(tensor)
        if real is None or real.dim() != 1 or real.is_floating_point():
            return None
        with torch._C._DisableTorchDispatch():
            return tuple(real.diff().tolist())

    def know(self, tensor: Tensor, real: Tensor) -> None:
        """Remember what stands in a tensor, if it is small. ``real`` is copied."""
        if _small(real) and tensor.layout is torch.strided:
            self._keep(tensor, real)

    def run(
        self,
        mode: TorchDispatchMode,
        signature: Signature,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        bound: Callable[[str, tuple[Any, ...], dict[str, Any]], Any] | None = None,
    ) -> Any:
        """Call an op; answer for it where it asks for values, and follow what it makes of them.

        ``mode`` is who asks: an op that belongs to this one runs under it. ``bound`` answers for an
        op whose values are not known, if it can.
        """
        base = signature.base
        if base in _ASKING:
            answer = self._answer(func, args, kwargs)
            if answer is None and bound is not None:
                answer = bound(base, args, kwargs)
            if answer is not None:
                return answer
        elif base == "_ctc_loss":
            return ctc_states(*args, longest=self._longest(args[3]))
        elif base == "index" and any(self._selects(index, bound) for index in args[1]):
            with mode:
                places = [place for index in args[1] for place in self._places(index, bound)]
                args = (args[0], places)
        result = func(*args, **kwargs)
        if self._follows(signature, func):
            self._follow(signature, func, args, kwargs, result)
        elif signature.writes and self._real:
            self._forget(signature, args, kwargs)
        return result

    def _follows(self, signature: Signature, func: Any) -> bool:
        known = self._followed.get(func)
        if known is None:
            name = signature.base.removesuffix("_")
            seeded = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
            pointwise = torch.Tag.pointwise in getattr(func, "tags", ())
            followed = signature.aten.startswith("aten.") and not seeded
            known = followed and (pointwise or name in _NAMES or signature.base in _NAMES)
            self._followed[func] = known
        return known

    def _follow(
        self,
        signature: Signature,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        """Do beside what the op did, on real memory."""
        if not all(t.layout is torch.strided and _small(t) for t in _members(result)):
            return self._forget(signature, args, kwargs)
        shape_only = signature.base in _SHAPE_ONLY
        real_args: list[Any] = []
        for value in (*args, *kwargs.values()):
            real = self._real_argument(value, shape_only)
            if real is _UNKNOWN:
                return self._forget(signature, args, kwargs)
            real_args.append(real)
        names = dict(zip(kwargs, real_args[len(args) :], strict=True))
        with torch._C._DisableTorchDispatch():
            answer = func(*real_args[: len(args)], **names)
        for fake, real in zip(_members(result), _members(answer), strict=True):
            if fake.untyped_storage()._cdata not in self._real:
                self._keep(fake, real)
        return None

    def _answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an op whose result or shape is in the values; None if they are unknown."""
        real_args = [self._real_argument(value, False) for value in args]
        if any(real is _UNKNOWN for real in real_args):
            return None
        with torch._C._DisableTorchDispatch():
            answer = func(*real_args, **kwargs)
        if isinstance(answer, tuple):
            return tuple(self._fake(real) for real in answer)
        return self._fake(answer) if isinstance(answer, Tensor) else answer

    def _fake(self, real: Tensor) -> Tensor:
        fake = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype)
        self.know(fake, real)
        return fake

    def _places(self, index: Tensor | None, bound: Any) -> tuple[Tensor | None, ...]:
        """An index of flags as the indices that it selects, as torch itself goes about it."""
        if index is None or not self._selects(index, bound):
            return (index,)
        return torch.nonzero(index).unbind(1)

    def _selects(self, index: Tensor | None, bound: Any) -> bool:
        """Whether an index is of flags that are known or, if the caller can tell, bounded."""
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            return False
        return bound is not None or self.of(index) is not None

    def _longest(self, lengths: Any) -> int | None:
        """The largest of some lengths; None where they are not known."""
        if isinstance(lengths, Tensor):
            known = self.of(lengths)
            with torch._C._DisableTorchDispatch():
                lengths = () if known is None else known.tolist()
        return max(lengths, default=None)

    def _real_argument(self, value: Any, shape_only: bool) -> Any:
        if isinstance(value, Tensor):
            if shape_only:  # what it holds does not matter
                return _blank(value)
            real = self.of(value)
            return _UNKNOWN if real is None else real
        if isinstance(value, (list, tuple)):
            members = [self._real_argument(v, shape_only) for v in value]
            return _UNKNOWN if any(m is _UNKNOWN for m in members) else members
        return value

    def _keep(self, tensor: Tensor, real: Tensor) -> Tensor:
        storage, given = tensor.untyped_storage(), real.untyped_storage()
        with torch._C._DisableTorchDispatch():
            if given.nbytes() == storage.nbytes() and real.stride() == tensor.stride():
                whole = given.clone().cpu()
                view = _view(whole, tensor)
            else:
                whole = torch.UntypedStorage(storage.nbytes())
                view = _view(whole, tensor)
                view.copy_(real.detach())
        self._real[storage._cdata] = whole
        self._alive[storage._cdata] = storage
        return view

    def _forget(self, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What the op wrote into is known no longer."""
        for argument, value in zip(signature.positional, args, strict=False):
            if argument.writes:
                self._drop(value)
        for name, value in kwargs.items():
            if name in signature.by_name and signature.by_name[name].writes:
                self._drop(value)

    def _drop(self, value: Any) -> None:
        for tensor in _members(value):
            if tensor.layout is torch.strided:
                self._real.pop(tensor.untyped_storage()._cdata, None)


class Following(TorchDispatchMode):
    """Follows values while a model is built, where nothing is recorded."""

    def __init__(self, values: Values) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._values = values
        self._signatures: dict[Any, Signature] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        signature = self._signatures.get(func)
        if signature is None:
            signature = self._signatures[func] = signature_of(func)
        return self._values.run(self, signature, func, args, kwargs or {})


class _Unknown:
    """Stands for an argument whose contents are not known."""


_UNKNOWN = _Unknown()


def _members(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _members(v)


def _small(tensor: Tensor) -> bool:
    limit = _FLOAT_LIMIT if tensor.is_floating_point() else _INTEGER_LIMIT
    return tensor.untyped_storage().nbytes() <= limit * tensor.itemsize


def _view(storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    """The storage seen as a tensor is."""
    with torch._C._DisableTorchDispatch():
        empty = torch.empty(0, dtype=like.dtype)
        return empty.set_(storage, like.storage_offset(), like.shape, like.stride())


def _blank(like: Tensor) -> Tensor:
    """A real tensor of that shape and dtype with one element in memory."""
    with torch._C._DisableTorchDispatch():
        return torch.empty((), dtype=like.dtype).expand(like.shape)
