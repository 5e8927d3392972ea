"""How the rows of a strided tensor are addressed, with 16-byte accesses wherever they can be.

A row of n elements is cut into a head, whole vectors and a tail. The vectors move in 16-byte
accesses; head and tail move element by element. Rows of an odd length start anywhere, so their head
differs from row to row: it ends at a multiple of 32 bytes, so that accesses cover whole sectors,
or of 16 where rows are short. It is the same for every tensor of a launch, or the launch
takes shorter vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

VECTOR_BYTES = 16
# below this a row's head and tail would cost more than its vectors save
_MIN_SHIFTED_COLS = 64
_MIN_ROW_LINES = 16  # rows shorter than that do not start their vectors at whole lines


class Rows(NamedTuple):
    """Strides of a matrix of rows, in elements.

    Row r starts at ``r // inner * outer_stride + r % inner * inner_stride``.
    """

    inner: int
    outer_stride: int
    inner_stride: int
    col_stride: int


class Vectors(NamedTuple):
    """How rows are cut.

    Attributes:
        width: Elements of an access.
        shift: Heads end at a multiple of so many elements; 0 where rows have no head.
        edge: Whether rows have a head or a tail.
    """

    width: int
    shift: int
    edge: bool


def collapse(x: Tensor, dim: int) -> Rows | None:
    """The rows of x along a dimension; None where the others take more than two strides."""
    if dim == x.dim() - 1 and x.is_contiguous():
        return Rows(1, x.shape[-1], 0, 1)
    levels: list[list[int]] = []  # [size, stride], outermost first
    for d, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if d == dim or size == 1:
            continue
        if levels and levels[-1][1] == stride * size:
            levels[-1] = [levels[-1][0] * size, stride]
        else:
            levels.append([size, stride])
    col = x.stride(dim) if x.shape[dim] > 1 else 1
    if not levels:
        return Rows(1, 0, 0, col)
    if len(levels) == 1:
        return Rows(1, levels[0][1], 0, col)
    if len(levels) == 2:
        return Rows(levels[1][0], levels[0][1], levels[1][1], col)
    return None


def rows_of(x: Tensor, dim: int) -> tuple[Tensor, Rows]:
    """x and its rows. Only where three or more strides lead to a row is x copied."""
    rows = collapse(x, dim)
    if rows is None:
        x = x.contiguous()
        rows = collapse(x, dim)
        assert rows is not None  # a contiguous tensor has one stride before dim and one behind it
    return x, rows


def vectors(
    n_cols: int, itemsize: int, *operands: tuple[Tensor, Rows], line_bytes: int = 32
) -> Vectors:
    """The widest accesses that suit every tensor of a launch.

    Args:
        n_cols: Elements of a row.
        itemsize: Bytes of the widest element.
        *operands: Tensors and their rows.
        line_bytes: What the heads of rows end at a multiple of, where rows start anywhere.
    """
    full = VECTOR_BYTES // itemsize
    if any(rows.col_stride != 1 for _, rows in operands):
        return Vectors(1, 0, False)
    offsets = [t.data_ptr() // t.element_size() for t, _ in operands]
    strides = [s for _, rows in operands for s in (rows.outer_stride, rows.inner_stride)]
    width = full
    while any(o % width for o in offsets) or any(s % width for s in strides):
        width //= 2
    if width == full or n_cols < _MIN_SHIFTED_COLS:
        if n_cols < _MIN_SHIFTED_COLS:
            while n_cols % width:
                width //= 2
        return Vectors(width, 0, n_cols % width != 0)
    first = operands[0][1].outer_stride
    line = line_bytes // itemsize
    for shift in (line, full) if n_cols >= _MIN_ROW_LINES * line else (full,):
        same = all(r.inner == 1 and (r.outer_stride - first) % shift == 0 for _, r in operands)
        if same and not any(o % shift for o in offsets):
            return Vectors(full, shift, True)
    return Vectors(width, 0, n_cols % width != 0)


@triton.constexpr_function
def edge_lanes(VEC, SHIFT):
    """Lanes for the columns of a head and of a tail: as many for both."""
    return 2 * max(VEC, SHIFT)


@triton.jit
def row_offset(row, inner, outer_stride, inner_stride):
    """Elements from a tensor's start to its rows; row is int64."""
    return (row // inner) * outer_stride + (row % inner) * inner_stride


@triton.jit
def row_head(row, stride, SHIFT: tl.constexpr):
    """Elements of each row before its first whole vector."""
    if SHIFT:
        head = ((0 - row * stride) & (SHIFT - 1)).to(tl.int32)
    else:
        head = (row * 0).to(tl.int32)
    return head


@triton.jit
def vector_ptrs(row_ptr, head, offs, VEC: tl.constexpr):
    """Pointers to a row's whole vectors, known to be aligned to them; offs is along the row."""
    ptrs = row_ptr + head + offs
    if VEC > 1:
        itemsize: tl.constexpr = row_ptr.dtype.element_ty.primitive_bitwidth // 8
        ptrs = tl.multiple_of(ptrs, (itemsize, VEC * itemsize))
    return ptrs


@triton.jit
def edge_columns(head, n_cols, VEC: tl.constexpr, SHIFT: tl.constexpr):
    """Columns of head and tail, ``edge_lanes`` of them, and which of the lanes are in use."""
    half: tl.constexpr = edge_lanes(VEC, SHIFT) // 2
    lane = tl.arange(0, 2 * half)[None, :]
    n_vec = (n_cols - head) // VEC
    tail = head + n_vec * VEC
    col = tl.where(lane < half, lane, tail + lane - half)
    return col, col < tl.where(lane < half, head, n_cols)


@triton.jit
def weight_ptrs(w_ptr, stride, head, offs, VEC: tl.constexpr):
    """Pointers to a row's weights. With a stride w holds a copy shifted by 0, 1 ... VEC - 1 each.

    Whatever a row's head, one of the copies has the row's vectors at multiples of a vector.
    """
    if stride is None:
        ptrs = w_ptr + head + offs
    else:
        by = head % VEC
        ptrs = vector_ptrs(w_ptr + by * stride, head - by, offs, VEC)
    return ptrs


@triton.jit
def mean_of(total, n):
    """total / n as rounded: exact for one element, where the quick division is not."""
    return tl.div_rn(total, tl.full(total.shape, n, tl.float32))


@triton.jit
def inverse_root(x):
    """1 / sqrt(x), each rounded to nearest: once a row, and the quick form is off by 2 ulp."""
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), tl.sqrt_rn(x))


@triton.jit
def reload(x, PACKED: tl.constexpr):
    """x, which the compiler takes for new: it converts x again and keeps no float32 copy of it."""
    if PACKED:
        x = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2
        )
    return x
