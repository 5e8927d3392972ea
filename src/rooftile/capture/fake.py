"""Real modules and inputs seen as fake tensors: shapes without memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


class Faker:
    """Makes one fake tensor for each real one; the same for tied parameters and repeated inputs."""

    def __init__(self, mode: FakeTensorMode, dtype: torch.dtype | None) -> None:
        self._mode = mode
        self._dtype = dtype
        self._made: dict[int, Tensor] = {}
        self._kept: list[Tensor] = []  # an id stays that tensor's while it lives

    def tensor(self, real: Tensor) -> Tensor:
        """The fake twin, on the CPU, floating-point ones in the wanted dtype."""
        kept = self._dtype in (None, real.dtype) or not real.is_floating_point()
        if isinstance(real, FakeTensor) and kept:
            return real
        fake = self._made.get(id(real))
        if fake is None:
            fake = self._made[id(real)] = self._make(real)
            self._kept.append(real)
        return fake

    def tree(self, value: Any) -> Any:
        """``value`` with every tensor in nested tuples, lists and mappings replaced."""
        if isinstance(value, Tensor):
            return self.tensor(value)
        if isinstance(value, Mapping):
            return {k: self.tree(v) for k, v in value.items()}
        if isinstance(value, (tuple, list)):
            members = [self.tree(v) for v in value]
            named = hasattr(value, "_fields")  # a named tuple takes its members one by one
            return type(value)(*members) if named else type(value)(members)
        return value

    def _make(self, real: Tensor) -> Tensor:
        dtype = self._dtype if self._dtype is not None and real.is_floating_point() else real.dtype
        with self._mode, torch.no_grad():
            fake = torch.empty_strided(real.shape, real.stride(), dtype=dtype, device="cpu")
        if isinstance(real, nn.Parameter):
            return nn.Parameter(fake, requires_grad=real.requires_grad)
        return fake.requires_grad_(real.requires_grad)


@contextmanager
def fake_weights(model: nn.Module, faker: Faker) -> Iterator[None]:
    """Swap parameters and buffers for their fake twins while the context lasts.

    The model is afterwards as it was: its attributes, its training flags, and no weight, buffer or
    submodule more than before.
    """
    before = [(m, dict(m.__dict__), [dict(store) for store in _stores(m)]) for m in model.modules()]
    try:
        for module, _, _ in before:
            for store in (module._parameters, module._buffers):
                for name, tensor in store.items():
                    if tensor is not None:
                        store[name] = faker.tensor(tensor)  # type: ignore[assignment]
            refresh_flat_weights(module)
        yield
    finally:
        for module, attributes, stores in before:
            for store, kept in zip(_stores(module), stores, strict=True):
                store.clear()
                store.update(kept)
            module.__dict__.clear()
            module.__dict__.update(attributes)
            refresh_flat_weights(module)


def _stores(module: nn.Module) -> tuple[dict[str, Any], ...]:
    return module._parameters, module._buffers, module._modules


def refresh_flat_weights(module: nn.Module) -> None:
    """A recurrent layer keeps a second list of its weights."""
    if isinstance(module, nn.RNNBase):
        module._init_flat_weights()
