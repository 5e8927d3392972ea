"""One kernel under a GPU's roofline: ``rooftile.roofline(...)``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooftile.records.device import Device
    from rooftile.records.roofline import Roofline


def roofline(
    flops: float | str,
    bytes: float | str,
    *,
    gpu: str | Device | None = None,
    dtype: str | None = None,
    peak_tflops: float | None = None,
    bandwidth_gbs: float | None = None,
    vector: bool = False,
    time_s: float | None = None,
) -> Roofline:
    """Say which wall a kernel hits on a GPU, and its least time.

    ``rooftile.roofline(12288, 32768, peak_tflops=990, bandwidth_gbs=3350)`` is the softmax of one
    row of 4096 floats: memory-bound, 0.13 % of the peak.

    Args:
        flops: The kernel's work [FLOP], a multiply-add counted 2: a number, or text such as
            ``"1.5e9"`` or ``"137 GFLOP"``.
        bytes: What it moves to and from device memory [B]: a number, or text such as ``"32 KiB"``.
        gpu: A GPU's name (``rooftile.gpus()`` lists them), the path of a JSON file, or a Device.
        dtype: What the arithmetic is done in: ``"bfloat16"``, ``"fp8"``, ``"tf32"``, ... Without
            ``gpu`` it may be left out: the one given peak is the roof of all work.
        peak_tflops: Dense peak [TFLOP/s], in place of the GPU's.
        bandwidth_gbs: Bandwidth of device memory [GB/s, decimal], in place of the GPU's.
        vector: The work is pointwise or a reduction, which no matrix unit does: its roof is that of
            fp32 (of fp64 for doubles).
        time_s: A measured time [s]: the result then also says what was achieved.

    Returns:
        Intensity, ridge, attainable FLOP/s, bound and the floors under the time.

    Raises:
        InputError: An argument is wrong, or the GPU has no arithmetic in that dtype.
        UnknownDeviceError: No GPU has that name. The message lists near ones.
        FileFormatError: The file is no description of a GPU.
    """
    from rooftile.api.device import choose_device
    from rooftile.cost import roofline as cost
    from rooftile.units import parse_quantity

    key = _math(dtype, vector=vector, needed=gpu is not None)
    device = choose_device(
        gpu, peak_tflops=peak_tflops, bandwidth_gbs=bandwidth_gbs, dtype=key or None
    )
    result = cost.roofline(
        parse_quantity(flops, "flops", "FLOP") if isinstance(flops, str) else flops,
        parse_quantity(bytes, "bytes", "B") if isinstance(bytes, str) else bytes,
        device,
        key or "fp32",  # without a dtype one given peak stands for all keys
        vector=vector,
        time_s=time_s,
    )
    return result if key else dataclasses.replace(result, math="")


def _math(dtype: str | None, *, vector: bool, needed: bool) -> str:
    """Key of the roof; "" where no dtype was given and none is needed."""
    from rooftile.errors import InputError
    from rooftile.spec.dtypes import math_key, vector_key

    if dtype is None:
        if needed:
            raise InputError("dtype must be given, such as bfloat16 or float32: peaks differ by it")
        return ""
    key = vector_key(dtype) if vector else math_key(dtype)
    if not key:
        raise InputError(
            f"dtype must be one that matrix units take, got {dtype!r}; give vector=True for"
            " pointwise work and reductions"
        )
    return key
