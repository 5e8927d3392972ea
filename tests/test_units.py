"""Numbers to text and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftile import units
from rooftile.errors import InputError


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (units.flop, 0, "0 FLOP"),
        (units.flop, 999, "999 FLOP"),
        (units.flop, 30_739_080_937_472, "30.74 TFLOP"),
        (units.flop, 999_999_999, "1 GFLOP"),
        (units.flop_rate, 989.4e12, "989.4 TFLOP/s"),
        (units.traffic, 2**30, "1.074 GB"),
        (units.traffic, 67_108_864, "67.11 MB"),
        (units.bandwidth, 3.35e12, "3.35 TB/s"),
        (units.capacity, 5 * 2**28, "1.25 GiB"),
        (units.capacity, 228 * 1024, "228 KiB"),
        (units.capacity, 512, "512 B"),
        (units.seconds, 0, "0 s"),
        (units.seconds, 2e-6, "2 us"),
        (units.seconds, 1.0107e-3, "1.011 ms"),
        (units.seconds, 0.99999e-3, "1 ms"),
        (units.seconds, 12.5, "12.5 s"),
        (units.seconds, 3e-10, "0.3 ns"),
        (units.intensity, 0.375, "0.375"),
        (units.intensity, 682.6667, "682.7"),
        (units.intensity, 12_345.6, "12,346"),
        (units.count, 30_739_080_937_472, "30,739,080,937,472"),
    ],
)
def test_numbers_to_text(function, value, text):
    """Four digits, the unit's own prefix, decimal for traffic and binary for capacity."""
    assert function(value) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0.621, 1, "62.1 %"),
        (1.26e12, 990e12, "0.13 %"),
        (0, 1, "0.00 %"),
        (1, 1, "100.0 %"),
        (99_999, 100_000, ">99.9 %"),
        (1e-6, 1, "<0.01 %"),
        (0, 0, "-"),
    ],
)
def test_percent_never_rounds_a_rest_away(part, whole, text):
    """Almost everything is not everything, and almost nothing is not nothing."""
    assert units.percent(part, whole) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12288", 12288),
        ("1.5e9", 1.5e9),
        ("3.2G", 3.2e9),
        ("3.2 g", 3.2e9),
        ("12,288", 12288),
        ("12_288", 12288),
        ("1.25GiB", 1.25 * 2**30),
        ("1.25 gb", 1.25e9),
        ("989.4 TFLOP/s", 989.4e12),
        ("3.35TB/s", 3.35e12),
        (".5k", 500),
        ("1E3", 1000),
        ("2E", 2e18),
        ("7 FLOPs", 7),
    ],
)
def test_text_to_number(text, value):
    """Exponents, prefixes, separators and units are read."""
    assert units.parse_quantity(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    "text", ["", "abc", "1.2.3", "3.2X", "nan", "inf", "1e999", "12 GW", "--3"]
)
def test_text_that_is_no_number_is_refused(text):
    """The message names the argument and shows what came."""
    with pytest.raises(InputError, match="--flops") as caught:
        units.parse_quantity(text, "--flops")
    assert repr(text) in str(caught.value)


@given(st.floats(min_value=1e-3, max_value=1e20))
def test_what_is_printed_reads_back(value):
    """Text of FLOP, traffic and capacity is within its four digits of the number."""
    for write in (units.flop, units.traffic, units.capacity, units.bandwidth):
        assert units.parse_quantity(write(value)) == pytest.approx(value, rel=6e-4)
