"""What a compiled kernel takes of the hardware, read out of its binary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SCHEMA_VERSION = 1

Constant = bool | int | float | str | None

AccessKind = Literal["load", "store", "copy to shared", "atomic"]


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """Instructions of one kind, width and place that touch device memory.

    Attributes:
        kind: ``"copy to shared"`` is a load that goes to shared memory without registers.
        width_bytes: What one thread moves with one instruction [B]; 0 for a bulk copy by the copy
            engine, whose size the binary does not hold.
        count: Instructions.
        loop: Number of the innermost loop they are in, in the order of the code, from 1; 0: none.
    """

    kind: AccessKind
    width_bytes: int
    count: int
    loop: int = 0


@dataclass(frozen=True, slots=True)
class KernelResources:
    """A kernel compiled for one target with one set of constants.

    Attributes:
        kernel: The kernel's name.
        target: ``"sm_90"``, ``"gfx942"``.
        compiler: ``"triton 3.9.0"``.
        signature: Each run-time argument's type, ``:16`` behind those divisible by 16.
        constants: Values of the compile-time arguments.
        options: Compiler options that were given: ``num_warps``, ``num_stages``, ...
        threads: Of a block.
        warp_size: Threads of a warp or wave.
        registers: Of a thread; on AMD architectural vector registers.
        accumulation_registers: AMD's second kind of vector register.
        scalar_registers: Of a wave on AMD; None elsewhere.
        stack_bytes: Local memory of a thread [B], spilled values included.
        spill_store_bytes: What a thread writes to its stack for want of registers [B].
        spill_load_bytes: What it reads back [B].
        static_shared_bytes: Shared memory of the binary [B].
        dynamic_shared_bytes: Shared memory that the launch must ask for [B].
        barriers: Named barriers.
        accesses: Instructions that touch device memory.
        load_burst_bytes: Most bytes of loads that one thread has under way at once, by the waits
            in the code [B]; bulk copies not counted.
        tensor_core: Matrix instructions by name and how many there are.
        loops: Loops in the code that touch device memory.
        code_bytes: Size of the machine code [B].
        compile_s: Time to compile [s]; that of the first time where it comes from the cache.
        kind: Tells this record's JSON from others.
    """

    kernel: str
    target: str
    compiler: str
    signature: dict[str, str]
    constants: dict[str, Constant]
    options: dict[str, Constant]
    threads: int
    warp_size: int
    registers: int
    accumulation_registers: int
    scalar_registers: int | None
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    barriers: int
    accesses: tuple[MemoryAccess, ...]
    load_burst_bytes: int
    tensor_core: dict[str, int]
    loops: int
    code_bytes: int
    compile_s: float
    kind: Literal["rooftile.kernel_resources"] = "rooftile.kernel_resources"
    schema_version: int = SCHEMA_VERSION

    @property
    def load_width_bytes(self) -> int:
        """The widest load of device memory [B of a thread]; 0 where there is none."""
        return max((a.width_bytes for a in self.loads), default=0)

    @property
    def store_width_bytes(self) -> int:
        """The widest store to device memory [B of a thread]; 0 where there is none."""
        return max((a.width_bytes for a in self.accesses if a.kind == "store"), default=0)

    @property
    def loads(self) -> tuple[MemoryAccess, ...]:
        """The accesses that read: loads and copies to shared memory."""
        return tuple(a for a in self.accesses if a.kind in ("load", "copy to shared"))

    @property
    def spills(self) -> int:
        """Bytes that a thread spills and reads back [B]."""
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One configuration of a sweep.

    Attributes:
        config: The swept names and their values here.
        resources: What the compiled kernel takes; None where it does not compile.
        blocks: Resident blocks.
        warps: Resident warps.
        occupancy: 0 to 1.
        limiting: The resources that bind.
        in_flight_bytes: Bytes of loads that a unit has under way [B].
        error: Why there is no kernel or it cannot launch; "" if it can.
        unfit: Why it is not the pick, in words; empty for those that could be.
    """

    config: dict[str, Constant]
    resources: KernelResources | None
    blocks: int
    warps: int
    occupancy: float
    limiting: tuple[str, ...]
    in_flight_bytes: int
    error: str = ""
    unfit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sweep:
    """A kernel compiled in many configurations, and which to take.

    Attributes:
        kernel: The kernel's name.
        target: ``"sm_90"``.
        gpu: Id of the GPU whose bandwidth sets the need.
        unit: ``"SM"``, ``"CU"`` or ``"WGP"``.
        rows: One a configuration, in the order they were asked for.
        needed_bytes: What a unit must have in flight to keep the memory busy [B].
        latency_s: Latency of a load under load [s]: the need is bandwidth times this by units.
        floor: Least occupancy of a pick.
        pick: Position of the row to take; None where none compiles and launches.
        reason: Why that one, in words.
        kind: Tells this record's JSON from others.
    """

    kernel: str
    target: str
    gpu: str
    unit: str
    rows: tuple[SweepRow, ...]
    needed_bytes: int
    latency_s: float
    floor: float
    pick: int | None
    reason: str
    kind: Literal["rooftile.sweep"] = "rooftile.sweep"
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a grid of a compiled kernel can move, beside what a formula says it must.

    Attributes:
        kernel: The kernel's name.
        target: ``"sm_90"``.
        blocks: Of the grid, those of clusters counted one by one.
        threads: Of a block.
        loaded_bytes: Most that its loads can read [B]: every lane of every load, masks passed
            over.
        stored_bytes: Most that its stores and atomics can write [B].
        per_iteration: Loop number to bytes loaded and stored by the whole grid in one iteration
            [B]; of loops whose trip count is not known, and these are in no total.
        formula_bytes: What must move [B]; None where not given.
        ratio: Loaded and stored bytes over the formula's; None where either is not known.
        widths: Widest load and store of one thread [B]; 0 where there is none.
        flags: What is wrong with it, one sentence each.
        kind: Tells this record's JSON from others.
    """

    kernel: str
    target: str
    blocks: int
    threads: int
    loaded_bytes: int
    stored_bytes: int
    per_iteration: dict[int, tuple[int, int]] = field(default_factory=dict)
    formula_bytes: float | None = None
    ratio: float | None = None
    widths: tuple[int, int] = (0, 0)
    flags: tuple[str, ...] = ()
    kind: Literal["rooftile.traffic"] = "rooftile.traffic"
    schema_version: int = SCHEMA_VERSION
