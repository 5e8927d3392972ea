"""What every tile plan asks: powers of two, waves, and shared memory by stage."""

from __future__ import annotations

from typing import NamedTuple

from rooftile.errors import InputError
from rooftile.records.device import Device
from rooftile.records.tile import Waves
from rooftile.spec.dtypes import math_key
from rooftile.spec.limits import AmdLimits, Limits, NvidiaLimits
from rooftile.spec.peaks import unpublished

MAX_ELEMENTS = 1 << 20  # of one Triton tensor

# Triton's least depth of a dot by the operands' size in bytes; M and N may be 1, they are padded.
# Older versions want 16 for all three.
_LEAST_DEPTH = {1: 32, 2: 16, 4: 8, 8: 4}


class BlockPlan(NamedTuple):
    """A block of elements and how many of it make a row."""

    block: int
    tiles: int


def tile_plan(n: int, sram_bytes: int, itemsize: int) -> BlockPlan:
    """The largest power-of-two block that fits both the row and on-chip memory.

    Args:
        n: Elements of the row.
        sram_bytes: On-chip memory for one block [B].
        itemsize: Bytes of an element.

    Returns:
        The block and the blocks of a row: ``(16384, 4)`` for 50257 floats and 100 KiB.

    Raises:
        InputError: Nothing is there to cut, or not one element fits.
    """
    for name, value in (("n", n), ("itemsize", itemsize)):
        if value < 1:
            raise InputError(f"{name} must be 1 or more, got {value}")
    if sram_bytes < itemsize:
        raise InputError(f"sram_bytes must hold one element of {itemsize} B, got {sram_bytes}")
    block = 1 << (min(n, sram_bytes // itemsize).bit_length() - 1)
    return BlockPlan(block, -(-n // block))


def waves(blocks: int, units: int, per_unit: int = 1) -> Waves:
    """How evenly a grid fills the GPU.

    Args:
        blocks: Of the grid.
        units: SMs or CUs.
        per_unit: Resident blocks of one.

    Raises:
        InputError: One of them is not positive.
    """
    for name, value in (("blocks", blocks), ("units", units), ("per_unit", per_unit)):
        if value < 1:
            raise InputError(f"{name} must be 1 or more, got {value}")
    slots = units * per_unit
    rounds = -(-blocks // slots)
    return Waves(
        blocks=blocks,
        slots=slots,
        waves=rounds,
        tail_blocks=blocks - (rounds - 1) * slots,
        efficiency=blocks / (rounds * slots),
    )


def kv_splits(heads: int, units: int, *, most: int) -> int:
    """Parts to cut the keys of a decoding step into, so that every unit has work and none two.

    Args:
        heads: Batch times heads that have keys of their own: blocks of an unsplit grid.
        units: SMs or CUs.
        most: Blocks of keys there are.

    Raises:
        InputError: One of them is not positive.
    """
    for name, value in (("heads", heads), ("units", units), ("most", most)):
        if value < 1:
            raise InputError(f"{name} must be 1 or more, got {value}")
    return max(1, min(units // heads, most))


def buffered_stages(unit: Limits | None, num_stages: int) -> int:
    """Buffers that a pipeline of so many stages has in shared memory.

    Triton keeps the step in work in registers where the tensor cores read them, so one buffer fewer
    than stages; on Hopper and Blackwell's data-centre parts, whose tensor cores read shared memory,
    all of them. AMD's CDNA 4 copies straight to shared memory and keeps all as well.

    Args:
        unit: Limits of the target; None: every stage has one, as in CUTLASS.
        num_stages: Stages of the pipeline, 1 or more.
    """
    if unit is None or unit.target in ("sm_90", "sm_100", "sm_103", "sm_110", "gfx950"):
        return num_stages
    return max(1, num_stages - 1)


def most_shared(unit: Limits) -> int:
    """Most shared memory of one block [B]."""
    if isinstance(unit, NvidiaLimits):
        return unit.shared_per_block_optin
    return unit.max_lds_per_workgroup


def check_fits(unit: Limits, shared_bytes: int, what: str) -> None:
    """Refuse what no setting can make fit.

    Raises:
        InputError: One block's least need is more than a block can have; the message says so.
    """
    most = most_shared(unit)
    if shared_bytes > most:
        raise InputError(
            f"{what} needs {shared_bytes:,} B of shared memory at the least, a block on"
            f" {unit.target} can have {most:,} B: fewer stages do not help, cut the tile itself"
        )


def check_matrix_dtype(gpu: Device, dtype: str) -> None:
    """Refuse operands that a GPU's matrix units do not take: its tiles would be no use.

    Args:
        gpu: Its peaks say what it has; a format that nobody gave the rate of may well be there.
        dtype: As torch names it.

    Raises:
        InputError: The GPU has no such format; the message says what it has.
    """
    math = math_key(dtype)
    figure = gpu.peaks.get(math)
    if math and (figure is None or figure.value is not None or unpublished(gpu, math)):
        return
    has = ", ".join(name for name in gpu.peaks if gpu.peaks[name].value is not None)
    why = f": {figure.source}" if figure is not None and figure.source else ""
    raise InputError(f"dtype must be one that {gpu.id} multiplies ({has}), got {dtype!r}{why}")


def check_dot(block_m: int, block_n: int, block_k: int, itemsize: int) -> None:
    """Refuse a dot that Triton does not compile.

    Raises:
        InputError: An extent is no power of two, or the depth is below what the operands' size
            wants.
    """
    for name, value in (("block_m", block_m), ("block_n", block_n), ("block_k", block_k)):
        if value < 1 or value & (value - 1):
            raise InputError(f"{name} must be a power of two, got {value}")
    least = _LEAST_DEPTH.get(itemsize)
    if least is None:
        raise InputError(f"itemsize must be 1, 2, 4 or 8 B, got {itemsize}")
    if block_k < least:
        raise InputError(
            f"block_k must be {least} or more for operands of {itemsize} B, got {block_k}"
        )


def tensor_memory(unit: Limits) -> bool:
    """Whether accumulators lie in a memory of the tensor cores, not in registers."""
    return unit.target in ("sm_100", "sm_103", "sm_110")


def warp_size(unit: Limits) -> int:
    """Threads of a warp or wave."""
    return unit.wavefront_size if isinstance(unit, AmdLimits) else unit.warp_size
