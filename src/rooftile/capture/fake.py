"""Real modules and inputs seen as fake tensors: shapes without memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from rooftile.capture.attention import causal_biases
from rooftile.capture.lazy import LAZY, lazy_weights
from rooftile.capture.lazy_dynamo import put_off
from rooftile.capture.values import Following, Values
from rooftile.errors import InputError


def _mode() -> FakeTensorMode:
    put_off()
    return FakeTensorMode(allow_non_fake_inputs=True)


@dataclass(frozen=True)
class Fakes:
    """What the building of a model and the capture of its step must share.

    Attributes:
        mode: Tensors made under it have shapes and no memory; real ones that meet them lose theirs.
            A tensor of another mode would be taken for a real one, with a storage of its own.
        values: What is known to stand in the small ones all the same.
    """

    mode: FakeTensorMode = field(default_factory=_mode)
    values: Values = field(default_factory=Values)

    @contextmanager
    def building(self) -> Iterator[None]:
        """Make tensors as shapes, and follow what stands in small ones."""
        with self.mode, Following(self.values), causal_biases(), lazy_weights():
            yield


class Faker:
    """Makes one fake tensor for each real one; the same for tied parameters and repeated inputs.

    Tensors that share memory have fake ones that share it too. What small real ones hold is kept.
    """

    def __init__(self, fakes: Fakes, dtype: torch.dtype | None) -> None:
        self._mode = fakes.mode
        self._values = fakes.values
        self._dtype = dtype
        self._made: dict[int, Tensor] = {}
        self._kept: list[Tensor] = []  # an id stays that tensor's while it lives
        self._storages: dict[tuple[int, torch.dtype | None], torch.UntypedStorage] = {}

    def tensor(self, real: Tensor) -> Tensor:
        """The fake twin, on the CPU, floating-point ones in the wanted dtype.

        Raises:
            InputError: The tensor is sparse or nested.
        """
        from torch.nn.attention.bias import CausalBias  # it touches the compiler, which may wait

        kept = self._dtype in (None, real.dtype) or not real.is_floating_point()
        if isinstance(real, CausalBias) or (
            isinstance(real, FakeTensor) and real.fake_mode is self._mode and kept
        ):
            return real
        if isinstance(real, LAZY):
            return real  # the first run makes it
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
            for name, mask in value.items():
                if isinstance(mask, Tensor) and name.endswith("mask"):
                    self._read(mask)
            return {k: self.tree(v) for k, v in value.items()}
        if isinstance(value, (tuple, list)):
            members = [self.tree(v) for v in value]
            named = hasattr(value, "_fields")  # a named tuple takes its members one by one
            return type(value)(*members) if named else type(value)(members)
        return value

    def _read(self, mask: Tensor) -> None:
        """What a mask in floating point holds says what is hidden; other data says nothing."""
        held = self._values.of(mask)
        if held is not None:
            self._values.know(self.tensor(mask), held.to(self.tensor(mask).dtype))

    def _make(self, real: Tensor) -> Tensor:
        if real.layout is not torch.strided or real.is_nested:
            kind = "nested" if real.is_nested else str(real.layout).removeprefix("torch.")
            raise InputError(f"tensors must be dense (torch.strided), got a {kind} one")
        dtype = self._dtype if self._dtype is not None and real.is_floating_point() else real.dtype
        with self._mode, torch.no_grad():
            fake = torch.empty(0, dtype=dtype, device="cpu")
            place = (real.storage_offset(), real.shape, real.stride())
            fake.set_(self._storage(real, dtype), *place)
        if isinstance(real, nn.Parameter):
            return nn.Parameter(fake, requires_grad=real.requires_grad)
        # data in floating point is an example's, and the next one's is other
        held = None if real.is_floating_point() else self._values.of(real)
        if held is not None:
            self._values.know(fake, held)
        return fake.requires_grad_(real.requires_grad)

    def _storage(self, real: Tensor, dtype: torch.dtype) -> torch.UntypedStorage:
        """The fake storage for a real one; one converted for each dtype it is converted from."""
        storage = real.untyped_storage()
        key = (storage._cdata, real.dtype if dtype is not real.dtype else None)
        found = self._storages.get(key)
        if found is None:
            size = storage.nbytes() // real.itemsize * dtype.itemsize
            fake = torch.empty(size, dtype=torch.uint8, device="cpu")
            found = self._storages[key] = fake.untyped_storage()
        return found


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
