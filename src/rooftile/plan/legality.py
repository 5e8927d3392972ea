"""When a producer and its consumer may share a kernel, and the name of the reason when not."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rooftile.errors import InputError
from rooftile.plan import kinds
from rooftile.plan.kinds import Axes, Shape
from rooftile.records.device import Device
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor
from rooftile.spec.dtypes import itemsize
from rooftile.spec.limits import NvidiaLimits, limits

REUSED = "reused outside the group"
SPACE = "incompatible iteration space"
AXIS = "a reduction over another axis"
CALL = "a library call in between"
KERNEL = "another kernel in between"
DATA = "data-dependent shape"
RANDOM = "random state"
ALIAS = "aliasing"
SRAM = "working set larger than SRAM"
PASS = "kept for another pass"
ALONE = "neither pointwise nor a row reduction"

REASONS = (REUSED, SPACE, AXIS, CALL, KERNEL, DATA, RANDOM, ALIAS, SRAM, PASS, ALONE)

# Shared memory of a block where the device's is not known: what every NVIDIA GPU since Ampere has.
_DEFAULT_SRAM = 99 * 1024
# A column of a tile is read in sectors of this size [B].
_SECTOR = 32
# Rows of the smallest tile of a matrix unit.
_TILE_ROWS = 16
_ACCUMULATOR = 4  # bytes


@dataclass(frozen=True, slots=True)
class Objection:
    """Why not.

    Attributes:
        reason: One of ``REASONS``.
        detail: What exactly stands in the way.
    """

    reason: str
    detail: str


def sram_bytes(device: Device) -> int:
    """Shared memory that one block of a device may have [B]."""
    try:
        known = limits(device.target)
    except InputError:  # a GPU of the user's own, or a vendor without a table
        return _DEFAULT_SRAM
    if isinstance(known, NvidiaLimits):
        return known.shared_per_block_optin
    return known.max_lds_per_workgroup


def joins_nothing(op: Op, shape: Shape, bound: str) -> Objection | None:
    """Why an op runs alone, whatever is beside it; None if it may have company."""
    if bound == "unpriced":
        return Objection(ALONE, f"{op.aten} has no formula: what it computes is not known")
    masked = any(o.role.startswith("indices") and o.tensor.dtype == "bool" for o in op.inputs)
    if op.name in kinds.DATA_DEPENDENT or masked:
        return Objection(DATA, f"the size of {op.name}'s result depends on values")
    if op.name in kinds.RANDOM:
        return Objection(RANDOM, f"{op.name} draws from the generator's state, in order")
    if op.name in kinds.LIBRARY:
        return Objection(CALL, f"{op.name} is a library's kernel")
    if shape.form == "alone":
        return Objection(ALONE, f"{op.name} is neither pointwise nor a reduction along rows")
    return None


def between(p: Op, made: Shape, v: Op, used: Shape) -> Objection | None:
    """Why an op cannot read another's result within one kernel; None if it can.

    The two loops must visit the same elements: a pointwise reader as often as the result has
    elements, in any order; one beside a reduction in the same order; one that is larger repeats
    the result, one that is smaller would need a part of it.
    """
    n, m = made.results, used.numel
    for tensor in v.reads:
        for written in p.writes:
            if written.storage != tensor.storage:
                continue
            found: Objection | None
            if written.numel < prod(n for n, s in _extents(tensor) if s):
                found = Objection(ALIAS, f"{p.name} made only a part of what {v.name} reads")
            elif m == n:
                found = _same_order(written, tensor, made, used)
            elif m > n:
                found = _repeats(tensor, made, v, used)
            else:
                found = _part(made, v, used)
            if found is not None:
                return found
    return None


def shared_axes(a: Axes, b: Axes, numel: int) -> Objection | None:
    """Why two reductions over the same elements cannot share a kernel; None if they can."""
    if not a or not b or a == b:
        return None
    return Objection(AXIS, f"one reduces {_words(a)}, the other {_words(b)} of {numel:,} elements")


def row_fits(axes: Axes, size: int, sram: int) -> Objection | None:
    """Why a row cannot be kept between its reduction and its second use; None if it can."""
    length = prod(n for _, n in axes)
    inner = bool(axes) and axes[0][0] == 1
    need = length * (size if inner else _SECTOR)
    if need <= sram:
        return None
    return Objection(SRAM, f"{length:,} elements a row take {need:,} bytes, a block has {sram:,}")


def product_row_fits(columns: int, sram: int) -> Objection | None:
    """Why a product's tile cannot hold whole rows of its result; None if it can."""
    need = columns * _TILE_ROWS * _ACCUMULATOR
    if need <= sram:
        return None
    return Objection(
        SRAM, f"{_TILE_ROWS} rows of {columns:,} sums take {need:,} bytes, a block has {sram:,}"
    )


