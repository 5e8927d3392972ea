"""Which peak a GPU offers to work of a given kind."""

from __future__ import annotations

from rooftile.errors import InputError
from rooftile.records.device import Device, Figure

# Where a kernel library goes first, then where it falls back to. A product in tf32 mode on hardware
# without tf32 runs in fp32. Nothing stands in for bf16 or fp8.
_MATRIX_KEYS = {
    "fp64": ("fp64_tensor", "fp64"),
    "fp32": ("fp32_matrix", "fp32"),
    "tf32": ("tf32", "fp32_matrix", "fp32"),
}
_VECTOR_KEYS = ("fp32", "fp64")

# How a source begins where the hardware may well have the format and nobody gave its rate.
_UNPUBLISHED = ("not published", "not found", "not confirmed")


def peak_key(device: Device, math: str, *, vector: bool = False) -> str:
    """The key of ``device.peaks`` that is the roof of such work.

    Args:
        device: The GPU.
        math: As ``rooftile.spec.dtypes.math_key`` gives it: ``"bf16"``, ``"tf32"``, ...
        vector: The work is pointwise or a reduction, which no matrix unit does: ``math`` is then
            ``"fp32"`` or ``"fp64"``.

    Returns:
        ``math`` itself, or what stands in for it: ``"fp64_tensor"`` for products of doubles,
        ``"fp32_matrix"`` for those of floats where a GPU has it, ``"fp32"`` for ``"tf32"`` where it
        has none.

    Raises:
        InputError: The GPU does not have the format, or nobody published its rate.
    """
    if vector and math not in _VECTOR_KEYS:
        raise InputError(f"math of vector work must be fp32 or fp64, got {math!r}")
    keys = (math,) if vector else _MATRIX_KEYS.get(math, (math,))
    for key in keys:
        figure = device.peaks.get(key)
        if figure is None:
            continue
        if figure.value is not None:
            return key
        if figure.source.startswith(_UNPUBLISHED):
            break
    raise _no_peak(device, math, device.peaks.get(math))


def peak_figure(device: Device, math: str, *, vector: bool = False) -> Figure:
    """The peak of such work with its source; arguments and errors as :func:`peak_key`."""
    return device.peaks[peak_key(device, math, vector=vector)]


def peak(device: Device, math: str, *, vector: bool = False) -> float:
    """The dense peak of such work [FLOP/s]; arguments and errors as :func:`peak_key`."""
    value = peak_figure(device, math, vector=vector).value
    assert value is not None  # peak_key gives keys of known figures alone
    return value


def unpublished(device: Device, math: str) -> bool:
    """Whether the GPU may well have a format that nobody gave the rate of.

    Args:
        device: The GPU.
        math: As for :func:`peak_key`.
    """
    figure = device.peaks.get(math)
    return figure is not None and figure.value is None and figure.source.startswith(_UNPUBLISHED)


def _no_peak(device: Device, math: str, figure: Figure | None) -> InputError:
    has = ", ".join(key for key, known in device.peaks.items() if known.value is not None)
    if figure is not None and figure.source.startswith(_UNPUBLISHED):
        why = f"its rate on {device.name} is {figure.source}"
    elif figure is not None and figure.source:
        why = f"{device.name} has no {math}: {figure.source}"
    else:
        why = f"there is no {math} figure for {device.name}"
    return InputError(f"dtype {math!r} has no peak on {device.id}: {why}; known peaks: {has}")
