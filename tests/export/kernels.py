"""Kernels of a user's own, to be exported."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, x * factor, mask=offs < n)


def example():
    """A launch of it."""
    x = torch.empty(1000, device="meta", dtype=torch.float16)
    scale[(8,)](x, x, 1000, 0.5, BLOCK=128)


@triton.jit
def device_descriptor_kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    y = tl.make_tensor_descriptor(y_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    y.store(at, x.load(at))


@triton.jit
def host_descriptor_kernel(x_desc, y_ptr, BLOCK: tl.constexpr):
    tile = x_desc.load([tl.program_id(0) * BLOCK, 0])
    offs = tl.arange(0, BLOCK)
    tl.store(y_ptr + offs[:, None] * BLOCK + offs[None, :], tile)


def host_descriptor():
    """A launch of it."""
    x = torch.empty(64, 64, dtype=torch.float16)
    host_descriptor_kernel[(1,)](TensorDescriptor.from_tensor(x, [64, 64]), x, BLOCK=64)


@triton.jit
def broken_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), no_such_name)  # noqa: F821


@triton.jit
def spilling(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs).to(tl.float32)
    tl.store(y_ptr + offs, x / tl.sum(x))
