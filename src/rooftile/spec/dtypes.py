"""Dtypes: their names in torch, what an element weighs, and which roof its arithmetic has."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from rooftile.errors import InputError


@dataclass(frozen=True, slots=True)
class DType:
    """A torch dtype.

    Attributes:
        name: As torch prints it, without ``torch.``: ``"bfloat16"``.
        itemsize: Bytes of one element in a tensor's storage, as ``torch.dtype.itemsize``.
        bits: Bits of one value.
        values: Values in one element: 2 for ``"float4_e2m1fn_x2"``.
        math: Key of the matrix roof: ``"bf16"``; "" where no matrix unit takes it.
    """

    name: str
    itemsize: int
    bits: int
    values: int
    math: str


def _entry(name: str, bits: int, math: str = "", itemsize: int = 0, values: int = 1) -> DType:
    return DType(name, itemsize or max(1, bits // 8), bits, values, math)


# A complex product is made of real ones, so complex work has the roof of its parts. Packed and
# sub-byte dtypes weigh what torch stores: int1 to int7 take a byte each, float4 comes in pairs.
_TABLE = (
    _entry("float64", 64, "fp64"),
    _entry("float32", 32, "fp32"),
    _entry("float16", 16, "fp16"),
    _entry("bfloat16", 16, "bf16"),
    _entry("float8_e4m3fn", 8, "fp8"),
    _entry("float8_e4m3fnuz", 8, "fp8"),
    _entry("float8_e5m2", 8, "fp8"),
    _entry("float8_e5m2fnuz", 8, "fp8"),
    _entry("float8_e8m0fnu", 8),  # a format of scales, no operand
    _entry("float4_e2m1fn_x2", 4, "fp4", values=2),
    _entry("complex32", 32, "fp16"),
    _entry("complex64", 64, "fp32"),
    _entry("complex128", 128, "fp64"),
    _entry("int64", 64),
    _entry("int32", 32),
    _entry("int16", 16),
    _entry("int8", 8, "int8"),
    _entry("uint64", 64),
    _entry("uint32", 32),
    _entry("uint16", 16),
    _entry("uint8", 8, "int8"),
    _entry("bool", 8),
    _entry("qint8", 8, "int8"),
    _entry("quint8", 8, "int8"),
    _entry("qint32", 32),
    _entry("quint4x2", 4, "int4", values=2),
    _entry("quint2x4", 2, values=4),
    *(
        _entry(f"{sign}int{n}", n, "int4" if n == 4 else "")
        for sign in ("", "u")
        for n in range(1, 8)
    ),
    _entry("bits8", 8),
    _entry("bits16", 16),
    _entry("bits1x8", 1, values=8),
    _entry("bits2x4", 2, values=4),
    _entry("bits4x2", 4, values=2),
)
_BY_NAME = {entry.name: entry for entry in _TABLE}

_ALIASES = {
    "double": "float64",
    "fp64": "float64",
    "f64": "float64",
    "float": "float32",
    "fp32": "float32",
    "f32": "float32",
    "half": "float16",
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "float8": "float8_e4m3fn",
    "e4m3": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "float8_e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "fp8_e5m2": "float8_e5m2",
    "e8m0": "float8_e8m0fnu",
    "fp4": "float4_e2m1fn_x2",
    "float4": "float4_e2m1fn_x2",
    "e2m1": "float4_e2m1fn_x2",
    "nvfp4": "float4_e2m1fn_x2",
    "mxfp4": "float4_e2m1fn_x2",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "char": "int8",
    "byte": "uint8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "bit": "uint1",
}

# Roofs that no dtype of torch names: an fp32 product in tf32 mode, six-bit floats.
_MATH_ONLY = ("tf32", "fp6", "int4")


def dtype(name: str) -> DType:
    """Look a dtype up by torch's name or by one that people use.

    Args:
        name: ``"bfloat16"``, ``"torch.bfloat16"``, ``"bf16"``, ``"half"``, ``"fp8"``, ...; case
            does not matter.

    Returns:
        The dtype.

    Raises:
        InputError: No dtype has that name. The message lists near ones.
    """
    found = _find(name)
    if found is None:
        raise _unknown(name)
    return found


def names() -> tuple[str, ...]:
    """Torch's names of all dtypes."""
    return tuple(_BY_NAME)


def itemsize(name: str) -> int:
    """Bytes of one element in a tensor's storage; raises InputError as :func:`dtype` does."""
    return dtype(name).itemsize


def bits(name: str) -> int:
    """Bits of one value; raises InputError as :func:`dtype` does."""
    return dtype(name).bits


def math_key(name: str) -> str:
    """Which matrix roof work in a dtype has.

    Args:
        name: A dtype as for :func:`dtype`, or a roof that no dtype names: ``"tf32"``, ``"fp6"``,
            ``"int4"``.

    Returns:
        ``"fp64"``, ``"fp32"``, ``"tf32"``, ``"fp16"``, ``"bf16"``, ``"fp8"``, ``"fp6"``, ``"fp4"``,
        ``"int8"`` or ``"int4"``; ``""`` for a dtype that no matrix unit takes. ``"float32"`` is
        ``"fp32"``: whether products run as tf32 instead is for the caller to know.

    Raises:
        InputError: Neither a dtype nor a roof. The message lists near names.
    """
    key = _plain(name)
    if key in _MATH_ONLY:
        return key
    return dtype(name).math


def vector_key(name: str) -> str:
    """Which vector roof work in a dtype has: ``"fp64"`` for doubles, else ``"fp32"``.

    Pointwise and reduction kernels compute half-precision data in float32.
    """
    return "fp64" if math_key(name) == "fp64" else "fp32"


def _plain(name: str) -> str:
    return name.strip().lower().removeprefix("torch.")


def _find(name: str) -> DType | None:
    key = _plain(name)
    return _BY_NAME.get(_ALIASES.get(key, key))


def _unknown(name: str) -> InputError:
    near = difflib.get_close_matches(_plain(name), [*_BY_NAME, *_ALIASES, *_MATH_ONLY], n=4)
    hint = f"near names: {', '.join(near)}" if near else "for example bfloat16, float16, float32"
    return InputError(f"dtype must be a torch dtype, got {name!r}; {hint}")
