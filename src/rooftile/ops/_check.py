"""Input checks shared by the ops. Each raises InputError and names the argument."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

import torch
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._derivatives import check_derivative

FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_TRACED = (torch.SymFloat, torch.SymInt)
_MOST_FLOAT = torch.finfo(torch.float32).max
_LEAST_SOFTCAP = torch.finfo(torch.float32).tiny  # below it float32 has few digits, then none
_LEAST_INT, _MOST_INT = -(2**63), 2**63 - 1
_MOST_TEXT = 100  # characters of a wrong value that a message shows


def check_tensor(name: str, t: object) -> None:
    """A tensor whose elements lie at addresses with strides between them."""
    if not isinstance(t, Tensor):
        raise InputError(f"{name} must be a tensor, got {type(t).__name__}")
    if t.layout != torch.strided:
        raise InputError(f"{name} must be a dense tensor, got layout {t.layout}")
    if t.is_nested:
        raise InputError(f"{name} must be a dense tensor, got a nested one")


def check_float(name: str, t: Tensor) -> None:
    """The kernels compute in float32 from one of three dtypes."""
    check_tensor(name, t)
    check_dtype(name, t.dtype)
    check_derivative(name, t)


def check_dtype(name: str, dtype: torch.dtype) -> None:
    """One of the three that kernels read and write."""
    if dtype not in FLOAT_DTYPES:
        got = dtype if isinstance(dtype, torch.dtype) else shown(dtype)
        raise InputError(f"{name} must be float32, float16 or bfloat16, got {got}")


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
    dim = check_whole("dim", dim)
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
            f"normalized_shape must be a tuple or a list of integers, got {shown(normalized_shape)}"
        )
    normalized_shape = tuple([check_whole("normalized_shape", size) for size in normalized_shape])
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


def check_real(name: str, value: object) -> float:
    """A number, as a float; a traced one stays what it is. A tensor's value would be waited for."""
    if type(value) is float or isinstance(value, _TRACED):
        return value  # type: ignore[return-value]
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} must be a number, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{name} must be finite, got {shown(value)}") from None


def check_whole(name: str, value: object) -> int:
    """An integer of 64 bits, as an int; a traced one stays what it is."""
    if type(value) is not int:
        if isinstance(value, torch.SymInt):
            return value  # type: ignore[return-value]
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InputError(f"{name} must be an integer, got {shown(value)}")
        value = int(value)
    if not _LEAST_INT <= value <= _MOST_INT:
        raise InputError(f"{name} must be an integer of 64 bits, got {shown(value)}")
    return value


def check_finite(name: str, value: object) -> float:
    """A number that float32 holds, in which the kernels compute."""
    number = check_real(name, value)
    if not -math.inf < number < math.inf:
        raise InputError(f"{name} must be finite, got {number}")
    if not -_MOST_FLOAT <= number <= _MOST_FLOAT:
        raise InputError(f"{name} must be finite in float32, got {number}")
    return number


def check_number(name: str, value: object) -> float:
    """A number that is added or multiplied with: not below 0, not infinite, not NaN."""
    number = check_real(name, value)
    if not 0.0 <= number < math.inf:
        raise InputError(f"{name} must be finite and at least 0, got {number}")
    return check_finite(name, number)


def check_softcap(softcap: object) -> float:
    """A bound of logits, by which they are divided; 0: none."""
    number = check_number("softcap", softcap)
    if 0.0 < number < _LEAST_SOFTCAP:
        raise InputError(f"softcap must be 0 or at least {_LEAST_SOFTCAP}, got {number}")
    return number


def check_probability(name: str, p: object) -> float:
    """A probability lies in [0, 1]."""
    number = check_real(name, p)
    if not 0.0 <= number <= 1.0:
        raise InputError(f"{name} must be in [0, 1], got {number}")
    return number


def check_switch(name: str, value: object) -> bool:
    """True or False. A number or a word in its place is another argument's, one place off."""
    if type(value) is bool:
        return value
    if isinstance(value, torch.SymBool):
        return value  # type: ignore[return-value]
    raise InputError(f"{name} must be True or False, got {shown(value)}")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        words = ", ".join(choices[:-1])
        raise InputError(f"{name} must be {words} or {choices[-1]}, got {shown(value)}")


def check_approximate(approximate: str) -> None:
    """torch's names for the two forms of GELU."""
    check_choice("approximate", approximate, ("none", "tanh"))


def shown(value: object) -> str:
    """What came, in a line: a tensor's values are not fetched."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, int) and value.bit_length() > _MOST_TEXT:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to write out the largest
    text = repr(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
