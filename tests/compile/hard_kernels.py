"""Kernels as people write them: helpers, decorators, constants of every kind, faults.

Annotations are not postponed here: Triton would see ``'*bf16'`` within quotes.
"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

SHIFT = tl.constexpr(7)
OUT = tl.constexpr(tl.float16)


@triton.jit
def double(x):
    """A helper, and a constant of another kernel."""
    return x * 2


@triton.autotune(
    [triton.Config({"BLOCK": 512}, num_warps=2), triton.Config({"BLOCK": 1024})], key=["n"]
)
@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def decorated_kernel(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Under an autotuner over heuristics."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x_ptr + offs, double(tl.load(x_ptr + offs)) + SHIFT)
    else:
        mask = offs < n
        tl.store(x_ptr + offs, double(tl.load(x_ptr + offs, mask=mask)), mask=mask)


def decorated():
    """A length that 512 divides."""
    grid = lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)  # noqa: E731
    decorated_kernel[grid](torch.empty(4096), 4096)


@triton.jit
def constants_kernel(
    y_ptr, x_ptr, F: tl.constexpr, D: tl.constexpr, T: tl.constexpr, BLOCK: tl.constexpr
):
    """A function, a dtype and a tuple as constants."""
    offs = tl.arange(0, BLOCK)
    x = F(tl.load(x_ptr + offs)).to(D)
    tl.store(y_ptr + offs, (x * T[0] + T[1]).to(OUT))


@triton.jit
def pair_kernel(pair, n, BLOCK: tl.constexpr):
    """A tuple of pointers."""
    offs = tl.arange(0, BLOCK)
    tl.store(pair[1] + offs, tl.load(pair[0] + offs, mask=offs < n), mask=offs < n)


def paired():
    """Both of the same call."""
    pair_kernel[(1,)]((torch.empty(1024), torch.empty(1024)), 1024, BLOCK=1024)


@triton.jit
def annotated_kernel(
    x_ptr: "*bf16", n: tl.int32, wide: tl.int64, scale=0.5, shift=3, flag=True, none=None,  # noqa: F722
    BLOCK: tl.constexpr = 256,
):  # fmt: skip
    """Types by annotations and defaults alone."""
    offs = tl.arange(0, BLOCK) + wide
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(x_ptr + offs, (x * scale + shift).to(tl.bfloat16), mask=offs < n)


class Kernels:
    """A name within a name."""

    @triton.jit
    def copy_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
        """In a class."""
        offs = tl.arange(0, BLOCK)
        tl.store(y_ptr + offs, tl.load(x_ptr + offs))


@triton.jit
def dot_kernel(
    c_ptr, a_ptr, b_ptr, K, N: tl.constexpr, DEPTH: tl.constexpr, ACC: tl.constexpr = tl.float32
):
    """A while loop around a dot."""
    n = tl.arange(0, N)
    k = tl.arange(0, DEPTH)
    acc = tl.zeros((N, N), ACC)
    done = 0
    while done < K:
        a = tl.load(a_ptr + n[:, None] * K + (k + done)[None, :])
        b = tl.load(b_ptr + (k + done)[:, None] * N + n[None, :])
        acc = tl.dot(a, b, acc, out_dtype=ACC)
        done += DEPTH
    tl.store(c_ptr + n[:, None] * N + n[None, :], acc)


@triton.jit
def assembly_kernel(x_ptr, BLOCK: tl.constexpr):
    """PTX of one's own."""
    offs = tl.arange(0, BLOCK)
    x = tl.inline_asm_elementwise(
        "add.s32 $0, $1, 3;", "=r,r", [tl.load(x_ptr + offs)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(x_ptr + offs, x)


@gluon.jit
def warp_of_32_kernel(y_ptr, x_ptr, BLOCK: gl.constexpr):
    """A layout of NVIDIA's warps, which AMD's waves do not have."""
    layout: gl.constexpr = gl.BlockedLayout([8], [32], [4], [0])
    offs = gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + offs, gl.load(x_ptr + offs))
