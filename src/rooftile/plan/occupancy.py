"""Resident blocks of a kernel by the rules of the hardware, the limits that bind, the cliffs.

Source: NVIDIA's occupancy header of CUDA 13.0 and AMD's LLVM backend, in own words; both checked on
vectors of values that they return (``tests/data``). The numbers per architecture are
``rooftile.spec.limits``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from rooftile.errors import InputError
from rooftile.plan.launch_check import (
    allocated_registers,
    allocated_shared,
    check_launch,
    max_registers,
    max_warps,
    warp_of,
    why_not,
)
from rooftile.plan.resident import UNLIMITED, Resident, resident, waves_per_simd
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
    check_launch(unit, threads, registers, static_shared, dynamic_shared, barriers, agprs, sgprs)
    if not -1 <= carveout <= 100:
        raise InputError(f"carveout must be 0 to 100 %, or -1, got {carveout}")
    return _record(
        unit,
        _Launch(
            threads, registers, static_shared, dynamic_shared, barriers, agprs, sgprs, opt_in,
            None, carveout,
        ),
    )  # fmt: skip


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


class _Launch(NamedTuple):
    """What a kernel asks for, in the order in which ``resident`` takes it."""

    threads: int
    registers: int
    static_shared: int
    dynamic_shared: int
    barriers: int
    agprs: int
    sgprs: int | None
    opt_in: bool
    max_dynamic_shared: int | None
    carveout: int


def _record(unit: Limits, launch: _Launch) -> Occupancy:
    """All that follows from a launch that has been checked."""
    now = resident(unit, *launch)
    per_block = -(-launch.threads // warp_of(unit))
    per_thread = allocated_registers(unit, launch.registers, launch.agprs)
    shared = launch.static_shared + launch.dynamic_shared
    amd = isinstance(unit, AmdLimits)
    return Occupancy(
        target=unit.target,
        unit=unit.unit if isinstance(unit, AmdLimits) else "SM",
        threads=launch.threads,
        registers=launch.registers,
        accumulation_registers=launch.agprs,
        scalar_registers=launch.sgprs if amd else None,
        static_shared_bytes=launch.static_shared,
        dynamic_shared_bytes=launch.dynamic_shared,
        barriers=launch.barriers,
        blocks=now.blocks,
        warps_per_block=per_block,
        warps=now.blocks * per_block,
        max_warps=max_warps(unit),
        occupancy=now.blocks * per_block / max_warps(unit),
        waves_per_simd=_compilers_waves(unit, launch),
        limits=_limits(unit, now),
        limiting=limiting(now),
        allocated_registers_per_thread=per_thread,
        allocated_registers_per_block=per_thread * per_block * warp_of(unit),
        allocated_shared_bytes=allocated_shared(unit, shared),
        launches=now.blocks > 0,
        reason=why_not(unit, now, launch.threads, per_thread, shared, launch.opt_in),
        cliffs=tuple(_cliffs(unit, launch, now.blocks, per_block)),
    )


def _compilers_waves(unit: Limits, launch: _Launch) -> int | None:
    """Waves of a SIMD as AMD's compiler prints them."""
    if isinstance(unit, NvidiaLimits):
        return None
    shared = launch.static_shared + launch.dynamic_shared
    return waves_per_simd(
        unit, launch.threads, launch.registers, launch.agprs, shared, launch.sgprs
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


def _cliffs(unit: Limits, launch: _Launch, blocks: int, per_block: int) -> Iterator[Cliff]:
    """The first values below and above of each resource with another number of blocks."""
    registers, fixed = launch.registers, launch.static_shared
    sizes = list(_sizes(unit, fixed))
    walks: tuple[tuple[str, Literal["fewer", "more"], Iterable[int]], ...] = (
        ("registers", "fewer", range(registers - 1, -1, -1)),
        ("registers", "more", range(registers + 1, max_registers(unit) + 1)),
        ("shared memory", "fewer", (n for n in reversed(sizes) if n < launch.dynamic_shared)),
        ("shared memory", "more", (n + 1 for n in sizes if n + 1 > launch.dynamic_shared)),
    )
    for resource, direction, values in walks:
        of_registers = resource == "registers"
        for value in values:
            changed = (
                launch._replace(registers=value)
                if of_registers
                else launch._replace(dynamic_shared=value)
            )
            there = resident(unit, *changed).blocks
            if there != blocks:
                yield Cliff(
                    resource=resource,
                    direction=direction,
                    at=value if of_registers else fixed + value,
                    change=value - (registers if of_registers else launch.dynamic_shared),
                    blocks=there,
                    occupancy=there * per_block / max_warps(unit),
                )
                break


def _sizes(unit: Limits, fixed: int) -> Iterator[int]:
    """The largest dynamic size of each allocation: between them the blocks cannot change [B]."""
    if isinstance(unit, NvidiaLimits):
        step, most = unit.shared_granularity, unit.shared_per_sm
        fixed += unit.shared_reserved_per_block
    else:
        step, most = unit.lds_granularity, unit.max_lds_per_workgroup
    yield from (end - fixed for end in range(0, most + step, step) if end >= fixed)
