"""Kernels to compile: one of each kind that the reader must read."""

from __future__ import annotations

import os

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime.jit import MockTensor


@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride_ym, stride_xm, n_cols, BLOCK: tl.constexpr):
    """One load, one store."""
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_ym + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def two_pass_kernel(y_ptr, x_ptr, stride_ym, stride_xm, n_cols, BLOCK: tl.constexpr):
    """Two loops, the row read in each."""
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


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Tensor cores behind a pipelined loop; no tail."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty))


@triton.jit
def add_kernel(y_ptr, x_ptr, n, BLOCK: tl.constexpr):
    """Atomics."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@gluon.jit
def gluon_copy_kernel(y_ptr, x_ptr, n, BLOCK: gl.constexpr):
    """Gluon, with a layout of its own."""
    layout: gl.constexpr = gl.BlockedLayout([8], [32], [4], [0])
    offs = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + offs, gl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def callee(x, SIZE: tl.constexpr):
    """Wrong where SIZE is no power of two."""
    return x + tl.arange(0, SIZE)


@triton.jit
def caller_kernel(y_ptr, BLOCK: tl.constexpr):
    """The fault is in what it calls."""
    offs = callee(tl.program_id(0), BLOCK)
    tl.store(y_ptr + offs, offs)


class Fuse(int):
    """A number that ends the process, as a C++ assertion does, when 512 is multiplied by it."""

    def __rmul__(self, other):
        if other == 512:
            os.abort()
        return other


FUSE = Fuse(1)


@triton.constexpr_function
def die_at_512(block):
    """The block, unless it is 512."""
    return block * FUSE


@triton.jit
def dying_kernel(y_ptr, BLOCK: tl.constexpr):
    """Kills its compiler for one block size."""
    offs = tl.arange(0, die_at_512(BLOCK))
    tl.store(y_ptr + offs, offs)


@triton.autotune([triton.Config({"BLOCK": 2048}, num_warps=8)], key=["n_cols"])
@triton.jit
def tuned_kernel(y_ptr, x_ptr, n_cols, scale, flag, SCALED: tl.constexpr, BLOCK: tl.constexpr):
    """Under an autotuner."""
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n_cols)
    if SCALED:
        x = x * scale
    tl.store(y_ptr + offs, x, mask=offs < n_cols)


@triton.jit
def atomics_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    """Atomics whose width follows from the type."""
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.atomic_max(y_ptr + offs, x)
    tl.atomic_cas(y_ptr + BLOCK + offs, x, x)
    tl.atomic_xchg(y_ptr + 2 * BLOCK + offs, x)
    tl.atomic_add(y_ptr + 3 * BLOCK + offs, x)


@triton.jit
def descriptor_kernel(y_ptr, x_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Bulk copies in a loop, which waits for each at a barrier."""
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    for start in range(0, N, BLOCK_N):
        y.store([tl.program_id(0) * BLOCK_M, start], x.load([tl.program_id(0) * BLOCK_M, start]))


def example():
    """A call of the softmax."""
    x, y = MockTensor("bf16"), MockTensor("bf16")
    softmax_kernel[(64,)](y, x, 4096, 4096, 4096, BLOCK=4096, num_warps=8)


def tuned():
    """A call of the tuned kernel: a width that nothing divides, a stride of 1."""
    x, y = MockTensor("fp32"), MockTensor("fp32")
    tuned_kernel[(1,)](y, x, 1001, 0.5, 1, SCALED=True)


def nothing():
    """Calls no kernel."""


def failing():
    """Fails before its call."""
    raise KeyError("weights")
