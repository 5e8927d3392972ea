"""The peer that is CUDA C++ by hand, ``benchmarks/attention.cu``: compiled when it is called."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from rooftile.bench.case import Function
from rooftile.bench.nvrtc import CudaKernel, compile_cuda
from rooftile.errors import InputError

_WARPS = 4
# head dim -> keys of a tile and tiles of 16 queries a warp: what 255 registers hold
_TILES = {64: (64, 2), 128: (32, 2), 256: (32, 1)}
_HERE = Path(__file__).parent
# beside this file where Rooftile is installed, among the benchmarks in its repository
_SOURCES = (_HERE / "attention.cu", _HERE.parents[2] / "benchmarks" / "attention.cu")


def source() -> str:
    """The text of the kernel.

    Raises:
        ImportError: It is not there.
    """
    for path in _SOURCES:
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise ImportError(f"no attention.cu at {' or '.join(map(str, _SOURCES))}")


def cuda_attention(causal: bool) -> Function:
    """A forward of contiguous [batch, heads, sequence, width] in 16 bits, the mask at the top left.

    Raises:
        ImportError: The source is not there.
    """
    text = source()

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if torch.is_grad_enabled() and q.requires_grad:
            raise InputError("direction must be forward: the kernel by hand has no backward")
        check(q, k, v)
        batch, heads, q_len, width = q.shape
        o = torch.empty_like(q)
        keys, tiles = _TILES[width]
        rows = 16 * tiles * _WARPS
        kernel = _kernel(text, q.device.index, width, keys, tiles, causal, q.dtype)
        to_base2 = math.log2(math.e) / math.sqrt(width)
        grid = (-(-q_len // rows), batch * heads)
        kernel.launch(grid, 32 * _WARPS, q, k, v, o, q_len, k.shape[2], to_base2)
        return o

    return call


def check(q: Tensor, k: Tensor, v: Tensor) -> None:
    """What the kernel takes.

    Raises:
        InputError: It is none of that.
    """
    if q.shape[-1] not in _TILES or q.dtype not in (torch.bfloat16, torch.float16):
        raise InputError(
            f"query must have a head dim of {', '.join(map(str, _TILES))} in 16 bits, "
            f"got {q.shape[-1]} in {q.dtype}"
        )
    if not all(t.is_contiguous() and t.dtype == q.dtype for t in (q, k, v)):
        raise InputError("query, key and value must be contiguous and of one dtype")


def defines(width: int, keys: int, tiles: int, causal: bool, dtype: torch.dtype) -> dict[str, int]:
    """The macros that the source asks for."""
    return {
        "HEAD_DIM": width,
        "BLOCK_N": keys,
        "TILES": tiles,
        "CAUSAL": int(causal),
        "FP16": int(dtype == torch.float16),
    }


@lru_cache(maxsize=32)
def _kernel(
    text: str, device: int, width: int, keys: int, tiles: int, causal: bool, dtype: torch.dtype
) -> CudaKernel:
    """Compiled once for each form and loaded once for each device."""
    major, minor = torch.cuda.get_device_capability(device)
    given = defines(width, keys, tiles, causal, dtype)
    cubin = compile_cuda(text, f"sm_{major}{minor}", given)
    rows = 16 * tiles * _WARPS
    # queries, then keys and values twice
    return CudaKernel(cubin, "attention_forward", (rows + 4 * keys) * width * 2)
