"""Make Triton's interpreter compute bfloat16 as numbers.

Triton keeps bfloat16 as raw uint16 and does integer arithmetic on it (seen in 3.6 to 3.9; upstream
issues 10945, 11584). Here such tensors become ``ml_dtypes.bfloat16`` arrays: numpy then rounds
every operation to nearest even, as PyTorch does. Import it after triton, before the first launch.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_BF16 = np.dtype(ml_dtypes.bfloat16)
_BUILDER = interpreter.InterpreterBuilder
_np_dtype = interpreter._get_np_dtype
_memory = interpreter._interpreter
_cast, _fp_to_fp, _dot = _BUILDER.cast_impl, _BUILDER.create_fp_to_fp, _BUILDER.create_dot
_CASTS = (
    "create_si_to_fp",
    "create_ui_to_fp",
    "create_fp_to_si",
    "create_fp_to_ui",
    "create_fp_ext",
    "create_fp_trunc",
)


def _get_np_dtype(t: Any) -> Any:
    return _BF16 if t == tl.bfloat16 else _np_dtype(t)


class _Memory:
    """The compiled loader knows no bfloat16: it moves as uint16."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_memory, name)

    @staticmethod
    def load(ptrs: Any, mask: Any, other: Any, dtype: Any) -> Any:
        if dtype != _BF16:
            return _memory.load(ptrs, mask, other, dtype)
        other = np.ascontiguousarray(other).view(np.uint16)
        return _memory.load(ptrs, mask, other, np.dtype(np.uint16)).view(_BF16)

    @staticmethod
    def store(ptrs: Any, value: Any, mask: Any) -> Any:
        value = np.asarray(value)
        if value.dtype == _BF16:
            value = np.ascontiguousarray(value).view(np.uint16)
        return _memory.store(ptrs, value, mask)


def _cast_impl(self: Any, src: Any, dst: Any) -> Any:
    if tl.bfloat16 not in (src.dtype.scalar, dst.scalar):
        return _cast(self, src, dst)
    data = np.asarray(src.data).astype(_get_np_dtype(dst.scalar))
    return interpreter.TensorHandle(data, dst.scalar)


def _create_fp_to_fp(self: Any, src: Any, dst: Any, mode: Any) -> Any:
    narrowest = min(src.dtype.scalar.primitive_bitwidth, dst.scalar.primitive_bitwidth)
    if tl.bfloat16 in (src.dtype.scalar, dst.scalar) and narrowest > 8:
        return _cast_impl(self, src, dst)
    if src.dtype.scalar == tl.bfloat16:
        return _fp_to_fp(self, _cast_impl(self, src, tl.float32), dst, mode)
    if dst.scalar == tl.bfloat16:
        return _cast_impl(self, _fp_to_fp(self, src, tl.float32, mode), dst)
    return _fp_to_fp(self, src, dst, mode)


def _create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
    def widen(h: Any) -> Any:
        if h.dtype.scalar != tl.bfloat16:
            return h
        return interpreter.TensorHandle(h.data.astype(np.float32), tl.float32)

    return _dot(self, widen(a), widen(b), d, precision, imprecise)


def install() -> None:
    """Replace the interpreter's handling of bfloat16, once for the process."""
    interpreter._get_np_dtype = _get_np_dtype
    interpreter._interpreter = _Memory()
    _BUILDER.cast_impl = _cast_impl
    _BUILDER.create_fp_to_fp = _create_fp_to_fp
    _BUILDER.create_dot = _create_dot
    for name in _CASTS:
        setattr(_BUILDER, name, lambda self, src, dst: self.cast_impl(src, dst))
    _BUILDER.create_int_cast = lambda self, src, dst, signed: self.cast_impl(src, dst)
    _BUILDER.get_bf16 = lambda self, value: interpreter.TensorHandle(
        np.array([value], dtype=_BF16), tl.bfloat16
    )
