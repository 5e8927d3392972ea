"""Input checks shared by the ops. Each raises InputError and names the argument."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rooftile.errors import InputError

FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_tensor(name: str, t: object) -> None:
    """A tensor whose elements lie at addresses with strides between them."""
    if not isinstance(t, Tensor):
        raise InputError(f"{name} must be a tensor, got {type(t).__name__}")
    if t.layout != torch.strided:
        raise InputError(f"{name} must be a dense tensor, got layout {t.layout}")


def check_float(name: str, t: Tensor) -> None:
    """The kernels compute in float32 from one of three dtypes."""
    check_tensor(name, t)
    check_dtype(name, t.dtype)


def check_dtype(name: str, dtype: torch.dtype) -> None:
    """One of the three that kernels read and write."""
    if dtype not in FLOAT_DTYPES:
        raise InputError(f"{name} must be float32, float16 or bfloat16, got {dtype}")


def check_shape(name: str, t: Tensor, expected: tuple[int, ...]) -> None:
    """A shape that must match another argument's."""
    check_tensor(name, t)
    if tuple(t.shape) != tuple(expected):
        raise InputError(f"{name} must have shape {list(expected)}, got {list(t.shape)}")


def check_like(name: str, t: Tensor, other_name: str, other: Tensor) -> None:
    """A tensor of the same shape, dtype and device as another."""
    check_shape(name, t, tuple(other.shape))
    if t.dtype != other.dtype:
        raise InputError(f"{name} must be {other.dtype} like {other_name}, got {t.dtype}")
    check_device(name, t, other_name, other)


def check_device(name: str, t: Tensor, other_name: str, other: Tensor) -> None:
    """Two tensors of one launch live on one device."""
    check_tensor(name, t)
    if t.device != other.device:
        raise InputError(f"{name} must be on {other.device} like {other_name}, got {t.device}")


def check_dim(dim: int, ndim: int) -> int:
    """A dimension's index, counted from 0. A scalar has the dimensions -1 and 0, as in torch."""
    least, most = (-ndim, ndim - 1) if ndim else (-1, 0)
    if not isinstance(dim, int):
        raise InputError(f"dim must be an integer, got {dim!r}")
    if not least <= dim <= most:
        raise InputError(f"dim must be in [{least}, {most}] for {ndim} dimensions, got {dim}")
    return dim % ndim if ndim else 0


def check_given(dim: int | None) -> int:
    """torch guesses a missing dim, and warns; a guess is refused here."""
    if dim is None:
        raise InputError("dim must be an integer, got None")
    return dim


def check_trailing(name: str, x: Tensor, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    """``normalized_shape`` names the last dimensions of x, one at least."""
    if not isinstance(normalized_shape, (tuple, list)):
        raise InputError(
            f"normalized_shape must be a tuple or a list of integers, got {normalized_shape!r}"
        )
    normalized_shape = tuple(normalized_shape)
    n = len(normalized_shape)
    if n == 0 or tuple(x.shape[x.dim() - n :]) != normalized_shape or n > x.dim():
        raise InputError(
            f"normalized_shape must be the last dimensions of {name}, of shape {list(x.shape)}, "
            f"got {list(normalized_shape)}"
        )
    return normalized_shape


def check_parameter(name: str, t: Tensor | None, shape: tuple[int, ...], x: Tensor) -> None:
    """A weight or a bias: of a floating-point dtype that may differ from x's."""
    if t is not None:
        check_float(name, t)
        check_shape(name, t, shape)
        check_device(name, t, "input", x)


def check_real(name: str, value: object) -> None:
    """A number, or what can be taken for one: a traced number, a tensor of one element."""
    if not isinstance(value, (int, float)) and not hasattr(value, "__float__"):
        raise InputError(f"{name} must be a number, got {value!r}")


def check_whole(name: str, value: object) -> None:
    """An integer, perhaps a traced one."""
    if not isinstance(value, int) and not hasattr(value, "__index__"):
        raise InputError(f"{name} must be an integer, got {value!r}")


def check_number(name: str, value: float) -> None:
    """A number that is added or multiplied with: not below 0, not infinite, not NaN."""
    check_real(name, value)
    if not 0.0 <= value < math.inf:
        raise InputError(f"{name} must be finite and at least 0, got {value}")


def check_probability(name: str, p: float) -> None:
    """A probability lies in [0, 1]."""
    check_real(name, p)
    if not 0.0 <= p <= 1.0:
        raise InputError(f"{name} must be in [0, 1], got {p}")


def check_approximate(approximate: str) -> None:
    """torch's names for the two forms of GELU."""
    if approximate not in ("none", "tanh"):
        raise InputError(f"approximate must be none or tanh, got {approximate!r}")
