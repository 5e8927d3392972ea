"""Dtypes against torch's own table."""

from __future__ import annotations

import pytest
import torch

from rooftile.errors import InputError
from rooftile.spec import dtypes

TORCH = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
}


@pytest.mark.parametrize("name", sorted(TORCH))
def test_itemsize_is_that_of_torch(name: str) -> None:
    """An element weighs what torch says, for every dtype that torch has."""
    assert dtypes.itemsize(name) == TORCH[name].itemsize
    assert dtypes.dtype(str(TORCH[name])).name == name


def test_no_dtype_is_invented() -> None:
    """The table holds the dtypes of torch and no other."""
    assert set(dtypes.names()) == set(TORCH)


@pytest.mark.parametrize(
    "alias", [n for n, value in vars(torch).items() if isinstance(value, torch.dtype)]
)
def test_torch_aliases_resolve(alias: str) -> None:
    """torch.half, torch.long and the like are known by those names too."""
    assert dtypes.dtype(alias).name == str(getattr(torch, alias)).removeprefix("torch.")


@pytest.mark.parametrize(
    ("name", "value_bits", "values", "size"),
    [
        ("float4_e2m1fn_x2", 4, 2, 1),
        ("quint4x2", 4, 2, 1),
        ("bits1x8", 1, 8, 1),
        ("int4", 4, 1, 1),
        ("bfloat16", 16, 1, 2),
        ("complex128", 128, 1, 16),
    ],
)
def test_bits_of_packed_formats(name: str, value_bits: int, values: int, size: int) -> None:
    """Packed formats count the bits of a value, the values of an element and its bytes apart."""
    found = dtypes.dtype(name)
    assert (found.bits, found.values, found.itemsize) == (value_bits, values, size)
    assert dtypes.bits(name) == value_bits


@pytest.mark.parametrize(
    ("name", "math"),
    [
        ("bf16", "bf16"),
        ("bfloat16", "bf16"),
        ("half", "fp16"),
        ("FP16", "fp16"),
        ("float32", "fp32"),
        ("float", "fp32"),
        ("tf32", "tf32"),
        ("torch.float64", "fp64"),
        ("fp8", "fp8"),
        ("float8_e5m2fnuz", "fp8"),
        ("mxfp4", "fp4"),
        ("fp6", "fp6"),
        ("uint8", "int8"),
        ("int4", "int4"),
        ("complex64", "fp32"),
        ("int64", ""),
        ("bool", ""),
        ("float8_e8m0fnu", ""),
    ],
)
def test_math_key(name: str, math: str) -> None:
    """Each name leads to the roof its products have."""
    assert dtypes.math_key(name) == math


def test_vector_key() -> None:
    """Only doubles have the double-precision vector roof."""
    assert dtypes.vector_key("complex128") == "fp64"
    assert dtypes.vector_key("bf16") == "fp32"
    assert dtypes.vector_key("int64") == "fp32"


def test_unknown_dtype_lists_near_names() -> None:
    """A slip of the pen is answered with what was meant."""
    with pytest.raises(InputError, match=r"dtype must be a torch dtype, got 'bfloat61'.*bfloat16"):
        dtypes.dtype("bfloat61")
    with pytest.raises(InputError, match="for example bfloat16"):
        dtypes.math_key("")
