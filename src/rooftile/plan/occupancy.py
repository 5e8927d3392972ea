"""Resident blocks of a kernel by the rules of the hardware, the limits that bind, the cliffs.

Source: NVIDIA's occupancy header of CUDA 13.0 and AMD's LLVM backend, in own words; both checked on
vectors of values that they return (``tests/data``). The numbers per architecture are
``rooftile.spec.limits``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rooftile.errors import InputError
from rooftile.plan.resident import (
    UNLIMITED,
    Resident,
    resident,
    round_up,
    total_vgprs,
    waves_per_simd,
)
from rooftile.records.occupancy import Cliff, Limit, Occupancy
from rooftile.records.resources import KernelResources
from rooftile.spec.limits import AmdLimits, Limits, NvidiaLimits, limits

_RESOURCES = ("warps", "blocks", "registers", "shared memory", "barriers", "scalar registers")


def occupancy(
    target: str | Limits,
    *,
    threads: int,
    registers: int = 0,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    barriers: int = 1,
    agprs: int = 0,
    sgprs: int | None = None,
    opt_in: bool = True,
    carveout: int = -1,
) -> Occupancy:
    """Resident blocks and warps, what binds, and where the next block is won or lost.

    Args:
        target: ``"sm_90"``, ``"gfx942"``, or limits.
        threads: Of a block.
        registers: Of a thread; on AMD architectural vector registers.
        static_shared: Shared memory in the binary [B].
        dynamic_shared: Shared memory of the launch [B].
        barriers: Named barriers of a block; count from compute capability 9.0 on.
        agprs: AMD's accumulation registers.
        sgprs: AMD's scalar registers of a wave, those of VCC and the like included.
        opt_in: The launch opts in to more than 48 KiB of shared memory where it needs it.
        carveout: Part of the L1 asked for as shared memory [%]; -1: the driver's choice, the most.

    Returns:
        The occupancy; ``launches`` is False where not even one block fits.

    Raises:
        InputError: A number is out of range for every kernel, or the target is not known.
    """
    unit = limits(target) if isinstance(target, str) else target
    _check(unit, threads, registers, static_shared, dynamic_shared, barriers, agprs, sgprs)
    if not -1 <= carveout <= 100:
        raise InputError(f"carveout must be 0 to 100 %, or -1, got {carveout}")

    def at(registers: int, dynamic: int) -> Resident:
        return resident(
            unit, threads, registers, static_shared, dynamic, barriers,
            agprs, sgprs, opt_in, None, carveout,
        )  # fmt: skip

    now = at(registers, dynamic_shared)
    per_block = -(-threads // _warp(unit))
    most = _max_warps(unit)
    cliffs = (
        *_register_cliffs(unit, registers, now, per_block, lambda n: at(n, dynamic_shared)),
        *_shared_cliffs(
            unit, static_shared, dynamic_shared, now, per_block, lambda n: at(registers, n)
        ),
    )
    per_thread = _allocated_registers(unit, registers, agprs)
    amd = isinstance(unit, AmdLimits)
    return Occupancy(
        target=unit.target,
        unit=unit.unit if isinstance(unit, AmdLimits) else "SM",
        threads=threads,
        registers=registers,
        accumulation_registers=agprs,
        scalar_registers=sgprs if amd else None,
        static_shared_bytes=static_shared,
        dynamic_shared_bytes=dynamic_shared,
        barriers=barriers,
        blocks=now.blocks,
        warps_per_block=per_block,
        warps=now.blocks * per_block,
        max_warps=most,
        occupancy=now.blocks * per_block / most,
        waves_per_simd=waves_per_simd(
            unit, threads, registers, agprs, static_shared + dynamic_shared, sgprs
        )
        if isinstance(unit, AmdLimits)
        else None,
        limits=_limits(unit, now),
        limiting=limiting(now),
        allocated_registers_per_thread=per_thread,
        allocated_registers_per_block=per_thread * per_block * _warp(unit),
        allocated_shared_bytes=_allocated_shared(unit, static_shared + dynamic_shared),
        launches=now.blocks > 0,
        reason=""
        if now.blocks
        else _why_not(unit, now, threads, per_thread, static_shared + dynamic_shared, opt_in),
        cliffs=cliffs,
    )


def kernel_occupancy(target: str | Limits, kernel: KernelResources) -> Occupancy:
    """The same of a compiled kernel."""
    return occupancy(
        target,
        threads=kernel.threads,
        registers=kernel.registers,
        static_shared=kernel.static_shared_bytes,
        dynamic_shared=kernel.dynamic_shared_bytes,
        barriers=max(1, kernel.barriers),
        agprs=kernel.accumulation_registers,
        sgprs=kernel.scalar_registers,
    )


def limiting(now: Resident) -> tuple[str, ...]:
    """The resources that allow no more than the resident blocks."""
    return tuple(
        name for name, blocks in zip(_RESOURCES, now[1:], strict=True) if blocks == now.blocks
    )


def suggested_block(unit: NvidiaLimits, registers: int, static_shared: int = 0, dynamic_shared: int
                    = 0) -> int:  # fmt: skip
    """The largest block [threads] with the most resident threads; 0 where none can launch."""
    best, best_threads = 0, 0
    for threads in range(unit.max_threads_per_block, 0, -unit.warp_size):
        total = threads * resident(unit, threads, registers, static_shared, dynamic_shared).blocks
        if total > best_threads:
            best, best_threads = threads, total
        if best_threads == unit.max_threads_per_sm:
            break
    return best


def _warp(unit: Limits) -> int:
    return unit.warp_size if isinstance(unit, NvidiaLimits) else unit.wavefront_size


def _max_warps(unit: Limits) -> int:
    if isinstance(unit, NvidiaLimits):
        return unit.max_warps_per_sm
    return unit.max_waves_per_simd * unit.simds_per_unit


def _max_registers(unit: Limits) -> int:
    """Most registers of a thread, of the kind that a kernel without matrix work has."""
    if isinstance(unit, NvidiaLimits):
        return unit.max_registers_per_thread
    return unit.max_vgprs_per_wave


def _allocated_registers(unit: Limits, registers: int, agprs: int) -> int:
    """Registers of a thread as they are handed out."""
    if isinstance(unit, NvidiaLimits):
        return round_up(registers, unit.register_granularity // unit.warp_size)
    return round_up(total_vgprs(unit, registers, agprs), unit.vgpr_granularity)


def _allocated_shared(unit: Limits, shared: int) -> int:
    """Shared memory of a block as it is handed out [B]."""
    if isinstance(unit, NvidiaLimits):
        return round_up(shared + unit.shared_reserved_per_block, unit.shared_granularity)
    return round_up(shared, unit.lds_granularity)


def _limits(unit: Limits, now: Resident) -> tuple[Limit, ...]:
    """What each resource allows, those left out that this architecture does not count."""
    uncounted = {"scalar registers"} if isinstance(unit, NvidiaLimits) else {"barriers"}
    if isinstance(unit, NvidiaLimits) and unit.barrier_slots_per_sm is None:
        uncounted.add("barriers")
    return tuple(
        Limit(name, None if blocks == UNLIMITED else blocks)
        for name, blocks in zip(_RESOURCES, now[1:], strict=True)
        if name not in uncounted
    )


def _register_cliffs(
    unit: Limits, registers: int, now: Resident, per_block: int, at: Callable[[int], Resident]
) -> Iterator[Cliff]:
    """The first counts of registers below and above with another number of blocks."""
    most = _max_warps(unit)
    for direction, counts in (
        ("fewer", range(registers - 1, -1, -1)),
        ("more", range(registers + 1, _max_registers(unit) + 1)),
    ):
        for count in counts:
            there = at(count).blocks
            if there != now.blocks:
                yield Cliff(
                    resource="registers",
                    direction="fewer" if direction == "fewer" else "more",
                    at=count,
                    change=count - registers,
                    blocks=there,
                    occupancy=there * per_block / most,
                )
                break


def _shared_cliffs(
    unit: Limits,
    static: int,
    dynamic: int,
    now: Resident,
    per_block: int,
    at: Callable[[int], Resident],
) -> Iterator[Cliff]:
    """The same of shared memory: only where its rounding jumps can the blocks change."""
    nvidia = isinstance(unit, NvidiaLimits)
    reserved = unit.shared_reserved_per_block if isinstance(unit, NvidiaLimits) else 0
    step = unit.shared_granularity if isinstance(unit, NvidiaLimits) else unit.lds_granularity
    most = unit.shared_per_sm if isinstance(unit, NvidiaLimits) else unit.max_lds_per_workgroup
    offset = static + (reserved if nvidia else 0)
    # the largest dynamic size of each allocation: multiples of the step, less what is fixed
    ends = [end - offset for end in range(0, most + step, step) if end >= offset]
    below = (end for end in reversed(ends) if end < dynamic)
    above = (end + 1 for end in ends if end + 1 > dynamic)
    for fewer, sizes in ((True, below), (False, above)):
        for size in sizes:
            there = at(size).blocks
            if there != now.blocks:
                yield Cliff(
                    resource="shared memory",
                    direction="fewer" if fewer else "more",
                    at=static + size,
                    change=size - dynamic,
                    blocks=there,
                    occupancy=there * per_block / _max_warps(unit),
                )
                break


def _why_not(
    unit: Limits, now: Resident, threads: int, per_thread: int, shared: int, opt_in: bool = True
) -> str:
    """Why not one block fits: every resource that one block exceeds, in words."""
    reasons = []
    if now.by_registers == 0:
        fit = next(
            n
            for n in range(_max_registers(unit), -1, -1)
            if resident(unit, threads, n).by_registers
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


def _check(
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
        ("registers", registers, 0, _max_registers(unit)),
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
