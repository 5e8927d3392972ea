"""What of a kernel is resident on one SM or CU, and why no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Limit:
    """How many blocks one resource allows.

    Attributes:
        resource: ``"warps"``, ``"blocks"``, ``"registers"``, ``"shared memory"`` or ``"barriers"``;
            on AMD also ``"scalar registers"``.
        blocks: Blocks that fit; None where this kernel takes nothing of it.
    """

    resource: str
    blocks: int | None


@dataclass(frozen=True, slots=True)
class Cliff:
    """The nearest value of one resource at which the number of resident blocks changes.

    Attributes:
        resource: ``"registers"`` [per thread] or ``"shared memory"`` [B of the block].
        direction: ``"fewer"``: spending less gains blocks; ``"more"``: spending more loses some.
        at: The value there.
        change: ``at`` less the present value: below zero for ``"fewer"``.
        blocks: Resident blocks there.
        occupancy: Occupancy there, 0 to 1.
    """

    resource: str
    direction: Literal["fewer", "more"]
    at: int
    change: int
    blocks: int
    occupancy: float


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident blocks and warps of a kernel on one SM (NVIDIA) or CU, WGP (AMD).

    A block is a work-group and a warp a wave where the target is AMD's.

    Attributes:
        target: ``"sm_90"``, ``"gfx942"``.
        unit: What holds the blocks: ``"SM"``, ``"CU"`` or ``"WGP"``.
        threads: Of a block.
        registers: Used by a thread; on AMD architectural vector registers.
        accumulation_registers: AMD's second kind of vector register; 0 elsewhere.
        scalar_registers: Of a wave, AMD; None where they do not count.
        static_shared_bytes: Shared memory fixed by the binary [B].
        dynamic_shared_bytes: Shared memory asked for by the launch [B].
        barriers: Named barriers of a block.
        blocks: Resident blocks of a unit; 0 where the kernel cannot launch.
        warps_per_block: Warps of a block, a part of one counted whole.
        warps: Resident warps of a unit.
        max_warps: Most warps of a unit.
        occupancy: ``warps / max_warps``.
        waves_per_simd: AMD: the waves of a SIMD as its compiler counts them, which does not ask
            whether they make whole work-groups; None on NVIDIA.
        limits: What each resource allows.
        limiting: The resources that bind: those with the fewest blocks.
        allocated_registers_per_thread: Registers after rounding to what the hardware hands out.
        allocated_registers_per_block: The same for the whole block.
        allocated_shared_bytes: Shared memory of a block with the driver's part, rounded [B].
        launches: Whether one block fits at all.
        reason: Why it cannot launch, in words; "" if it can.
        cliffs: Where the number of blocks changes next.
        kind: Tells this record's JSON from others.
    """

    target: str
    unit: str
    threads: int
    registers: int
    accumulation_registers: int
    scalar_registers: int | None
    static_shared_bytes: int
    dynamic_shared_bytes: int
    barriers: int
    blocks: int
    warps_per_block: int
    warps: int
    max_warps: int
    occupancy: float
    waves_per_simd: int | None
    limits: tuple[Limit, ...]
    limiting: tuple[str, ...]
    allocated_registers_per_thread: int
    allocated_registers_per_block: int
    allocated_shared_bytes: int
    launches: bool
    reason: str
    cliffs: tuple[Cliff, ...]
    kind: Literal["rooftile.occupancy"] = "rooftile.occupancy"
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class SimpleOccupancy:
    """Occupancy by the textbook's formula, for teaching.

    Attributes:
        target: ``"sm_90"``.
        threads: Of a block.
        registers: Of a thread.
        shared_bytes: Of a block [B].
        blocks: The least of what registers, shared memory and the cap on blocks allow.
        warps: ``blocks`` times the warps of a block; can exceed ``max_warps``.
        max_warps: Most warps of a unit.
        occupancy: ``warps / max_warps``; above 1 where the formula is furthest from the hardware.
        leaves_out: What the hardware does and the formula does not, one sentence each.
        kind: Tells this record's JSON from others.
    """

    target: str
    threads: int
    registers: int
    shared_bytes: int
    blocks: int
    warps: int
    max_warps: int
    occupancy: float
    leaves_out: tuple[str, ...]
    kind: Literal["rooftile.simple_occupancy"] = "rooftile.simple_occupancy"
    schema_version: int = SCHEMA_VERSION
