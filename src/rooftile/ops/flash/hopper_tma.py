"""What the Hopper kernels use of Gluon, under one name for Triton 3.6 and later.

Triton 3.9 renamed the tensor copies and wrapped the reduction, which 3.6 has in its builder alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

FAR = 2**30  # rows that a descriptor of packed sequences says there are
_DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}


@builtin
def _reduce_add(tensor_desc, coord, src, _semantic=None):
    """Add a shared tile to global memory, as ``async_atomic_add`` of Triton 3.9."""
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, tensor_desc.handle, coord, src.handle)


if hasattr(tma, "async_load"):
    tma_load = tma.async_load
    tma_store = tma.async_store
    tma_add = tma.async_atomic_add
else:
    tma_load = tma.async_copy_global_to_shared
    tma_store = tma.async_copy_shared_to_global
    tma_add = _reduce_add


# Named barriers 8 to 15 are free: Triton itself takes 0 to 4 in these kernels. An mbarrier arrive
# of Gluon costs a barrier of the warpgroup first, bar.arrive does not.
@gluon.jit
def bar_arrive(index, THREADS: gl.constexpr):
    """Arrive at a named barrier where THREADS threads meet; do not wait."""
    gl.inline_asm_elementwise(
        f"bar.arrive $1, {THREADS}; mov.b32 $0, $1;", "=r,r", [index], dtype=gl.int32,
        is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def bar_sync(index, THREADS: gl.constexpr):
    """Wait at a named barrier until THREADS threads have arrived."""
    gl.inline_asm_elementwise(
        f"bar.sync $1, {THREADS}; mov.b32 $0, $1;", "=r,r", [index], dtype=gl.int32,
        is_pure=False, pack=1,
    )  # fmt: skip


def tile_layout(block: list[int], dtype: torch.dtype) -> Any:
    """The shared memory layout of a tile, with the widest swizzle that it allows."""
    return gl.NVMMASharedLayout.get_default_for(block, _DTYPES[dtype])


def head_tiles(t: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Tiles of one head of a (B, H, S, D) tensor of any strides that ``why_not`` allows.

    What lies past S or D reads as 0 and is not written.
    """
    strides = [
        stride if size > 1 else 16  # of a dimension of one element any stride will do
        for size, stride in zip(t.shape[:-1], t.stride()[:-1], strict=True)
    ]
    block = [1, 1, rows, columns]
    return TensorDescriptor(t, list(t.shape), [*strides, 1], block, tile_layout(block, t.dtype))


def ragged_tiles(t: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Tiles of one head of packed sequences (1, H, T, D), each of which may end anywhere.

    A coordinate past ``FAR`` rows reads as 0 and is not written, so a sequence must end there. Two
    more dimensions move it: the second by its end, the first back by ``FAR`` rows, for addresses
    are modulo 2^64. Source: triton.tools.ragged_tma.
    """
    _, heads, _, width = t.shape
    head, row = t.stride(1) if heads > 1 else 16, t.stride(2) if t.shape[2] > 1 else 16
    sizes = [FAR + 1, FAR, heads, FAR, width]
    strides = [2**64 // FAR - row, row, head, row, 1]
    block = [1, 1, 1, rows, columns]
    return TensorDescriptor(t, sizes, strides, block, tile_layout(block, t.dtype))


def flat_tiles(t: Tensor, block: list[int]) -> TensorDescriptor:
    """Tiles of a contiguous tensor."""
    swizzle: Any = None
    if len(block) == 1:
        swizzle = gl.NVMMASharedLayout(
            swizzle_byte_width=0, element_bitwidth=8 * t.element_size(), rank=1
        )
    layout = swizzle or tile_layout(block, t.dtype)
    return TensorDescriptor(t, list(t.shape), list(t.stride()), block, layout)


def why_not(name: str, t: Tensor) -> str | None:
    """Why the tensor copy engine cannot read a (B, H, S, D) tensor, None where it can."""
    item = t.element_size()
    if t.dtype not in (torch.float16, torch.bfloat16):
        return f"{name} is {t.dtype}, the Hopper kernels take float16 and bfloat16"
    if t.data_ptr() % 16:
        return f"{name} does not start at a multiple of 16 bytes"
    if t.shape[-1] > 1 and t.stride(-1) != 1:
        return f"{name} has stride {t.stride(-1)} in its last dimension, not 1"
    for dim in range(3):
        stride = t.stride(dim)
        if t.shape[dim] > 1 and (stride <= 0 or stride * item % 16):
            return f"{name} has stride {stride} in dimension {dim}, no multiple of 16 bytes"
    return None
