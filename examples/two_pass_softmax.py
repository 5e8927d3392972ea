"""A row softmax that walks its row twice, in pieces: for rows that no block can hold."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def two_pass_kernel(y_ptr, x_ptr, stride_ym, stride_xm, n_cols, BLOCK: tl.constexpr):
    """Softmax of one row a program: the largest element and the sum first, then the output.

    Args:
        y_ptr: Output, rows of n_cols elements.
        x_ptr: Input, the same shape.
        stride_ym: Elements from one row of y to the next.
        stride_xm: Elements from one row of x to the next.
        n_cols: Length of a row.
        BLOCK: Columns of a piece, a power of two.
    """
    row = tl.program_id(0).to(tl.int64)
    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), axis=0)
        top = new
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(tl.float32)
        y = (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + row * stride_ym + offs, y, mask=mask)


def example() -> None:
    """4096 rows of 4096 columns cut out of rows of 4097: no row but the first begins at 16 B."""
    x = torch.empty(4096, 4097, dtype=torch.bfloat16)[:, :4096]
    y = torch.empty(4096, 4097, dtype=torch.bfloat16)[:, :4096]
    two_pass_kernel[(x.shape[0],)](y, x, y.stride(0), x.stride(0), x.shape[1], BLOCK=1024)
