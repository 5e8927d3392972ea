"""Which configuration of a kernel to take: occupancy, spills, load width, bytes in flight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rooftile.errors import InputError
from rooftile.plan.occupancy import kernel_occupancy, limiting
from rooftile.plan.resident import Resident, resident
from rooftile.records.device import Device
from rooftile.records.resources import Constant, KernelResources, Sweep, SweepRow
from rooftile.spec.limits import AmdLimits, Limits, limits

# Latency of a load while the memory is busy. NVIDIA's CCCL tunes its streaming kernels to 32 KiB in
# flight an SM on the H100, 48 on the H200 and 64 on the B200: by Little's law and these GPUs'
# bandwidths that is 1.29, 1.35 and 1.26 us (1.1 us for the 12 KiB of a V100). For AMD no such
# figure was found; the same is taken.
LATENCY_S = 1.3e-6

FLOOR = 0.5
# The pipeline of one block hides the latency of a kernel on the tensor cores: on Hopper those of
# CUTLASS and FlashAttention-3 hold 8 to 12 of an SM's 64 warps.
TENSOR_CORE_FLOOR = 0.0
WIDE_BYTES = 16  # the widest load that every target has

# swept names that are no part of a tile's size
_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "kpack"})


def needed_bytes(gpu: Device, latency_s: float = LATENCY_S) -> int:
    """What one SM or CU must have in flight to keep the memory busy [B]: Little's law.

    Args:
        gpu: Its bandwidth [B/s] and units.
        latency_s: Latency of a load under load [s].

    Raises:
        InputError: The GPU's bandwidth or units are not known.
    """
    if gpu.bandwidth.value is None or not gpu.units.value:
        raise InputError(f"gpu must have a known bandwidth and number of SMs, {gpu.id} has not")
    return math.ceil(gpu.bandwidth.value * latency_s / gpu.units.value)


def sweep(
    kernel: str,
    target: str,
    gpu: Device,
    configs: Sequence[Mapping[str, Constant]],
    outcomes: Sequence[KernelResources | str],
    *,
    floor: float | None = None,
    latency_s: float = LATENCY_S,
) -> Sweep:
    """Rank compiled configurations and pick one.

    The pick is the largest tile that keeps occupancy at or above the floor, does not spill and
    loads 16 bytes at once; among equals the one with the most bytes in flight. Of a kernel with
    tensor-core instructions the largest output tile, then the deepest step.

    Args:
        kernel: The kernel's name.
        target: ``"sm_90"``.
        gpu: Whose bandwidth sets the need.
        configs: What was swept.
        outcomes: Resources, or why there are none, of each configuration.
        floor: Least occupancy, 0 to 1; None: 0.5, or 0 for a kernel with tensor-core instructions.
        latency_s: Latency of a load under load [s].

    Raises:
        InputError: The floor is no share.
    """
    check_sweep([gpu], floor=floor, latency_s=latency_s)
    matrix = tensor_core_names(outcomes)
    least = floor if floor is not None else TENSOR_CORE_FLOOR if matrix else FLOOR
    unit = limits(target)
    need = needed_bytes(gpu, latency_s)
    rows = [
        _row(unit, dict(config), outcome, least)
        for config, outcome in zip(configs, outcomes, strict=True)
    ]
    pick, reason = _pick(rows, _Wish(least, need, matrix, chosen=floor is None))
    return Sweep(
        kernel=kernel,
        target=unit.target,
        gpu=gpu.id,
        unit=unit.unit if isinstance(unit, AmdLimits) else "SM",
        rows=tuple(rows),
        needed_bytes=need,
        latency_s=latency_s,
        floor=least,
        pick=pick,
        reason=reason,
    )


def check_sweep(gpus: Sequence[Device], *, floor: float | None, latency_s: float) -> None:
    """Refuse what no sweep can be judged by, before anything is compiled.

    Raises:
        InputError: The floor is no share, the latency not positive, or a GPU not known well enough.
    """
    if floor is not None and not 0 <= floor <= 1:
        raise InputError(f"floor must be 0 to 1, got {floor}")
    if latency_s <= 0:
        raise InputError(f"latency_s must be above 0, got {latency_s}")
    for gpu in gpus:
        needed_bytes(gpu, latency_s)


def resident_kernel(unit: Limits, kernel: KernelResources) -> Resident:
    """Resident blocks of a compiled kernel."""
    return resident(
        unit,
        kernel.threads,
        kernel.registers,
        kernel.static_shared_bytes,
        kernel.dynamic_shared_bytes,
        max(1, kernel.barriers),
        kernel.accumulation_registers,
        kernel.scalar_registers,
    )


def tensor_core_names(outcomes: Sequence[KernelResources | str]) -> tuple[str, ...]:
    """Matrix instructions of any of the kernels, by name."""
    names = {name for kernel in outcomes if isinstance(kernel, KernelResources)
             for name in kernel.tensor_core}  # fmt: skip
    return tuple(sorted(names))


def tile_elements(config: Mapping[str, Constant], *, depth: bool = True) -> int:
    """Size of a tile: the product of the swept constants that are extents.

    Compiler options are none, nor is how tiles are grouped (``GROUP_M``).

    Args:
        config: Swept names and values.
        depth: Count the depth of a step (``BLOCK_K``), which is no extent of the output.
    """
    sizes = [
        value
        for name, value in config.items()
        if name not in _OPTIONS
        and not name.upper().startswith("GROUP")
        and (depth or not name.upper().endswith(("_K", "BK")))
        and isinstance(value, int)
        and not isinstance(value, bool)
    ]
    return math.prod(sizes)


def _row(
    unit: Limits, config: dict[str, Constant], outcome: KernelResources | str, floor: float
) -> SweepRow:
    """One configuration with all that is wrong with it."""
    if isinstance(outcome, str):
        return SweepRow(config, None, 0, 0, 0.0, (), 0, error=outcome, unfit=("does not compile",))
    now = resident_kernel(unit, outcome)
    per_block = -(-outcome.threads // outcome.warp_size)
    slots = (
        unit.max_waves_per_simd * unit.simds_per_unit
        if isinstance(unit, AmdLimits)
        else unit.max_warps_per_sm
    )
    share = now.blocks * per_block / slots
    unfit = []
    if not now.blocks:
        unfit.append("cannot launch")
    elif share < floor:
        unfit.append(f"occupancy {100 * share:.1f} % below {100 * floor:g} %")
    if outcome.spills:
        unfit.append(f"spills {outcome.spills} B")
    if outcome.load_width_bytes and outcome.load_width_bytes < WIDE_BYTES:
        unfit.append(f"{outcome.load_width_bytes}-byte loads")
    return SweepRow(
        config=config,
        resources=outcome,
        blocks=now.blocks,
        warps=now.blocks * per_block,
        occupancy=share,
        limiting=limiting(now),
        in_flight_bytes=now.blocks * outcome.threads * outcome.load_burst_bytes,
        error="" if now.blocks else f"cannot launch: {_why_not_launched(unit, outcome)}",
        unfit=tuple(unfit),
    )


def _why_not_launched(unit: Limits, kernel: KernelResources) -> str:
    """Why not one block fits: of this kernel, or of any with such numbers."""
    try:
        return kernel_occupancy(unit, kernel).reason
    except InputError as error:  # more threads than a block can have
        return str(error)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a pick is judged by: occupancy, bytes in flight, and what the kernel is."""

    floor: float
    need: int
    matrix: tuple[str, ...]
    chosen: bool  # the floor is ours, not the user's

    def words(self) -> str:
        """What the largest tile keeps to."""
        if self.matrix and self.chosen:
            return "the largest tile"
        return f"the largest tile with occupancy of {100 * self.floor:g} % or more"

    def why(self) -> str:
        """Why there is no floor, where there is none."""
        if not (self.matrix and self.chosen):
            return ""
        return (
            f"; no floor of occupancy (--floor sets one): {', '.join(self.matrix)} are tensor-core"
            " instructions, which the pipeline of one block keeps busy"
        )


