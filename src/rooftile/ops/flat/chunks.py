"""How pointwise kernels cut tensors: programs take a chunk of a row each.

Where every tensor of a launch is contiguous there is one row, the whole tensor.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from rooftile.ops.rows.address import Rows, rows_of, vectors


class Chunks(NamedTuple):
    """Rows of each tensor, their number and length; elements of an access; whether some are left.

    An element-wise tail is left only where there is one row; many rows take narrower accesses.
    """

    tensors: tuple[Tensor, ...]
    rows: tuple[Rows, ...]
    n_rows: int
    n_cols: int
    vec: int
    edge: bool


def chunks_of(*tensors: Tensor) -> Chunks:
    """Cut tensors of one shape alike."""
    first = tensors[0]
    if all(t.is_contiguous() for t in tensors):
        rows = tuple(Rows(1, first.numel(), 0, 1) for _ in tensors)
        n_rows, n_cols = 1, first.numel()
    else:
        pairs = [rows_of(t, t.dim() - 1) for t in tensors]
        tensors, rows = tuple(t for t, _ in pairs), tuple(r for _, r in pairs)
        n_cols = first.shape[-1]
        n_rows = first.numel() // n_cols
    itemsize = max(t.element_size() for t in tensors)
    vec, shift, edge = vectors(n_cols, itemsize, *zip(tensors, rows, strict=True))
    if n_rows > 1 and (shift or edge):
        vec, edge = 1, False
    return Chunks(tensors, rows, n_rows, n_cols, vec, edge)


@triton.jit
def chunk_ptrs(ptr, row, col, inner, outer_stride, inner_stride, stride, VEC: tl.constexpr):
    """Pointers to columns (int64) of a row, known to be aligned to whole vectors."""
    start = (row // inner) * outer_stride + (row % inner) * inner_stride
    ptrs = ptr + start + col * stride
    if VEC > 1:
        itemsize: tl.constexpr = ptr.dtype.element_ty.primitive_bitwidth // 8
        ptrs = tl.multiple_of(ptrs, VEC * itemsize)
    return ptrs


@triton.jit
def whole_columns(n_cols, n_chunks, BLOCK_N: tl.constexpr, VEC: tl.constexpr):
    """A program's row, the columns of its chunk, and which of them belong to a whole vector."""
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK_N)
    start = (pid % n_chunks).to(tl.int64) * BLOCK_N
    n_vec = tl.minimum((n_cols - start) // VEC, BLOCK_N // VEC).to(tl.int32)
    return (pid // n_chunks).to(tl.int64), start + offs, offs // VEC < n_vec


@triton.jit
def tail_columns(n_cols, n_chunks, VEC: tl.constexpr):
    """The columns behind the last whole vector, in use in the last chunk alone."""
    col = (n_cols // VEC * VEC).to(tl.int64) + tl.arange(0, VEC)
    is_last = tl.program_id(0) % n_chunks == n_chunks - 1
    return col, tl.where(is_last, col, n_cols) < n_cols
