"""Autocast of a GPU on a machine that has none: CUDA's list of ops, not the CPU's.

CPU and CUDA lower the same products, and differ in what they keep in float32. Torch picks the list
by the device of the tensors, which is the CPU here.

Source: https://docs.pytorch.org/docs/stable/amp.html (ops that autocast to float32, 2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rooftile.capture.notes import note

_FLOAT32 = """
acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss cosine_similarity dist
erfinv exp expm1 frobenius_norm.dim group_norm hinge_embedding_loss huber_loss kl_div l1_loss
layer_norm log log10 log1p log2 logsumexp margin_ranking_loss mse_loss multi_margin_loss
multilabel_margin_loss native_layer_norm nll_loss nll_loss2d nuclear_norm pdist poisson_nll_loss
pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor reciprocal renorm rsqrt sinh smooth_l1_loss
soft_margin_loss softplus tan triplet_margin_loss
"""
# They take a dtype of the result, which is float32 where none is named.
_WITH_DTYPE = """
cumprod cumsum linalg_vector_norm log_softmax.int prod prod.dim_int softmax.int sum
sum.dim_IntList
"""
# What the CPU does not lower and CUDA does.
_LOWERED = "addmv addr mv prelu"
# They run in the widest dtype among their operands.
_PROMOTED = """
addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot
"""
_HALVES = (torch.float16, torch.bfloat16)


class CudaList:
    """Puts CUDA's list in the place of the CPU's, from the first autocast of a GPU on."""

    def __init__(self) -> None:
        self._library: Any = None

    def use(self) -> None:
        """From here to the end of the capture."""
        note("autocast of a GPU: products in low precision, CUDA's list of ops in float32")
        if self._library is not None:
            return
        self._library = torch.library.Library("aten", "IMPL")
        for names, kernel in (
            (_FLOAT32, _in_float32),
            (_WITH_DTYPE, _to_float32),
            (_LOWERED, _lowered),
            (_PROMOTED, _promoted),
        ):
            for name in names.split():
                function = kernel(_overload(name))
                self._library.impl(name, function, "AutocastCPU", allow_override=True)

    def close(self) -> None:
        """Torch's own again."""
        if self._library is not None:
            self._library._destroy()
            self._library = None


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


@contextmanager
def _without() -> Iterator[None]:
    """The op itself runs outside of autocast."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        yield


def _in_float32(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without():
            return op(*map(_raised, args), **{k: _raised(v) for k, v in kwargs.items()})

    return kernel


def _to_float32(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without():
            if args[0].dtype in _HALVES and kwargs.get("dtype") is None:
                positions = [a.name for a in op._schema.arguments]
                given = len(args) > positions.index("dtype")
                place = positions.index("dtype")
                if given and args[place] is None:
                    args = (*args[:place], torch.float32, *args[place + 1 :])
                elif not given:
                    kwargs = {**kwargs, "dtype": torch.float32}
            return op(*args, **kwargs)

    return kernel


def _lowered(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype("cpu")
        with _without():
            return op(*(_lower(value, dtype) for value in args), **kwargs)

    return kernel


def _promoted(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)]
        wide = any(v.dtype is torch.float32 for v in given)
        change = _raised if wide else _unchanged
        with _without():
            return op(*map(change, args), **{k: change(v) for k, v in kwargs.items()})

    return kernel


def _unchanged(value: Any) -> Any:
    return value


def _raised(value: Any) -> Any:
    halves = isinstance(value, Tensor) and value.dtype in _HALVES
    return value.to(torch.float32) if halves else value


def _lower(value: Any, dtype: torch.dtype) -> Any:
    lowered = isinstance(value, Tensor) and value.dtype is torch.float32
    return value.to(dtype) if lowered else value