def _pick(rows: Sequence[SweepRow], wish: _Wish) -> tuple[int | None, str]:
    """Position of the row to take, and why."""
    able = [i for i, row in enumerate(rows) if row.resources is not None and row.blocks]
    if not able:
        return None, "none of the configurations compiles and launches"
    fit = [i for i in able if not rows[i].unfit]
    among = fit or able
    fewest = min(len(rows[i].unfit) for i in among)

    def rank(i: int) -> tuple[float, ...]:
        row = rows[i]
        size = tile_elements(row.config) if fit else 0
        output = tile_elements(row.config, depth=False) if fit and wish.matrix else 0
        busy = min(row.in_flight_bytes, wish.need)
        return (output, size, busy, row.occupancy, row.in_flight_bytes)

    best = max((i for i in among if len(rows[i].unfit) == fewest), key=rank)
    if not fit:
        wrong = ", ".join(rows[best].unfit)
        return best, f"none meets all wishes; this one fails least ({wrong}){wish.why()}"
    return best, _reason(rows[best], wish)


def _reason(row: SweepRow, wish: _Wish) -> str:
    """Why a row that meets all wishes is the pick."""
    flight = row.in_flight_bytes
    enough = f"enough for the {wish.need:,} B" if flight >= wish.need else (
        f"short of the {wish.need:,} B"
    )  # fmt: skip
    kernel = row.resources
    if kernel is not None and not kernel.load_width_bytes:
        bulk = any(access.count for access in kernel.loads)
        what = "loads by bulk copies" if bulk else "loads nothing"
        joint = "without" if wish.matrix and wish.chosen else "and no"
        return f"{wish.words()} {joint} spills; it {what}{wish.why()}"
    joint = " without spills and with" if wish.matrix and wish.chosen else ", no spills and"
    return (
        f"{wish.words()}{joint} 16-byte loads; it has {flight:,} B in flight, {enough} that keep"
        f" the memory busy{wish.why()}"
    )
