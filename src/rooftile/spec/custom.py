"""A GPU that is in no table: from two numbers, or from a JSON file.

The file is one object. Peaks are dense; leave out what the GPU does not have::

    {
      "name": "My accelerator",
      "peaks_tflops": {"bf16": 990, "fp32": 67},
      "bandwidth_gbs": 3350,
      "memory_gib": 80,
      "l2_mib": 50,
      "l2_bandwidth_gbs": 5500,
      "units": 132,
      "target": "sm_90",
      "launch_us": 2,
      "base": "h100-sxm"
    }

``name``, ``peaks_tflops`` and ``bandwidth_gbs`` are required, unless ``base`` names a known GPU:
its figures then stand for all that the file does not give. The rest may be left out. Tensor-core
fp64 and AMD's matrix fp32 have keys of their own, ``fp64_tensor`` and ``fp32_matrix``.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rooftile.errors import FileFormatError, InputError
from rooftile.records.device import Device, Figure, MemoryLevel
from rooftile.spec import devices

MATH_KEYS = (
    "fp64",
    "fp64_tensor",
    "fp32",
    "fp32_matrix",
    "tf32",
    "fp16",
    "bf16",
    "fp8",
    "fp6",
    "fp4",
    "int8",
    "int4",
)
"""Every key that ``Device.peaks`` may have."""

_NUMBERS = (
    "bandwidth_gbs",
    "memory_gib",
    "l2_mib",
    "l2_bandwidth_gbs",
    "units",
    "launch_us",
)
_TEXTS = ("name", "target", "base")
_FIELDS = (*_TEXTS, "peaks_tflops", *_NUMBERS)
_UNKNOWN = Figure(None, "not given", "user")


def custom_device(
    peak_tflops: float | None = None,
    bandwidth_gbs: float | None = None,
    *,
    base: Device | None = None,
    math_key: str | None = None,
    name: str = "custom",
) -> Device:
    """A GPU from a peak and a bandwidth.

    Args:
        peak_tflops: Dense peak [TFLOP/s].
        bandwidth_gbs: Bandwidth of device memory [GB/s, decimal].
        base: A known GPU whose figures stand where none is given.
        math_key: Which peak is meant: ``"bf16"``, ... None: one roof for all work, matrix and
            vector, of every dtype.
        name: What to call it.

    Returns:
        The GPU, its given figures marked ``"user"``.

    Raises:
        InputError: A figure is not a positive number, or one is missing and there is no base.
    """
    if base is None and (peak_tflops is None or bandwidth_gbs is None):
        missing = "peak_tflops" if peak_tflops is None else "bandwidth_gbs"
        raise InputError(f"{missing} must be given for a GPU that is in no table, got nothing")
    given = "given by the user"
    peaks: dict[str, float] = {}
    if peak_tflops is not None:
        peaks = dict.fromkeys(_keys(base, math_key), _positive("peak_tflops", peak_tflops) * 1e12)
    numbers = {}
    if bandwidth_gbs is not None:
        numbers["bandwidth_gbs"] = _positive("bandwidth_gbs", bandwidth_gbs)
    return _assemble(name if base is None else base.name, peaks, numbers, base, given)


def _keys(base: Device | None, math_key: str | None) -> tuple[str, ...]:
    """Which peaks one given number replaces: all the GPU has, or the matrix roof of one kind."""
    if math_key is not None:
        return {"fp64": ("fp64", "fp64_tensor"), "fp32": ("fp32", "fp32_matrix")}.get(
            math_key, (math_key,)
        )
    if base is None:
        return MATH_KEYS
    return tuple(key for key, figure in base.peaks.items() if figure.value is not None)


def device_from_file(path: str | Path) -> Device:
    """A GPU from a JSON file; the module's docstring shows the format.

    Args:
        path: The file.

    Returns:
        The GPU, its given figures marked ``"user"``.

    Raises:
        FileFormatError: The file cannot be read, is no JSON object (truncated, say), lacks a
            required field or has one of a wrong kind.
        UnknownDeviceError: ``base`` is no known GPU.
    """
    path = Path(path)
    fields = _read(path)
    base = devices.device(fields["base"]) if "base" in fields else None
    required = () if base else ("name", "peaks_tflops", "bandwidth_gbs")
    for field in required:
        if field not in fields:
            raise FileFormatError(f"{path}: {field!r} must be given, or 'base' with a known GPU")
    peaks = {key: value * 1e12 for key, value in fields.get("peaks_tflops", {}).items()}
    numbers = {field: fields[field] for field in _NUMBERS if field in fields}
    name = fields.get("name", base.name if base else "")
    made = _assemble(name, peaks, numbers, base, f"given in {path.name}")
    return dataclasses.replace(made, target=fields.get("target", made.target))


def _read(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # bad JSON or bad UTF-8
        raise FileFormatError(f"{path}: must be a JSON file of a GPU's figures: {error}") from error
    if not isinstance(loaded, dict):
        raise FileFormatError(f"{path}: must hold a JSON object, got {type(loaded).__name__}")
    unknown = [field for field in loaded if field not in _FIELDS]
    if unknown:
        raise FileFormatError(
            f"{path}: field must be one of {', '.join(_FIELDS)}, got {unknown[0]!r}"
        )
    _check(path, loaded)
    return loaded


def _check(path: Path, loaded: Mapping[str, Any]) -> None:
    peaks = loaded.get("peaks_tflops", {})
    if not isinstance(peaks, dict) or ("peaks_tflops" in loaded and not peaks):
        raise FileFormatError(f"{path}: peaks_tflops must be an object such as {{'bf16': 990}}")
    for key in peaks:
        if key not in MATH_KEYS:
            raise FileFormatError(
                f"{path}: key of peaks_tflops must be one of {', '.join(MATH_KEYS)}, got {key!r}"
            )
    for field in _TEXTS:
        if not isinstance(loaded.get(field, "x"), str) or loaded.get(field, "x") == "":
            raise FileFormatError(f"{path}: {field} must be text, got {loaded[field]!r}")
    numbers = {field: loaded[field] for field in _NUMBERS if field in loaded}
    for field, value in [*numbers.items(), *peaks.items()]:
        try:
            _positive(field, value)
        except InputError as error:
            raise FileFormatError(f"{path}: {error}") from error


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} must be a positive number, got {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a positive number, got {value!r}")
    return float(value)


def _assemble(
    name: str,
    peaks: Mapping[str, float],
    numbers: Mapping[str, float],
    base: Device | None,
    source: str,
) -> Device:
    """The base's figures, or none, with the given ones over them."""
    start = base or _blank(name)

    def figure(field: str, scale: float, old: Figure) -> Figure:
        return Figure(numbers[field] * scale, source, "user") if field in numbers else old

    replaced = {key: Figure(value, source, "user") for key, value in peaks.items()}
    what = [*peaks, *numbers]
    made = dataclasses.replace(
        start,
        name=name,
        peaks={**start.peaks, **replaced},
        bandwidth=figure("bandwidth_gbs", 1e9, start.bandwidth),
        memory_bytes=figure("memory_gib", 2**30, start.memory_bytes),
        l2_bytes=figure("l2_mib", 2**20, start.l2_bytes),
        units=figure("units", 1, start.units),
        launch_s=figure("launch_us", 1e-6, start.launch_s),
        notes=(*start.notes, f"{source}: {', '.join(what)}") if base else (),
    )
    return dataclasses.replace(made, hierarchy=_levels(made, numbers, source))


