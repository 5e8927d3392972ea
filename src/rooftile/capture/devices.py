"""Code that asks for a GPU runs on a machine that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch.utils._device import _device_constructors

from rooftile.capture.autocast import CudaList
from rooftile.capture.cuda import absent_gpu

_ELSEWHERE = ("cuda", "xpu", "hip", "mps")
_MOVES = ("cuda", "xpu", "pin_memory")
_METHODS = ("to", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")


@contextmanager
def gpu_as_cpu() -> Iterator[None]:
    """Read every request for another device as one for the CPU while it lasts.

    A CPU build of torch has no CUDA tensors, fake or real; what runs is the same either way, since
    the ops in which the two differ are replaced (``rooftile.capture.fused``). A TorchFunctionMode
    would do as well, but under one torch leaves the fast paths of its encoder layers.
    """
    constructors = {f.__name__ for f in _device_constructors()}
    autocast, cuda_list = torch.autocast.__init__, CudaList()
    named: list[tuple[Any, str]]
    named = [(torch, name) for name in sorted(constructors) if callable(getattr(torch, name, None))]
    named += [(torch.Tensor, name) for name in (*_MOVES, *_METHODS)]
    originals = [
        (owner, name, owner.__dict__.get(name), getattr(owner, name)) for owner, name in named
    ]
    try:
        for owner, name, _, original in originals:
            setattr(owner, name, _stay if name in _MOVES else _on_cpu(original))
        torch.autocast.__init__ = _autocast(autocast, cuda_list)  # type: ignore[method-assign]
        with absent_gpu(_cpu):
            yield
    finally:
        cuda_list.close()
        torch.autocast.__init__ = autocast  # type: ignore[method-assign]
        for owner, name, own, _ in originals:
            if own is None:  # inherited: what was set hides it
                delattr(owner, name)
            else:
                setattr(owner, name, own)


def _autocast(original: Callable[..., None], cuda_list: CudaList) -> Callable[..., None]:
    """A GPU's autocast, with its dtype (float16 unless one is named) and its list of ops."""

    @wraps(original)
    def init(
        self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any
    ) -> None:
        if device_type in _ELSEWHERE:
            device_type, dtype = "cpu", dtype or torch.float16
            cuda_list.use()
        original(self, device_type, dtype, *args, **kwargs)

    return init


def _stay(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _cpu(kwargs["device"])
        return function(*map(_cpu, args), **kwargs)

    return call


def _cpu(value: Any) -> Any:
    """``value``, unless it names a GPU."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type in _ELSEWHERE else value
    if isinstance(value, str) and value.split(":")[0] in _ELSEWHERE:
        return "cpu"
    return value
