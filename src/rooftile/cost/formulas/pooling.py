"""Pooling and interpolation.

A pooling window is one FLOP a tap (comparison or addition), an average one division a result more;
taps over padding count. Interpolation is a multiply-add a tap: 2 taps a dimension for linear, 4 for
cubic, none for nearest, which copies. Backward: one addition a result for a maximum, one division
and an addition a tap for an average, the forward's count for interpolation. Backward ops take the
input for its shape alone and do not read it.
"""

from __future__ import annotations

from functools import partial
from math import prod

from rooftile.cost.formulas.convolution import window_bytes
from rooftile.cost.formulas.operands import (
    Formula,
    cost,
    integers,
    operand,
    reads_without,
    result,
)
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op


def pool_flops(results: int, kernel: tuple[int, ...], *, average: bool) -> int:
    """FLOP of a pooling layer of ``results`` windows."""
    return results * (prod(kernel) + average)


def _taps(sizes: tuple[int, ...], outs: tuple[int, ...]) -> int:
    """Elements in all windows of an adaptive pooling, of one channel.

    Window o of a dimension runs from floor(o * size / out) to ceil((o + 1) * size / out).
    """
    total = 1
    for size, out in zip(sizes, outs, strict=True):
        total *= sum(-(-(o + 1) * size // out) - o * size // out for o in range(out))
    return total


def _pool(op: Op, rank: int, *, average: bool) -> Cost:
    x, out = operand(op, "self", "input"), result(op)
    kernel = integers(op, "kernel_size", rank)
    flops = pool_flops(out.numel, kernel, average=average)
    read = window_bytes(op, x, out, kernel)
    return cost(op, f"pooling.{op.name}", vector=flops, read_bytes=read)


def _pool_backward(op: Op, rank: int, *, average: bool) -> Cost:
    dy = operand(op, "grad_output")
    kernel = integers(op, "kernel_size", rank)
    flops = pool_flops(dy.numel, kernel, average=True) if average else dy.numel
    return cost(op, f"pooling.{op.name}", vector=flops, reads=reads_without(op, "self"))


def _adaptive(op: Op, rank: int, *, average: bool) -> Cost:
    x, out = operand(op, "self", "input"), result(op)
    if len(x.shape) < rank:
        raise InputError(f"{op.aten}: self must have {rank} dimensions at least, got {x.shape}")
    channels = prod(x.shape[:-rank])
    taps = channels * _taps(x.shape[-rank:], out.shape[-rank:])
    return cost(op, f"pooling.{op.name}", vector=taps + average * out.numel)


def _adaptive_backward(op: Op, rank: int, *, average: bool) -> Cost:
    dy, dx = operand(op, "grad_output"), result(op)
    taps = prod(dx.shape[:-rank]) * _taps(dx.shape[-rank:], dy.shape[-rank:])
    flops = taps + dy.numel if average else dy.numel
    return cost(op, f"pooling.{op.name}", vector=flops, reads=reads_without(op, "self"))


def _interpolate(op: Op, taps: int) -> Cost:
    return cost(op, f"pooling.{op.name}", vector=2 * taps * result(op).numel)


def _interpolate_backward(op: Op, taps: int) -> Cost:
    """One multiply-add a tap, to the place it came from; nearest only adds."""
    dy = operand(op, "grad_output")
    return cost(op, f"pooling.{op.name}", vector=max(2 * taps, 1) * dy.numel)


def _grid_sample(op: Op) -> Cost:
    """Taps by mode: 0 bilinear, 1 nearest, 2 bicubic."""
    rank = 3 if "3d" in op.name else 2
    modes = {0: 2**rank, 1: 0, 2: 4**rank}
    mode = op.attrs.get("interpolation_mode", 0)
    if not isinstance(mode, int) or mode not in modes:
        raise InputError(f"{op.aten}: interpolation_mode must be 0, 1 or 2, got {mode!r}")
    if op.operand("grad_output") is not None:
        return cost(
            op,
            f"pooling.{op.name}",
            vector=max(2 * modes[mode], 1) * operand(op, "grad_output").numel,
        )
    return cost(op, f"pooling.{op.name}", vector=2 * modes[mode] * result(op).numel)


# op -> taps a result
_INTERPOLATIONS = {
    "upsample_nearest1d": 0,
    "upsample_nearest2d": 0,
    "upsample_nearest3d": 0,
    "upsample_linear1d": 2,
    "upsample_bilinear2d": 4,
    "upsample_trilinear3d": 8,
    "upsample_bicubic2d": 16,
}

OPS: dict[str, Formula] = {
    **{f"max_pool{r}d": partial(_pool, rank=r, average=False) for r in (1, 2, 3)},
    **{f"avg_pool{r}d": partial(_pool, rank=r, average=True) for r in (1, 2, 3)},
    **{f"max_pool{r}d_backward": partial(_pool_backward, rank=r, average=False) for r in (2, 3)},
    **{f"avg_pool{r}d_backward": partial(_pool_backward, rank=r, average=True) for r in (2, 3)},
    **{f"adaptive_max_pool{r}d": partial(_adaptive, rank=r, average=False) for r in (1, 2, 3)},
    **{f"adaptive_avg_pool{r}d": partial(_adaptive, rank=r, average=True) for r in (1, 2, 3)},
    **{
        f"adaptive_max_pool{r}d_backward": partial(_adaptive_backward, rank=r, average=False)
        for r in (2, 3)
    },
    **{
        f"adaptive_avg_pool{r}d_backward": partial(_adaptive_backward, rank=r, average=True)
        for r in (2, 3)
    },
    **{name: partial(_interpolate, taps=taps) for name, taps in _INTERPOLATIONS.items()},
    **{
        f"{name}_backward": partial(_interpolate_backward, taps=taps)
        for name, taps in _INTERPOLATIONS.items()
    },
    "grid_sample2d": _grid_sample,
    "grid_sample3d": _grid_sample,
    "grid_sample2d_backward": _grid_sample,
    "grid_sample3d_backward": _grid_sample,
}
