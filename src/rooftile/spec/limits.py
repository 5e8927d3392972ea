"""What one SM or CU holds, per architecture: the limits that decide occupancy.

Source: ``data/arch.json``, which names for each figure where it was read: NVIDIA's occupancy header
and CCCL, AMD's ROCm documentation and LLVM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rooftile.errors import InputError


@dataclass(frozen=True, slots=True)
class NvidiaLimits:
    """One compute capability.

    Attributes:
        target: ``"sm_90"``.
        capability: ``"9.0"``.
        name: ``"Hopper"``.
        warp_size: Threads of a warp.
        max_threads_per_block: Largest block [threads].
        max_threads_per_sm: Resident threads.
        max_warps_per_sm: Resident warps.
        max_blocks_per_sm: Resident blocks.
        registers_per_sm: Register file [32-bit registers].
        registers_per_block: Most that one block may have [registers].
        max_registers_per_thread: Most that one thread may have.
        register_granularity: A warp's registers are rounded up to this [registers].
        sub_partitions: Schedulers of an SM; each owns an equal part of the register file.
        warp_granularity: The launch check rounds a block's warps up to this.
        shared_per_sm: Shared memory of an SM [B].
        shared_per_block_default: Most for a block that does not opt in [B].
        shared_per_block_optin: Most for a block that opts in [B].
        shared_reserved_per_block: Taken by the driver from each block [B].
        shared_granularity: A block's shared memory is rounded up to this [B].
        shared_carveouts: Sizes the shared part of the L1 can be set to [B], ascending.
        barrier_slots_per_sm: Named barriers of an SM; None where they are not counted.
    """

    target: str
    capability: str
    name: str
    warp_size: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    register_granularity: int
    sub_partitions: int
    warp_granularity: int
    shared_per_sm: int
    shared_per_block_default: int
    shared_per_block_optin: int
    shared_reserved_per_block: int
    shared_granularity: int
    shared_carveouts: tuple[int, ...]
    barrier_slots_per_sm: int | None


@dataclass(frozen=True, slots=True)
class AmdLimits:
    """One gfx target, per unit that holds a work-group: the CU, on RDNA the WGP of two CUs.

    Attributes:
        target: ``"gfx942"``.
        name: ``"CDNA3 MI300/MI325"``.
        unit: ``"CU"`` or ``"WGP"``.
        cus_per_unit: CUs of that unit.
        wavefront_size: Threads of a wave.
        simds_per_unit: SIMDs of the unit.
        max_waves_per_simd: Resident waves of a SIMD.
        max_workgroups_per_unit: Resident work-groups of more than one wave.
        max_threads_per_workgroup: Largest work-group [threads].
        vgprs_per_lane: Vector registers of a SIMD that each lane has, for all its waves together.
        max_vgprs_per_wave: Most architectural vector registers of a wave.
        max_vgprs_per_wave_total: The same with accumulation registers.
        vgpr_granularity: A wave's vector registers are rounded up to this.
        agpr_granularity: Where a wave also has accumulation registers, its architectural ones are
            first rounded up to this; 0 where there are no accumulation registers.
        vgpr_file_bytes: Vector register file of the unit [B].
        sgprs_per_simd: Scalar registers shared by the waves of a SIMD; None where each wave has a
            fixed set and they never limit.
        max_sgprs_per_wave: Most scalar registers of a wave; None likewise.
        sgpr_granularity: A wave's scalar registers are rounded up to this; None likewise.
        lds_per_unit: Shared memory of the unit [B].
        max_lds_per_workgroup: Most for one work-group [B].
        lds_granularity: A work-group's shared memory is rounded up to this, as the compiler
            reckons [B].
    """

    target: str
    name: str
    unit: str
    cus_per_unit: int
    wavefront_size: int
    simds_per_unit: int
    max_waves_per_simd: int
    max_workgroups_per_unit: int
    max_threads_per_workgroup: int
    vgprs_per_lane: int
    max_vgprs_per_wave: int
    max_vgprs_per_wave_total: int
    vgpr_granularity: int
    agpr_granularity: int
    vgpr_file_bytes: int
    sgprs_per_simd: int | None
    max_sgprs_per_wave: int | None
    sgpr_granularity: int | None
    lds_per_unit: int
    max_lds_per_workgroup: int
    lds_granularity: int


Limits = NvidiaLimits | AmdLimits


def limits(target: str, *, wave: int | None = None) -> Limits:
    """The limits of an architecture.

    Args:
        target: ``"sm_90"``, ``"sm_90a"``, ``"9.0"`` or ``"gfx942"``; feature suffixes such as
            ``:xnack-`` are passed over.
        wave: Threads of a wave, where the target has a choice (gfx1100: 32 or 64).

    Returns:
        NvidiaLimits or AmdLimits.

    Raises:
        InputError: The architecture is not known, or has no waves of that size. The message lists
            what is known.
    """
    key = _key(target)
    found = [
        entry for entry in _all() if entry.target == key and (wave is None or _wave(entry) == wave)
    ]
    if found:
        return found[0]
    sizes = [str(_wave(entry)) for entry in _all() if entry.target == key]
    if sizes:
        raise InputError(f"wave must be {' or '.join(sizes)} on {key}, got {wave}")
    known = ", ".join(targets())
    raise InputError(f"target must be one of {known}, got {target!r}")


def targets() -> tuple[str, ...]:
    """All known targets: ``"sm_70"`` ... ``"gfx1100"``."""
    return tuple(dict.fromkeys(entry.target for entry in _all()))


def _wave(entry: Limits) -> int:
    return entry.warp_size if isinstance(entry, NvidiaLimits) else entry.wavefront_size


def _key(target: str) -> str:
    key = target.strip().lower().split(":")[0]
    if re.fullmatch(r"\d+\.\d", key):
        return "sm_" + key.replace(".", "")
    return re.sub(r"^sm_?(\d+)[af]?$", r"sm_\1", key)


@cache
def _all() -> tuple[Limits, ...]:
    text = resources.files("rooftile.spec").joinpath("data/arch.json").read_text("utf-8")
    data = json.loads(text)
    nvidia = (_nvidia(capability, entry) for capability, entry in data["nvidia"].items())
    amd = (
        _amd(target, entry, wave)
        for target, entry in data["amd"].items()
        for wave in _wave_sizes(entry)
    )
    return (*nvidia, *amd)


def _value(entry: Mapping[str, Any], field: str) -> Any:
    return entry[field]["value"]


def _nvidia(capability: str, entry: Mapping[str, Any]) -> NvidiaLimits:
    same_name = (
        "warp_size",
        "max_threads_per_block",
        "max_threads_per_sm",
        "max_warps_per_sm",
        "max_blocks_per_sm",
        "registers_per_sm",
        "registers_per_block",
        "max_registers_per_thread",
        "sub_partitions",
        "shared_per_sm",
        "shared_per_block_default",
        "shared_per_block_optin",
        "shared_reserved_per_block",
        "barrier_slots_per_sm",
    )
    return NvidiaLimits(
        target="sm_" + capability.replace(".", ""),
        capability=capability,
        name=entry["name"],
        register_granularity=_value(entry, "register_allocation_granularity"),
        warp_granularity=_value(entry, "warp_allocation_granularity"),
        shared_granularity=_value(entry, "shared_allocation_granularity"),
        shared_carveouts=tuple(1024 * kib for kib in _value(entry, "shared_carveouts_kib")),
        **{field: _value(entry, field) for field in same_name},
    )


def _wave_sizes(entry: Mapping[str, Any]) -> tuple[int, ...]:
    """RDNA runs waves of 32 or 64; the file keys its registers by them."""
    lanes = _value(entry, "vgprs_per_simd_lane")
    if isinstance(lanes, dict):
        return tuple(int(key.removeprefix("wave")) for key in lanes)
    return (_value(entry, "wavefront_size"),)


def _amd(target: str, entry: Mapping[str, Any], wave: int) -> AmdLimits:
    return _cdna(target, entry) if "agpr_rule" in entry else _rdna(target, entry, wave)


def _cdna(target: str, entry: Mapping[str, Any]) -> AmdLimits:
    return AmdLimits(
        target=target,
        name=entry["name"],
        unit="CU",
        cus_per_unit=1,
        wavefront_size=_value(entry, "wavefront_size"),
        simds_per_unit=_value(entry, "simds_per_cu"),
        max_waves_per_simd=_value(entry, "max_waves_per_simd"),
        max_workgroups_per_unit=_value(entry, "max_workgroups_per_cu"),
        max_threads_per_workgroup=_value(entry, "max_threads_per_workgroup"),
        vgprs_per_lane=_value(entry, "vgprs_per_simd_lane"),
        max_vgprs_per_wave=_value(entry, "max_arch_vgprs_per_wave"),
        max_vgprs_per_wave_total=_value(entry, "max_vgprs_per_wave_total"),
        vgpr_granularity=_value(entry, "vgpr_allocation_granularity"),
        agpr_granularity=4,  # the file's agpr_rule, in words there
        vgpr_file_bytes=_value(entry, "vgpr_file_bytes_per_cu"),
        sgprs_per_simd=_value(entry, "sgprs_total_per_simd"),
        max_sgprs_per_wave=_value(entry, "max_sgprs_per_wave"),
        sgpr_granularity=_value(entry, "sgpr_allocation_granularity"),
        lds_per_unit=_value(entry, "lds_per_cu"),
        max_lds_per_workgroup=_value(entry, "max_lds_per_workgroup"),
        lds_granularity=_value(entry, "lds_allocation_granularity"),
    )


def _rdna(target: str, entry: Mapping[str, Any], wave: int) -> AmdLimits:
    """Of a work-group processor: two CUs that share their LDS, the mode kernels run in."""
    most = _value(entry, "max_vgprs_per_wave")
    return AmdLimits(
        target=target,
        name=entry["name"],
        unit="WGP",
        cus_per_unit=2,
        wavefront_size=wave,
        simds_per_unit=2 * _value(entry, "simds_per_cu"),
        max_waves_per_simd=_value(entry, "max_waves_per_simd"),
        max_workgroups_per_unit=32,  # in words in the file: 32 per WGP, 16 per CU
        max_threads_per_workgroup=_value(entry, "max_threads_per_workgroup"),
        vgprs_per_lane=_value(entry, "vgprs_per_simd_lane")[f"wave{wave}"],
        max_vgprs_per_wave=most,
        max_vgprs_per_wave_total=most,
        vgpr_granularity=_value(entry, "vgpr_allocation_granularity")[f"wave{wave}"],
        agpr_granularity=0,
        vgpr_file_bytes=_value(entry, "vgpr_file_bytes"),
        sgprs_per_simd=None,
        max_sgprs_per_wave=None,
        sgpr_granularity=None,
        lds_per_unit=_value(entry, "lds_per_wgp"),
        max_lds_per_workgroup=_value(entry, "max_lds_per_workgroup"),
        lds_granularity=_value(entry, "lds_allocation_granularity")["llvm_occupancy"],
    )
