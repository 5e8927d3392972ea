"""The roofline: what FLOP and bytes cost at least, and which wall they hit.

``attainable = min(peak, intensity x bandwidth)``. Source: Williams, Waterman and Patterson, CACM
52(4), 2009.
"""

from __future__ import annotations

import math as maths

from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.device import Device, Figure
from rooftile.records.estimate import Bound, Times
from rooftile.records.roofline import Achieved, Roofline
from rooftile.spec.hierarchy import SHARED_CACHES
from rooftile.spec.peaks import peak, peak_key


def ridge(device: Device, math: str, *, vector: bool = False) -> float:
    """Intensity from which on work reaches the peak [FLOP/B].

    Args:
        device: The GPU.
        math: Kind of arithmetic, as ``rooftile.spec.dtypes.math_key`` gives it.
        vector: The work is pointwise or a reduction: ``math`` is ``"fp32"`` or ``"fp64"``.

    Raises:
        InputError: The GPU has no such arithmetic.
    """
    return peak(device, math, vector=vector) / _known(device, "bandwidth", device.bandwidth)


def roofline(
    flops: float,
    bytes: float,
    device: Device,
    math: str,
    *,
    vector: bool = False,
    time_s: float | None = None,
) -> Roofline:
    """Place one kernel's FLOP and bytes under a GPU's roofline.

    Args:
        flops: The work [FLOP], a multiply-add counted 2.
        bytes: What it moves to and from device memory [B].
        device: The GPU.
        math: Kind of arithmetic, as ``rooftile.spec.dtypes.math_key`` gives it.
        vector: The work is pointwise or a reduction: ``math`` is ``"fp32"`` or ``"fp64"``.
        time_s: A measured time [s] to set against it.

    Returns:
        Intensity, ridge, attainable FLOP/s, bound and the floors under the time.

    Raises:
        InputError: FLOP or bytes are negative or not finite, or both are 0; the time is not
            positive; the GPU has no such arithmetic.
    """
    flops = _amount("flops", flops)
    bytes = _amount("bytes", bytes)
    if flops == 0 and bytes == 0:
        raise InputError("flops and bytes must not both be 0: there is no work")
    key = peak_key(device, math, vector=vector)
    top = peak(device, math, vector=vector)
    rate = _known(device, "bandwidth", device.bandwidth)
    launch = _known(device, "launch_s", device.launch_s)
    # by times, not by intensity: no division where nothing moves
    compute_s, hbm_s = flops / top, bytes / rate
    attainable = top if compute_s >= hbm_s else flops / hbm_s
    return Roofline(
        flops=flops,
        bytes=bytes,
        gpu=device.id,
        gpu_name=device.name,
        math=key,
        peak_flops_per_s=top,
        peak_source=device.peaks[key].source,
        bandwidth_bytes_per_s=rate,
        bandwidth_source=device.bandwidth.source,
        intensity=flops / bytes if bytes else None,
        ridge=top / rate,
        attainable_flops_per_s=attainable,
        fraction_of_peak=attainable / top,
        bound="compute" if compute_s >= hbm_s else "memory",
        launch_s=launch,
        compute_s=compute_s,
        l2_s=_cached_s(bytes, device),
        hbm_s=hbm_s,
        least_s=max(launch, compute_s, hbm_s),
        launch_bound=launch > max(compute_s, hbm_s),
        achieved=None if time_s is None else _achieved(flops, bytes, time_s, top, rate),
    )


def times(cost: Cost, device: Device) -> Times:
    """The floors under an op's time on a GPU.

    Args:
        cost: The op's work; matrix FLOP count as the mask leaves them.
        device: The GPU.

    Returns:
        The floors [s]. All are 0 for an op that launches no kernel.

    Raises:
        InputError: The work is negative, or the GPU has no such arithmetic.
    """
    for name in ("matrix_flops", "vector_flops", "read_bytes", "write_bytes", "kernels"):
        if getattr(cost, name) < 0:
            raise InputError(f"{name} must not be negative, got {getattr(cost, name)}")
    if cost.kernels == 0:
        return Times(0.0, 0.0, 0.0, 0.0, 0.0)
    matrix_s = cost.matrix_flops / peak(device, cost.math) if cost.matrix_flops else 0.0
    vector_s = 0.0
    if cost.vector_flops:
        vector_s = cost.vector_flops / peak(device, cost.vector_math, vector=True)
    hbm_s = cost.bytes / _known(device, "bandwidth", device.bandwidth)
    cached_s = _cached_s(cost.bytes, device)
    return Times(
        launch_s=cost.kernels * _known(device, "launch_s", device.launch_s),
        matrix_s=matrix_s,
        vector_s=vector_s,
        hbm_s=hbm_s,
        l2_s=hbm_s if cached_s is None else cached_s,
    )


def bound(cost: Cost, times: Times) -> Bound:
    """Which floor is the highest, with cold caches.

    Args:
        cost: The op's work.
        times: Its floors, from :func:`times`.

    Returns:
        ``"free"`` where no kernel runs, ``"launch"`` where the launch floor is above all others,
        ``"compute"`` where FLOP take at least as long as bytes, else ``"memory"``.
    """
    if cost.kernels == 0:
        return "free"
    compute_s = max(times.matrix_s, times.vector_s)
    if times.launch_s > max(compute_s, times.hbm_s):
        return "launch"
    return "compute" if compute_s >= times.hbm_s else "memory"


def _cached_s(bytes: float, device: Device) -> float | None:
    """Time of that traffic with all of it in the last-level cache, None where that is not known."""
    for level in reversed(device.hierarchy):
        if level.name in SHARED_CACHES:
            size, rate = level.capacity_bytes, level.bandwidth_bytes_per_s
            return None if size is None or rate is None or bytes > size else bytes / rate
    return None


def _achieved(flops: float, bytes: float, time_s: float, top: float, rate: float) -> Achieved:
    if not (maths.isfinite(time_s) and time_s > 0):
        raise InputError(f"time_s must be a positive time in seconds, got {time_s!r}")
    of_peak, of_bandwidth = flops / time_s / top, bytes / time_s / rate
    return Achieved(
        time_s=time_s,
        flops_per_s=flops / time_s,
        bytes_per_s=bytes / time_s,
        fraction_of_peak=of_peak,
        fraction_of_bandwidth=of_bandwidth,
        # on the slope both fractions are of the same roof
        fraction_of_attainable=max(of_peak, of_bandwidth),
    )


def _amount(name: str, value: float) -> float:
    try:
        amount = float(value)
    except OverflowError:
        amount = maths.inf
    if not (maths.isfinite(amount) and amount >= 0):
        raise InputError(f"{name} must be a finite number of at least 0, got {value!r:.30}")
    return amount


def _known(device: Device, name: str, figure: Figure) -> float:
    if figure.value is None:
        raise InputError(f"{name} of {device.name} must be known, got none: {figure.source}")
    return figure.value
