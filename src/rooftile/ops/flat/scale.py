"""A tensor times a number on the GPU, in another dtype: one read and one write of each element."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rooftile.ops._launch import compiler_options, launch, register
from rooftile.ops._replay import empty
from rooftile.plan.launch import row_launch


@triton.jit
def scale_kernel(
    x_ptr,  # [n_elements]
    factor_ptr,  # []
    y_ptr,  # [n_elements]
    n_elements,
    BLOCK_N: tl.constexpr,
):
    offs = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = offs < n_elements
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = x * tl.load(factor_ptr).to(tl.float32)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def _scaled(x: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    y = empty(x.shape, dtype, x.device)
    if y.numel() == 0:
        return y
    plan = row_launch("flat", x.numel(), x.element_size())
    launch(
        scale_kernel, (-(-x.numel() // plan.block_n),), x.device,
        x.contiguous(), factor, y, x.numel(), BLOCK_N=plan.block_n,
        **compiler_options(plan, x.device),
    )  # fmt: skip
    return y


scaled = register(
    "scaled", "(Tensor x, Tensor factor, ScalarType dtype) -> Tensor", _scaled, replays=True
)


@torch.library.register_fake("rooftile::scaled")
def _(x: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    return x.new_empty(x.shape, dtype=dtype)
