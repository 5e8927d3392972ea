"""Numbers that follow from a measurement."""

from __future__ import annotations

import measurements
import pytest

from rooftile.records.io import from_json, to_json
from rooftile.records.measurement import Measurement


def test_median_and_spread():
    """Of 1 to 5 ms: 3, and the fifths from 1.8 to 4.2."""
    row = measurements.measurement(seconds=(5e-3, 1e-3, 4e-3, 2e-3, 3e-3))
    assert row.median_s == 3e-3
    assert row.spread_s == pytest.approx((1.8e-3, 4.2e-3))
    assert measurements.measurement(seconds=(2e-3,)).spread_s == (2e-3, 2e-3)


def test_ratios_of_a_row():
    """0.25 ms beside a copy of 0.2 and a peer of 0.3."""
    row = measurements.measurement()
    assert row.ratio_to_copy == pytest.approx(0.8)
    assert row.ratio_to_best_peer == pytest.approx(1.2)
    assert row.fraction_of_bandwidth == pytest.approx(2**30 / 0.25e-3 / 4.8e12)
    assert row.ratio_to_matmul is None
    assert measurements.product().ratio_to_matmul == pytest.approx(500 / 700)
    assert measurements.product().fraction_of_peak == pytest.approx(500 / 989.5)


def test_without_times_there_are_no_numbers():
    """None, never 0."""
    row = measurements.measurement(seconds=())
    assert not row.timed
    numbers = (row.median_s, row.spread_s, row.bytes_per_s, row.flops_per_s, row.ratio_to_copy,
               row.ratio_to_best_peer, row.ratio_to_matmul, row.fraction_of_bandwidth,
               row.fraction_of_peak)  # fmt: skip
    assert numbers == (None,) * len(numbers)


def test_an_unknown_gpu_has_no_fractions():
    """Nothing is guessed where there is no datasheet."""
    row = measurements.measurement(bandwidth_bytes_per_s=None, peak_flops_per_s=None)
    assert (row.fraction_of_bandwidth, row.fraction_of_peak) == (None, None)


@pytest.mark.parametrize("row", [*measurements.sweep(), measurements.product()])
def test_a_measurement_comes_back_equal(row):
    """Through JSON, its environment and its cost with it."""
    assert from_json(to_json(row), Measurement) == row
