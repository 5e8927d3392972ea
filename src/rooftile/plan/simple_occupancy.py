"""Occupancy by the textbook's formula, and what the hardware does besides."""

from __future__ import annotations

from rooftile.errors import InputError
from rooftile.records.occupancy import SimpleOccupancy
from rooftile.spec.limits import Limits, NvidiaLimits, limits


def simple_occupancy(
    target: str | Limits, *, threads: int, registers: int, shared: int = 0
) -> SimpleOccupancy:
    """Occupancy as textbooks reckon it: three divisions and a minimum.

    Args:
        target: ``"sm_90"``, or limits.
        threads: Of a block.
        registers: Of a thread.
        shared: Shared memory of a block [B].

    Raises:
        InputError: A number is out of range, or the target is not known.
    """
    unit = limits(target) if isinstance(target, str) else target
    for name, value, least in (
        ("threads", threads, 1),
        ("registers", registers, 0),
        ("shared", shared, 0),
    ):
        if value < least:
            raise InputError(f"{name} must be {least} or more, got {value}")
    if isinstance(unit, NvidiaLimits):
        file, memory, cap = unit.registers_per_sm, unit.shared_per_sm, unit.max_blocks_per_sm
        warp, most = unit.warp_size, unit.max_warps_per_sm
    else:
        file, memory, cap = (
            unit.vgpr_file_bytes // 4,
            unit.lds_per_unit,
            unit.max_workgroups_per_unit,
        )
        warp, most = unit.wavefront_size, unit.max_waves_per_simd * unit.simds_per_unit
    blocks = cap
    if registers:
        blocks = min(blocks, file // (registers * threads))
    if shared:
        blocks = min(blocks, memory // shared)
    warps = blocks * -(-threads // warp)
    return SimpleOccupancy(
        target=unit.target,
        threads=threads,
        registers=registers,
        shared_bytes=shared,
        blocks=blocks,
        warps=warps,
        max_warps=most,
        occupancy=warps / most,
        leaves_out=_left_out(unit),
    )


def _left_out(unit: Limits) -> tuple[str, ...]:
    """What the hardware of this target does besides."""
    if not isinstance(unit, NvidiaLimits):
        return (
            f"registers are handed out in steps of {unit.vgpr_granularity}, within a SIMD",
            f"a work-group's shared memory is rounded up to {unit.lds_granularity} B",
            f"a SIMD runs at most {unit.max_waves_per_simd} waves",
        )
    left = (
        f"an SM runs at most {unit.max_warps_per_sm} warps, so the figure can exceed 100 %",
        f"a warp's registers are rounded up to {unit.register_granularity} and come from one of"
        f" {unit.sub_partitions} sub-partitions",
        f"a block's shared memory is rounded up to {unit.shared_granularity} B",
    )
    if not unit.shared_reserved_per_block:
        return left
    return (
        *left,
        f"the driver keeps {unit.shared_reserved_per_block} B of shared memory for each block",
    )
