"""Modules whose weights get their shapes in the first run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._python_dispatch import _disable_current_modes

from rooftile.capture.notes import note
from rooftile.errors import InputError

LAZY = (UninitializedParameter, UninitializedBuffer)
_NEW_PARAMETER: Any = UninitializedParameter.__new__
_NEW_BUFFER: Any = UninitializedBuffer.__new__


def is_lazy(model: nn.Module) -> bool:
    """Whether a weight or buffer has no shape yet."""
    return any(isinstance(t, LAZY) for t in (*model.parameters(), *model.buffers()))


def copied(model: nn.Module) -> nn.Module:
    """The model with the same weights: a first run may turn the copy's modules into others.

    Raises:
        InputError: Something in the model cannot be copied.
    """
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    for tensor in list(shared.values()):
        if isinstance(tensor, UninitializedParameter):
            shared[id(tensor)] = _parameter(tensor.requires_grad, dtype=tensor.data.dtype)
        elif isinstance(tensor, UninitializedBuffer):
            shared[id(tensor)] = _buffer(dtype=tensor.data.dtype)
    try:
        return copy.deepcopy(model, shared)
    except (TypeError, RuntimeError, ValueError) as error:
        raise InputError(
            "model has lazy modules, which only a copy's first run can initialise, and it cannot "
            f"be copied ({error}): call it once on example inputs"
        ) from error


def _parameter(requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
    """One without a shape, whatever mode is on: it holds nothing that could be fake."""
    with _disable_current_modes():
        return _NEW_PARAMETER(UninitializedParameter, requires_grad, None, dtype)


def _buffer(
    requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
) -> Any:
    with _disable_current_modes():
        return _NEW_BUFFER(UninitializedBuffer, requires_grad, None, dtype, persistent)


@contextmanager
def lazy_weights() -> Iterator[None]:
    """Let lazy modules be made where tensors are fake, while it lasts."""
    parameter: Any = UninitializedParameter
    buffer: Any = UninitializedBuffer
    parameter.__new__ = staticmethod(lambda cls, *args, **kwargs: _parameter(*args, **kwargs))
    buffer.__new__ = staticmethod(lambda cls, *args, **kwargs: _buffer(*args, **kwargs))
    try:
        yield
    finally:
        parameter.__new__ = staticmethod(_NEW_PARAMETER)
        buffer.__new__ = staticmethod(_NEW_BUFFER)


@contextmanager
def materialising(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Give lazy weights their shapes as the model's first run asks for them, while it lasts.

    Args:
        model: A copy; tensors are fake while it runs.
        dtype: Of floating-point weights; None keeps theirs.
    """
    mixin: Any = nn.parameter.UninitializedTensorMixin  # type: ignore[attr-defined]
    original = mixin.materialize
    mixin.materialize = _in(model, dtype)
    note("lazy modules: shapes from a first run, which is no part of the step")
    try:
        yield
    finally:
        mixin.materialize = original


def _in(model: nn.Module, wanted: torch.dtype | None) -> Callable[..., None]:
    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Put a weight of that shape wherever the lazy one stands."""
        with _disable_current_modes():
            own = self.data.dtype
        floating = wanted if own.is_floating_point else None
        made = torch.empty(shape, dtype=dtype or floating or own)
        if isinstance(self, UninitializedParameter):
            made = nn.Parameter(made, requires_grad=self.requires_grad)
        for module in model.modules():
            for store in (module._parameters, module._buffers):
                for name, tensor in store.items():
                    if tensor is self:
                        store[name] = made  # type: ignore[assignment]

    return materialize
