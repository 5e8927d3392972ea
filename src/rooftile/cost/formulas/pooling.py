"""Pooling.

A pooling window is one FLOP a tap (comparison or addition), an average one division a result more;
taps over padding count. Backward: one addition a result for a maximum, one division and an addition
a tap for an average. Backward ops take the input for its shape alone and do not read it.
"""

from __future__ import annotations

from functools import partial
from math import prod

from rooftile.cost.formulas.convolution import window_bytes
from rooftile.cost.formulas.gather import gathered_bytes
from rooftile.cost.formulas.operands import (
    Formula,
    cost,
    integers,
    operand,
    reads_without,
    result,
)
from rooftile.cost.regions import region_bytes
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


def _fractional(op: Op, rank: int) -> Cost:
    """Windows stand where random numbers put them: the places they may read, at most all."""
    x, out = operand(op, "self"), result(op)
    kernel = integers(op, "kernel_size", rank)
    flops = pool_flops(out.numel, kernel, average=False)
    read = gathered_bytes(x, flops) + region_bytes(reads_without(op, "self"))
    return cost(op, f"pooling.{op.name}", vector=flops, read_bytes=read)


def _unpool(op: Op) -> Cost:
    """Zeros, and each element where its index says."""
    return cost(op, f"pooling.{op.name}", reads=[operand(op, "self"), operand(op, "indices")])


OPS: dict[str, Formula] = {
    **{f"max_pool{r}d": partial(_pool, rank=r, average=False) for r in (1, 2, 3)},
    **{f"avg_pool{r}d": partial(_pool, rank=r, average=True) for r in (1, 2, 3)},
    **{f"fractional_max_pool{r}d": partial(_fractional, rank=r) for r in (2, 3)},
    **{
        f"fractional_max_pool{r}d_backward": partial(_pool_backward, rank=r, average=False)
        for r in (2, 3)
    },
    "max_unpool": _unpool,
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
}
