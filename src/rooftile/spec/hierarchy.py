"""The memory levels of a GPU from the registers outward: capacity and peak bandwidth.

Capacities are those of the whole device. A bandwidth is given where the vendor publishes it or
publishes a rate per clock; each level says which, and None means that neither was found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooftile.errors import InputError
from rooftile.records.device import MemoryLevel
from rooftile.spec.limits import Limits, NvidiaLimits, limits

MHZ = 1e6
TB_S = 1e12

# Bytes a clock of one SM's or CU's shared memory: 32 banks of 4 B. CDNA 4 widened it and RDNA
# shares it between two CUs; no rate was found that could be cited for those two.
_SHARED_BYTES_PER_CLOCK = 128
_SHARED_RATE_UNKNOWN = ("gfx950", "gfx1100")

# Read bandwidth of the whole L2 [B/clk]. NVIDIA A100 whitepaper, which gives both figures. Keyed
# by chip and L2 capacity: the A30 has the A100's chip with part of its L2.
_L2_BYTES_PER_CLOCK = {("GV100", 6291456): 2048, ("GA100", 41943040): 5120}
_L2_SOURCE = "read, NVIDIA A100 whitepaper"

# AMD CDNA 3 whitepaper: an XCD's L2 reads 16 channels of 128 B each clock; the Infinity Cache's
# peak is printed for the whole device.
_CDNA3_L2_BYTES_PER_CLOCK_PER_XCD = 2048
_CDNA3_L2_BYTES_PER_XCD = 4 * 2**20
_CDNA3_INFINITY_CACHE = 17.2 * TB_S

# Caches that all SMs or CUs share, in the order of the hierarchy.
SHARED_CACHES = ("L2", "Infinity Cache")


def hierarchy(entry: Mapping[str, Any], target: str) -> tuple[MemoryLevel, ...]:
    """The memory levels of a GPU.

    Args:
        entry: The GPU's entry in ``data/gpus.json``, its sources in words.
        target: Its compiler target.

    Returns:
        Registers, shared memory, L2, Infinity Cache where there is one, device memory.
    """
    try:
        held: Limits | None = limits(target)
    except InputError:  # gfx908 and Intel's: their figures stay unknown
        held = None
    caches = [_infinity_cache(entry)] if "l3_bytes" in entry else []
    return (
        _registers(entry, target, held),
        _shared(entry, target, held),
        _l2(entry),
        *caches,
        _memory(entry),
    )


def _registers(entry: Mapping[str, Any], target: str, held: Limits | None) -> MemoryLevel:
    units = entry["sm_count"]["value"]
    unit = entry["unit"]
    if held is None or units is None:
        return MemoryLevel("registers", None, None, _missing(entry, target, held))
    if isinstance(held, NvidiaLimits):
        size = units * held.registers_per_sm * 4
        how = f"derived: {units} {unit} x {held.registers_per_sm} registers x 4 B"
    else:
        size = units // held.cus_per_unit * held.vgpr_file_bytes
        how = f"derived: {units // held.cus_per_unit} {held.unit} x {held.vgpr_file_bytes} B"
    return MemoryLevel("registers", size, None, f"{how}; bandwidth not published")


def _shared(entry: Mapping[str, Any], target: str, held: Limits | None) -> MemoryLevel:
    units = entry["sm_count"]["value"]
    clock = entry["boost_clock_mhz"]["value"]
    if held is None or units is None:
        return MemoryLevel("shared memory", None, None, _missing(entry, target, held))
    if isinstance(held, NvidiaLimits):
        size = units * held.shared_per_sm
        how = f"derived: {units} SM x {held.shared_per_sm} B"
    else:
        size = units // held.cus_per_unit * held.lds_per_unit
        how = f"derived: {units // held.cus_per_unit} {held.unit} x {held.lds_per_unit} B of LDS"
    if clock is None or target in _SHARED_RATE_UNKNOWN:
        return MemoryLevel("shared memory", size, None, f"{how}; bandwidth not found")
    rate = units * _SHARED_BYTES_PER_CLOCK * clock * MHZ
    how += f"; derived: {units} {entry['unit']} x {_SHARED_BYTES_PER_CLOCK} B/clk x {clock} MHz"
    return MemoryLevel("shared memory", size, rate, how)


def _l2(entry: Mapping[str, Any]) -> MemoryLevel:
    size = entry["l2_bytes"]["value"]
    clock = entry["boost_clock_mhz"]["value"]
    how = entry["l2_bytes"]["source"]
    wide = _L2_BYTES_PER_CLOCK.get((entry["chip"], size))
    if wide is not None and clock is not None:
        how += f"; derived: {wide} B/clk ({_L2_SOURCE}) x {clock} MHz"
        return MemoryLevel("L2", size, wide * clock * MHZ, how)
    if entry["architecture"] == "CDNA3":
        dies = size // _CDNA3_L2_BYTES_PER_XCD
        rate = dies * _CDNA3_L2_BYTES_PER_CLOCK_PER_XCD * clock * MHZ
        how += (
            f"; derived: {dies} XCD x {_CDNA3_L2_BYTES_PER_CLOCK_PER_XCD} B/clk (read, AMD CDNA 3"
            f" whitepaper) x {clock} MHz; an XCD reads its own part only"
        )
        return MemoryLevel("L2", size, rate, how)
    return MemoryLevel("L2", size, None, f"{how}; bandwidth not published")


def _infinity_cache(entry: Mapping[str, Any]) -> MemoryLevel:
    size = entry["l3_bytes"]["value"]
    how = entry["l3_bytes"]["source"]
    if entry["architecture"] == "CDNA3":
        how += "; bandwidth: AMD CDNA 3 whitepaper"
        return MemoryLevel("Infinity Cache", size, _CDNA3_INFINITY_CACHE, how)
    return MemoryLevel("Infinity Cache", size, None, f"{how}; bandwidth not found")


def _memory(entry: Mapping[str, Any]) -> MemoryLevel:
    kind = entry["memory_type"]["value"]
    name = next(family for family in ("HBM", "LPDDR", "GDDR") if kind.startswith(family))
    bandwidth = entry["memory_bandwidth_bytes_per_s"]
    how = f"{kind}; bandwidth: {bandwidth['source']}"
    return MemoryLevel(name, entry["memory_gb"]["value"] * 2**30, bandwidth["value"], how)


def _missing(entry: Mapping[str, Any], target: str, held: Limits | None) -> str:
    if held is None:
        return f"what one {entry['unit']} of {target} holds was not found"
    return f"number of {entry['unit']}s {entry['sm_count']['source']}"
