"""The plain formula: what one kernel saves of a chain."""

from __future__ import annotations

import pytest

import rooftile
from rooftile.errors import InputError

GIB = 2**30


def test_five_ops_over_8192_squared_in_two_bytes():
    """1.25 GiB become 0.25, 80 % less, five times."""
    chain = rooftile.fusion("8192x8192", 5)
    assert (chain.unfused_bytes, chain.fused_bytes) == (1.25 * GIB, 0.25 * GIB)
    assert (chain.saved_bytes / chain.unfused_bytes, chain.times_less) == (0.8, 5.0)


def test_four_bytes_double_both():
    """2.5 and 0.5 GiB; the ratio stands."""
    chain = rooftile.fusion(8192 * 8192, 5, dtype="fp32")
    assert (chain.unfused_bytes, chain.fused_bytes) == (2.5 * GIB, 0.5 * GIB)


def test_times_are_those_of_the_gpus_bandwidth():
    """0.25 GiB at 3.35 TB/s, five times before."""
    chain = rooftile.fusion("8192x8192", 5, gpu="h100-sxm")
    assert chain.fused_s == pytest.approx(0.25 * GIB / 3.35e12)
    assert chain.unfused_s == pytest.approx(1.25 * GIB / 3.35e12)


def test_a_chain_of_one_saves_nothing():
    """One kernel either way; so does one over nothing."""
    assert rooftile.fusion(1000, 1).saved_bytes == 0
    assert (rooftile.fusion(0, 5).saved_bytes, rooftile.fusion(0, 5).times_less) == (0, 1.0)


@pytest.mark.parametrize(
    ("elements", "ops", "dtype", "words"),
    [
        (-1, 5, "bf16", "elements must be at least 0, got -1"),
        ("8192x", 5, "bf16", "elements must be a number"),
        ("1.5", 5, "bf16", "elements must be whole"),
        (8, 0, "bf16", "ops must be at least 1, got 0"),
        (8, 5, "bf17", "dtype must be"),
    ],
)
def test_bad_numbers_are_refused(elements, ops, dtype, words):
    """The message names the argument."""
    with pytest.raises(InputError, match=words):
        rooftile.fusion(elements, ops, dtype=dtype)