def overwrites(v: Op, op: Op) -> Objection | None:
    """Why an op that overwrites a tensor cannot share a kernel with one that names it."""
    for mine in v.inputs:
        if not mine.writes:
            continue
        for theirs in (*op.reads, *op.writes):
            same = theirs.storage == mine.tensor.storage
            if same and _laid_out(theirs) != _laid_out(mine.tensor):
                return Objection(
                    ALIAS, f"{v.name} overwrites elements that {op.name} names in another order"
                )
    return None


def size_of(tensor: Tensor) -> int:
    """Bytes of one element."""
    return itemsize(tensor.dtype)


def _same_order(written: Tensor, read: Tensor, made: Shape, used: Shape) -> Objection | None:
    """As many elements on both sides: whole and, beside a reduction, in one order."""
    if read.numel != used.numel or written.numel != made.results:
        if not made.axes and not used.axes:  # each element can be computed where it is needed
            return None
        return Objection(SPACE, f"{used.numel:,} of {read.numel:,} elements are used")
    if (made.axes or used.axes) and _laid_out(written) != _laid_out(read):
        return Objection(SPACE, f"{read.shape} is read in another order than it is made")
    return None


def _repeats(tensor: Tensor, made: Shape, v: Op, used: Shape) -> Objection | None:
    """A result is repeated along dimensions; that of a reduction only along those it reduced."""
    if not made.axes or made.whole:
        return None
    if used.numel != made.numel:
        return Objection(SPACE, f"{made.numel:,} elements were reduced, {used.numel:,} are made")
    step = 1
    lead = len(used.space) - len(tensor.shape)
    for d in reversed(range(len(used.space))):
        extent = tensor.shape[d - lead] if d >= lead else 1
        stride = tensor.stride[d - lead] if d >= lead else 0
        reduced = any(low <= step < low * length for low, length in made.axes)
        if extent > 1 and stride and reduced:
            return Objection(AXIS, f"{v.name} repeats the result along what was not reduced")
        step *= used.space[d]
    return None


def _part(made: Shape, v: Op, used: Shape) -> Objection | None:
    """Fewer elements than the result has: only a loss that picks one a row can do with that."""
    if picks_one(v, made) and made.numel == used.numel * made.reduced:
        return None
    return Objection(SPACE, f"{v.name} makes {used.numel:,} elements out of {made.results:,}")


def picks_one(v: Op, made: Shape) -> bool:
    """Whether an op takes one element out of each row that another made."""
    if not made.whole or not made.axes or made.axes[0][0] != 1:
        return False
    index = v.operand("index")
    last = v.attrs.get("dim") in (-1, len(made.space) - 1)
    one = index is not None and last and index.shape == (*made.space[:-1], 1)
    return v.name == "nll_loss" or (v.name == "gather" and one)


def _laid_out(tensor: Tensor) -> tuple[object, ...]:
    """Equal for tensors whose elements stand at the same places in the same order."""
    dims: list[tuple[int, int]] = []
    for n, step in zip(tensor.shape, tensor.stride, strict=True):
        if n == 1:
            continue
        if dims and dims[-1][1] == n * step:
            dims[-1] = (dims[-1][0] * n, step)
        else:
            dims.append((n, step))
    return (tensor.offset, *dims)


def _extents(tensor: Tensor) -> zip[tuple[int, int]]:
    return zip(tensor.shape, tensor.stride, strict=True)


def _words(axes: Axes) -> str:
    return " and ".join(f"{n:,} elements {step:,} apart" for step, n in axes)
