"""One piece of work under a GPU's roofline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Achieved:
    """What a measured time makes of the work.

    Attributes:
        time_s: The measured time [s].
        flops_per_s: FLOP over it [FLOP/s].
        bytes_per_s: Bytes over it [B/s].
        fraction_of_peak: ``flops_per_s`` over the peak, 0 to 1.
        fraction_of_bandwidth: ``bytes_per_s`` over the bandwidth of device memory.
        fraction_of_attainable: ``flops_per_s`` over what the roofline allows; of work without FLOP,
            ``fraction_of_bandwidth``.
    """

    time_s: float
    flops_per_s: float
    bytes_per_s: float
    fraction_of_peak: float
    fraction_of_bandwidth: float
    fraction_of_attainable: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """FLOP and bytes on a GPU: which wall they hit, and the least time.

    Attributes:
        flops: The work [FLOP].
        bytes: What it moves to and from device memory [B].
        gpu: Id of the GPU.
        gpu_name: Its full name.
        math: Key of the peak: ``"bf16"``, ``"fp64_tensor"``; "" where the user gave one peak for
            all work.
        peak_flops_per_s: The roof [FLOP/s].
        peak_source: Where it comes from.
        bandwidth_bytes_per_s: Of device memory [B/s].
        bandwidth_source: Where it comes from.
        intensity: FLOP over bytes [FLOP/B]; None where nothing moves: it is infinite.
        ridge: Intensity from which on the peak can be had [FLOP/B].
        attainable_flops_per_s: The peak, or what the bandwidth feeds if that is less [FLOP/s].
        fraction_of_peak: Attainable over peak, 0 to 1.
        bound: ``"compute"`` from the ridge on, else ``"memory"``.
        launch_s: Launch floor of one kernel [s].
        compute_s: FLOP over the peak [s].
        l2_s: Bytes over the bandwidth of the last-level cache [s]; None where they do not fit or
            that bandwidth is not known.
        hbm_s: Bytes over the bandwidth of device memory [s].
        least_s: The largest of launch floor, ``compute_s`` and ``hbm_s`` [s]: caches cold.
        launch_bound: The launch floor is the largest of the three: the work is too small for its
            wall to matter.
        achieved: What a measured time makes of it, if one was given.
        kind: Tells this record's JSON from others.
    """

    flops: float
    bytes: float
    gpu: str
    gpu_name: str
    math: str
    peak_flops_per_s: float
    peak_source: str
    bandwidth_bytes_per_s: float
    bandwidth_source: str
    intensity: float | None
    ridge: float
    attainable_flops_per_s: float
    fraction_of_peak: float
    bound: Literal["memory", "compute"]
    launch_s: float
    compute_s: float
    l2_s: float | None
    hbm_s: float
    least_s: float
    launch_bound: bool
    achieved: Achieved | None = None
    kind: Literal["rooftile.roofline"] = "rooftile.roofline"
    schema_version: int = SCHEMA_VERSION
