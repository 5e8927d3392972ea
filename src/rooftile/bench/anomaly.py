"""Faster than the theoretical peak: an error in a formula or a time, never a fast kernel."""

from __future__ import annotations

from rooftile.bench.environment import datasheet
from rooftile.records.measurement import Measurement
from rooftile.spec.peaks import peak


def peaks(row: Measurement) -> tuple[float | None, float | None]:
    """Bandwidth [B/s] and peak [FLOP/s] that the datasheet gives for this work; None if unknown."""
    device = datasheet(row.environment)
    if device is None:
        return None, None
    matrix = bool(row.cost.matrix_flops)
    roof = peak(device, row.cost.math if matrix else row.cost.vector_math, vector=not matrix)
    return device.bandwidth.value, roof


def anomaly(row: Measurement) -> str:
    """What cannot be about a row's speed; "" for one within the datasheet.

    A warm cache may feed more bytes than the memory.
    """
    fraction, of_peak = row.fraction_of_bandwidth, row.fraction_of_peak
    if fraction is not None and fraction > 1 and row.cache != "warm":
        bandwidth = row.bandwidth_bytes_per_s or 0.0
        return (
            f"{(row.bytes_per_s or 0.0) / 1e9:.0f} GB/s is above the theoretical "
            f"{bandwidth / 1e9:.0f} GB/s of {row.environment.gpu}: bytes or time are wrong"
        )
    if of_peak is not None and of_peak > 1:
        peak_flops = row.peak_flops_per_s or 0.0
        return (
            f"{of_peak * peak_flops / 1e12:.0f} TFLOP/s is above the theoretical "
            f"{peak_flops / 1e12:.0f} TFLOP/s of {row.environment.gpu}: FLOP or time are wrong"
        )
    return ""
