"""Which GPU is meant: a known one, one's own, or a known one with figures of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from rooftile.errors import InputError
from rooftile.records.device import Device


def choose_device(
    gpu: str | Device | None,
    *,
    peak_tflops: float | None = None,
    bandwidth_gbs: float | None = None,
    dtype: str | None = None,
    default: str | None = None,
) -> Device:
    """The GPU that the arguments name.

    Args:
        gpu: A known GPU's name, a JSON file (``*.json``) of a GPU, a record, or None.
        peak_tflops: Dense peak [TFLOP/s] of ``dtype`` instead of the known one.
        bandwidth_gbs: Bandwidth of device memory [GB/s, decimal] instead of the known one.
        dtype: Which peak is meant and must be there. Without a GPU's name the peak is the one roof
            of all work.
        default: The GPU where neither a name nor both figures are given; None: that is an error.

    Returns:
        The GPU, which has a peak for ``dtype`` if one is given.

    Raises:
        UnknownDeviceError: No such GPU; the message lists near names.
        InputError: The GPU has no peak for ``dtype``, or the arguments do not say which GPU or
            which of its peaks is meant.
        FileFormatError: The JSON file does not hold a GPU.
    """
    from rooftile.spec.custom import custom_device
    from rooftile.spec.dtypes import math_key
    from rooftile.spec.peaks import peak

    math = "" if dtype is None else math_key(dtype)
    complete = peak_tflops is not None and bandwidth_gbs is not None
    if gpu is None and not complete:
        gpu = default
        if gpu is None:
            raise InputError("gpu must be given, or both peak_tflops and bandwidth_gbs")
    base = None if gpu is None else _known(gpu)
    if peak_tflops is None and bandwidth_gbs is None:
        device = cast(Device, base)
    else:
        if base is not None and peak_tflops is not None and not math:
            raise InputError(f"dtype must say which peak of {base.id} peak_tflops is, got {dtype}")
        key = math if base is not None and peak_tflops is not None else None
        device = custom_device(peak_tflops, bandwidth_gbs, base=base, math_key=key)
    if math:
        peak(device, math)
    return device


def _known(gpu: str | Device) -> Device:
    """A GPU by name or out of a file."""
    from rooftile.records.io import read_record
    from rooftile.spec.custom import device_from_file
    from rooftile.spec.devices import device

    if isinstance(gpu, Device):
        return gpu
    if not isinstance(gpu, str):
        raise InputError(f"gpu must be a name, a JSON file or a Device, got {gpu!r}")
    if not gpu.lower().endswith(".json"):
        return device(gpu)
    return cast(Device, read_record(gpu)) if _is_record(Path(gpu)) else device_from_file(gpu)


def _is_record(path: Path) -> bool:
    """Whether a file is what ``rooftile gpus NAME --json`` prints, not figures written by hand."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):  # the reader of figures says what is wrong with it
        return False
    return (
        isinstance(content, dict)
        and content.get("kind") == Device.__dataclass_fields__["kind"].default
    )
