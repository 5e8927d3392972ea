"""What a launch asks for: its range, what it is rounded to, and why it does not fit."""

from __future__ import annotations

from rooftile.errors import InputError
from rooftile.plan.resident import Resident, resident, round_up, total_vgprs
from rooftile.spec.limits import Limits, NvidiaLimits


def warp_of(unit: Limits) -> int:
    """Threads of a warp or wave."""
    return unit.warp_size if isinstance(unit, NvidiaLimits) else unit.wavefront_size


def max_warps(unit: Limits) -> int:
    """Most resident warps of a unit."""
    if isinstance(unit, NvidiaLimits):
        return unit.max_warps_per_sm
    return unit.max_waves_per_simd * unit.simds_per_unit


def max_registers(unit: Limits) -> int:
    """Most registers of a thread, of the kind that a kernel without matrix work has."""
    if isinstance(unit, NvidiaLimits):
        return unit.max_registers_per_thread
    return unit.max_vgprs_per_wave


def allocated_registers(unit: Limits, registers: int, agprs: int) -> int:
    """Registers of a thread as they are handed out."""
    if isinstance(unit, NvidiaLimits):
        return round_up(registers, unit.register_granularity // unit.warp_size)
    return round_up(total_vgprs(unit, registers, agprs), unit.vgpr_granularity)


def allocated_shared(unit: Limits, shared: int) -> int:
    """Shared memory of a block as it is handed out [B]."""
    if isinstance(unit, NvidiaLimits):
        return round_up(shared + unit.shared_reserved_per_block, unit.shared_granularity)
    return round_up(shared, unit.lds_granularity)


def why_not(
    unit: Limits, now: Resident, threads: int, per_thread: int, shared: int, opt_in: bool = True
) -> str:
    """Why not one block fits: every resource that one block exceeds, in words; "" if it does."""
    reasons = []
    if now.by_registers == 0:
        fit = next(
            n for n in range(max_registers(unit), -1, -1) if resident(unit, threads, n).by_registers
        )
        reasons.append(
            f"{threads} threads of {per_thread} registers each, rounded, do not fit the register"
            f" file: at most {fit} a thread"
        )
    if now.by_shared == 0:
        if isinstance(unit, NvidiaLimits):
            most = unit.shared_per_block_optin if opt_in else unit.shared_per_block_default
        else:
            most = unit.max_lds_per_workgroup
        reasons.append(f"{shared:,} B of shared memory are wanted, a block can have {most:,} B")
    if now.by_barriers == 0:
        reasons.append("more named barriers are wanted than there are")
    if now.by_scalars == 0:
        reasons.append("more scalar registers are wanted than a wave can have")
    return "; ".join(reasons)


def check_launch(
    unit: Limits,
    threads: int,
    registers: int,
    static_shared: int,
    dynamic_shared: int,
    barriers: int,
    agprs: int,
    sgprs: int | None,
) -> None:
    """Refuse what no kernel has."""
    if isinstance(unit, NvidiaLimits):
        most_threads, most_agprs = unit.max_threads_per_block, 0
    else:
        most_threads = unit.max_threads_per_workgroup
        most_agprs = 256 if unit.agpr_granularity else 0
    ranges = (
        ("threads", threads, 1, most_threads),
        ("registers", registers, 0, max_registers(unit)),
        ("agprs", agprs, 0, most_agprs),
        ("barriers", barriers, 0, 64),
    )
    for name, value, least, most in ranges:
        if not least <= value <= most:
            raise InputError(f"{name} must be {least} to {most} on {unit.target}, got {value}")
    for name, value in (("static_shared", static_shared), ("dynamic_shared", dynamic_shared)):
        if value < 0:
            raise InputError(f"{name} must be 0 B or more, got {value}")
    if sgprs is not None and not 0 <= sgprs <= 128:
        raise InputError(f"sgprs must be 0 to 128, got {sgprs}")
