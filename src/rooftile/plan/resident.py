"""How many blocks are resident: the rules alone, 200,000 answers a second.

Source: as ``rooftile.plan.occupancy``.
"""

from __future__ import annotations

from typing import NamedTuple

from rooftile.spec.limits import AmdLimits, Limits, NvidiaLimits

UNLIMITED = 2**31 - 1


class Resident(NamedTuple):
    """Resident blocks, and what each resource allows; UNLIMITED where it does not count."""

    blocks: int
    by_warps: int
    by_blocks: int
    by_registers: int
    by_shared: int
    by_barriers: int = UNLIMITED
    by_scalars: int = UNLIMITED


def resident(
    unit: Limits,
    threads: int,
    registers: int,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    barriers: int = 1,
    agprs: int = 0,
    sgprs: int | None = None,
    opt_in: bool = True,
    max_dynamic_shared: int | None = None,
    carveout: int = -1,
) -> Resident:
    """Resident blocks of a unit. Arguments are not checked: ``rooftile.plan.occupancy`` does that.

    Args:
        unit: Limits of the architecture.
        threads: Of a block, 1 or more.
        registers: Of a thread.
        static_shared: Shared memory in the binary [B].
        dynamic_shared: Shared memory of the launch [B].
        barriers: Named barriers of a block.
        agprs: AMD's accumulation registers.
        sgprs: AMD's scalar registers of a wave; None: they do not limit.
        opt_in: The kernel may have more than 48 KiB of shared memory.
        max_dynamic_shared: What it has opted in to [B]; None: as much as it needs.
        carveout: Shared part of the L1 asked for [%]; -1: the most.
    """
    if isinstance(unit, AmdLimits):
        return _amd(unit, threads, registers, agprs, static_shared + dynamic_shared, sgprs)
    warps = -(-threads // 32)
    by_warps = unit.max_warps_per_sm // warps if threads <= unit.max_threads_per_block else 0
    by_registers = _by_registers(unit, warps, registers)
    by_shared = _by_shared(
        unit, static_shared, dynamic_shared, opt_in, max_dynamic_shared, carveout
    )
    blocks = by_blocks = unit.max_blocks_per_sm
    if by_warps < blocks:
        blocks = by_warps
    if by_registers < blocks:
        blocks = by_registers
    if by_shared < blocks:
        blocks = by_shared
    if barriers and unit.barrier_slots_per_sm is not None:
        by_barriers = unit.barrier_slots_per_sm // barriers
        if by_barriers < blocks:
            blocks = by_barriers
        return Resident(blocks, by_warps, by_blocks, by_registers, by_shared, by_barriers)
    return Resident(blocks, by_warps, by_blocks, by_registers, by_shared)


def round_up(value: int, step: int) -> int:
    """The least multiple of a step that is not below the value."""
    return -(-value // step) * step


def _by_registers(unit: NvidiaLimits, warps: int, registers: int) -> int:
    """Registers are handed out per warp, from the sub-partition that runs it."""
    if registers > 256:  # the header's own bound; no compiler gives a thread more than 255
        return 0
    step = unit.register_granularity
    per_warp = -(-registers * 32 // step) * step
    if per_warp == 0:
        return UNLIMITED
    grain = unit.warp_granularity
    # a launch is checked as if warps came in fours; residence is not
    if per_warp * (-(-warps // grain) * grain) > unit.registers_per_block:
        return 0
    parts = unit.sub_partitions
    return (unit.registers_per_sm // parts // per_warp * parts) // warps


def _by_shared(
    unit: NvidiaLimits, static: int, dynamic: int, opt_in: bool, most: int | None, carveout: int
) -> int:
    """Shared memory: what the driver keeps counts too, even for a block that asks for none."""
    reserved = unit.shared_reserved_per_block
    step = unit.shared_granularity
    taken = -(-(static + dynamic + reserved) // step) * step
    limit = unit.shared_per_block_default
    if opt_in:
        allowed = dynamic if most is None else most
        if dynamic > allowed:
            return 0
        if static + reserved + allowed > limit:
            limit = unit.shared_per_block_optin
    if taken > reserved + limit:
        return 0
    if taken == 0:
        return UNLIMITED
    if carveout < 0:
        return unit.shared_per_sm // taken
    wanted = _carveout(unit, carveout * unit.shared_per_sm // 100)
    return (wanted if wanted >= taken else _carveout(unit, taken)) // taken


def _carveout(unit: NvidiaLimits, wanted: int) -> int:
    """The smallest size of the shared part that holds so much."""
    return next(size for size in unit.shared_carveouts if size >= wanted)


def _amd(
    unit: AmdLimits, threads: int, vgprs: int, agprs: int, lds: int, sgprs: int | None
) -> Resident:
    """Whole work-groups of a CU or WGP: its waves are spread over the SIMDs."""
    waves = -(-threads // unit.wavefront_size)
    slots = unit.max_waves_per_simd * unit.simds_per_unit
    fits = threads <= unit.max_threads_per_workgroup
    by_waves = slots // waves if fits else 0
    # the cap counts barriers, which a work-group of one wave does not need
    by_groups = UNLIMITED if waves == 1 else unit.max_workgroups_per_unit
    by_registers = by_scalars = UNLIMITED
    if vgprs or agprs:
        by_registers = _waves_by_vgprs(unit, vgprs, agprs) * unit.simds_per_unit // waves
    by_sgprs = unit.max_waves_per_simd if sgprs is None else waves_by_sgprs(unit, sgprs)
    if by_sgprs < unit.max_waves_per_simd:
        by_scalars = by_sgprs * unit.simds_per_unit // waves
    by_lds = UNLIMITED
    if lds:
        taken = -(-lds // unit.lds_granularity) * unit.lds_granularity
        by_lds = unit.lds_per_unit // taken if lds <= unit.max_lds_per_workgroup else 0
    blocks = min(by_waves, by_groups, by_registers, by_lds, by_scalars)
    return Resident(blocks, by_waves, by_groups, by_registers, by_lds, by_scalars=by_scalars)


def total_vgprs(unit: AmdLimits, vgprs: int, agprs: int) -> int:
    """Vector registers of a wave, both kinds, before the last rounding."""
    return round_up(vgprs, unit.agpr_granularity) + agprs if agprs else vgprs


def _waves_by_vgprs(unit: AmdLimits, vgprs: int, agprs: int) -> int:
    """Waves of a SIMD whose vector registers fit; 0 where one wave has more than it can."""
    total = total_vgprs(unit, vgprs, agprs)
    if total > unit.max_vgprs_per_wave_total:
        return 0
    return unit.vgprs_per_lane // round_up(max(1, total), unit.vgpr_granularity)


def waves_by_sgprs(unit: AmdLimits, sgprs: int) -> int:
    """Waves of a SIMD whose scalar registers fit, less the 16 kept for the trap handler."""
    if unit.sgprs_per_simd is None or unit.sgpr_granularity is None:
        return unit.max_waves_per_simd
    step = unit.sgpr_granularity
    for waves in range(unit.max_waves_per_simd, 0, -1):
        if sgprs <= (unit.sgprs_per_simd // waves - 16) // step * step:
            return waves
    return 0


def waves_per_simd(
    unit: AmdLimits, threads: int, vgprs: int, agprs: int, lds: int, sgprs: int | None
) -> int:
    """Waves of a SIMD as AMD's compiler prints them: a register limit per SIMD and a work-group
    limit per CU, the less of both, whether or not they make whole work-groups."""
    waves = -(-threads // unit.wavefront_size)
    slots = unit.max_waves_per_simd * unit.simds_per_unit
    groups = slots if waves == 1 else min(slots // waves, unit.max_workgroups_per_unit)
    if lds:
        groups = min(groups, max(1, unit.lds_per_unit // round_up(lds, unit.lds_granularity)))
    by_groups = min(unit.max_waves_per_simd, max(1, -(-groups * waves // unit.simds_per_unit)))
    by_vgprs = min(unit.max_waves_per_simd, max(1, _waves_by_vgprs(unit, vgprs, agprs)))
    by_sgprs = unit.max_waves_per_simd if sgprs is None else waves_by_sgprs(unit, sgprs)
    return min(by_groups, by_vgprs, by_sgprs)
