"""A row softmax in Triton: one load, one store, a block as wide as the row."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride_ym, stride_xm, n_cols, BLOCK: tl.constexpr):
    """Softmax of one row a program.

    Args:
        y_ptr: Output, rows of n_cols elements.
        x_ptr: Input, the same shape.
        stride_ym: Elements from one row of y to the next.
        stride_xm: Elements from one row of x to the next.
        n_cols: Length of a row, at most BLOCK.
        BLOCK: A power of two.
    """
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_ym + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def example() -> None:
    """Launch it as a model would: `rooftile occupancy` reads the arguments' types from here."""
    import torch

    x = torch.empty(4096, 4096, dtype=torch.bfloat16)
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](y, x, y.stride(0), x.stride(0), x.shape[1], BLOCK=4096)
