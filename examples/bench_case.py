"""A kernel of one's own under the bench: ``rooftile bench examples/bench_case.py:CASE``.

The kernel is the row softmax of every Triton tutorial: one program a row, the row in one block. A
case says what to compute it with, what is right, and what one call must cost.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rooftile.bench.case import Case
from rooftile.cost.formulas.softmax import softmax_forward


@triton.jit
def _softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, n_cols, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK_N)
    mask = offs < n_cols
    x = tl.load(x_ptr + row * stride_x + offs, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_y + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def my_softmax(x: Tensor) -> Tensor:
    """Softmax over the last dimension of [M, N]."""
    m, n = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(n)
    _softmax_kernel[(m,)](x, y, x.stride(0), y.stride(0), n, BLOCK_N=block, num_warps=8)
    return y


CASE = Case(
    op="my_softmax",
    provider="mine",
    dims=("M", "N"),
    inputs=lambda d, dtype, device: (torch.randn(d["M"], d["N"], dtype=dtype, device=device),),
    function=my_softmax,
    reference=lambda x: torch.softmax(x, -1),
    costs={"forward": lambda d, itemsize: softmax_forward(d["M"], d["N"], itemsize)},
    shapes={"forward": ((65536, 4096), (32768, 8192), (4096, 65536))},
    small=((4, 781), (3, 64)),
)