def _blank(name: str) -> Device:
    return Device(
        id="custom",
        name=name,
        vendor="user",
        target="",
        peaks={},
        bandwidth=_UNKNOWN,
        memory_bytes=_UNKNOWN,
        l2_bytes=_UNKNOWN,
        units=_UNKNOWN,
        launch_s=Figure(devices.LAUNCH_S, "assumed until calibrated: 2 us a kernel", "C"),
    )


def _levels(made: Device, numbers: Mapping[str, float], source: str) -> tuple[MemoryLevel, ...]:
    """The base's levels with the given figures over them; without a base, a cache and a memory."""
    blank = (MemoryLevel("L2", None, None, ""), MemoryLevel("device memory", None, None, ""))
    *inner, cache, memory = made.hierarchy or blank
    if "l2_mib" in numbers or "l2_bandwidth_gbs" in numbers:
        cache = _given(cache, numbers.get("l2_mib"), numbers.get("l2_bandwidth_gbs"), 2**20, source)
    if "memory_gib" in numbers or "bandwidth_gbs" in numbers:
        memory = _given(
            memory, numbers.get("memory_gib"), numbers.get("bandwidth_gbs"), 2**30, source
        )
    return (*inner, *([cache] if cache.source else []), memory)


def _given(
    level: MemoryLevel, size: float | None, rate_gbs: float | None, unit: int, source: str
) -> MemoryLevel:
    return MemoryLevel(
        level.name,
        level.capacity_bytes if size is None else int(size * unit),
        level.bandwidth_bytes_per_s if rate_gbs is None else rate_gbs * 1e9,
        f"{source}; {level.source}" if level.source else source,
    )
