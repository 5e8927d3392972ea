"""Interpolation and sampling by a grid: only the places that are touched are read.

A multiply-add a tap: 2 taps a dimension for linear, 4 for cubic, none for nearest, which copies. An
antialiased filter is as wide as its scale, so its taps are counted window by window. Which places
the taps stand on follows from sizes and scale, as torch computes them. The weights of the taps,
once a row or a column, are not counted.

A grid names places that are data: each point touches its corners, at most the whole image. The
gradient of the image is a multiply-add a tap, that of the grid one a tap and dimension. Backward
ops fill a gradient of the input's size and take the input of an interpolation for its shape alone.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import floor, prod

from rooftile.cost.formulas.gather import gathered_bytes
from rooftile.cost.formulas.operands import (
    Formula,
    cost,
    flag,
    mask,
    matrix_math,
    operand,
    result,
)
from rooftile.cost.regions import region_bytes
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor

# Taps a dimension.
_TAPS = {"nearest": 1, "nearest_exact": 1, "linear": 2, "cubic": 4}
_SCALES = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}


def _scale(size: int, out: int, factor: object, aligned: bool) -> float:
    """Input places an output place stands for, as torch computes it."""
    if aligned:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    if isinstance(factor, int | float) and factor > 0:
        return 1 / factor
    return size / out if out else 0.0


def _first(place: int, scale: float, kind: str, aligned: bool) -> int:
    """The first place that an output place's taps stand on, before it is cut to the input."""
    if kind == "nearest":
        return floor(place * scale)
    if kind == "nearest_exact":
        return floor((place + 0.5) * scale)
    source = place * scale if aligned else (place + 0.5) * scale - 0.5
    return floor(max(source, 0.0)) if kind == "linear" else floor(source) - 1


@lru_cache(maxsize=4_096)
def places_touched(
    size: int, out: int, kind: str, factor: float | None = None, aligned: bool = False
) -> int:
    """Places of one input dimension that an interpolation reads.

    Args:
        size: Of the input.
        out: Of the result.
        kind: ``"nearest"``, ``"nearest_exact"``, ``"linear"`` or ``"cubic"``.
        factor: Scale factor where it was given; the sizes' ratio where None.
        aligned: Corners stand on corners.
    """
    scale = _scale(size, out, factor, aligned)
    firsts = (_first(place, scale, kind, aligned) for place in range(out))
    taps = range(_TAPS[kind])
    return len({min(max(first + tap, 0), size - 1) for first in firsts for tap in taps})


@lru_cache(maxsize=4_096)
def _windows(
    size: int, out: int, width: int, factor: float | None, aligned: bool
) -> tuple[int, int]:
    """Taps of an antialiased filter along one dimension, and the distinct places under them."""
    scale = _scale(size, out, factor, aligned)
    support = width / 2 * max(scale, 1.0)
    taps = 0
    places: set[int] = set()
    for place in range(out):
        center = scale * (place + 0.5)
        window = range(max(int(center - support + 0.5), 0), min(int(center + support + 0.5), size))
        taps += len(window)
        places.update(window)
    return taps, len(places)


def _factors(op: Op, rank: int) -> tuple[float | None, ...]:
    """Scale factors by dimension; None where only sizes are given."""
    given = op.attrs.get("scale_factors")
    values = given if isinstance(given, tuple) else tuple(op.attrs.get(n) for n in _SCALES[rank])
    if len(values) != rank:
        raise InputError(f"{op.aten}: scale_factors must be {rank} numbers, got {given!r}")
    return tuple(v if isinstance(v, int | float) else None for v in values)


def _spatial(op: Op, rank: int, wide: Tensor, narrow: Tensor) -> tuple[tuple[int, int], ...]:
    """Sizes of input and result, dimension by dimension."""
    if min(len(wide.shape), len(narrow.shape)) < rank or 0 in wide.shape[-rank:]:
        raise InputError(f"{op.aten}: self must have {rank} dimensions of places, got {wide.shape}")
    return tuple(zip(wide.shape[-rank:], narrow.shape[-rank:], strict=True))


def _interpolate(op: Op, rank: int, kind: str) -> Cost:
    x, out = operand(op, "self", "input"), result(op)
    aligned = flag(op, "align_corners")
    sizes = zip(_spatial(op, rank, x, out), _factors(op, rank), strict=True)
    touched = prod(places_touched(n, m, kind, factor, aligned) for (n, m), factor in sizes)
    taps = 0 if kind.startswith("nearest") else _TAPS[kind] ** rank
    read = gathered_bytes(x, touched * prod(x.shape[:-rank]))
    return cost(op, f"resampling.{op.name}", vector=2 * taps * out.numel, read_bytes=read)


def _interpolate_backward(op: Op, rank: int, kind: str) -> Cost:
    """One multiply-add a tap, to the place it came from; nearest only adds."""
    dy = operand(op, "grad_output")
    per_element = 1 if kind.startswith("nearest") else 2 * _TAPS[kind] ** rank
    return cost(op, f"resampling.{op.name}", vector=per_element * dy.numel, reads=[dy])


def _antialiased(op: Op, width: int) -> Cost:
    """Forward and backward: the taps of all windows of one channel, times the channels."""
    dy = op.operand("grad_output")
    x, out = (operand(op, "self", "input"), result(op)) if dy is None else (result(op), dy)
    aligned = flag(op, "align_corners")
    sizes = zip(_spatial(op, 2, x, out), _factors(op, 2), strict=True)
    windows = [_windows(n, m, width, factor, aligned) for (n, m), factor in sizes]
    channels = prod(x.shape[:-2])
    read = region_bytes([dy]) if dy is not None else 0
    if dy is None:
        read = gathered_bytes(x, channels * prod(places for _, places in windows))
    vector = 2 * channels * prod(taps for taps, _ in windows)
    return cost(op, f"resampling.{op.name}", vector=vector, read_bytes=read)


def _corners(op: Op, rank: int) -> tuple[int, int]:
    """Places a point touches, and the multiply-adds it takes: nearest copies."""
    mode = op.attrs.get("interpolation_mode", 0)
    if mode == 0:
        return 2**rank, 2**rank
    if mode == 1:
        return 1, 0
    if mode == 2:
        return 4**rank, 4**rank
    raise InputError(f"{op.aten}: interpolation_mode must be 0, 1 or 2, got {mode!r}")


def _sampled_bytes(x: Tensor, grid: Tensor, corners: int, rank: int) -> int:
    """Bytes of the image that a grid's points touch, at most."""
    channels = x.shape[1] if len(x.shape) > 1 else 1
    return gathered_bytes(x, grid.numel // rank * corners * channels)


def _grid_sample(op: Op, rank: int) -> Cost:
    x, grid = operand(op, "input", "self"), operand(op, "grid")
    corners, taps = _corners(op, rank)
    read = _sampled_bytes(x, grid, corners, rank) + region_bytes([grid])
    vector = 2 * taps * result(op).numel
    return cost(op, f"resampling.{op.name}", vector=vector, read_bytes=read)


def _grid_sample_backward(op: Op, rank: int) -> Cost:
    """A dense gradient of the image, and the grid's, which needs the image's values."""
    dy, grid = operand(op, "grad_output"), operand(op, "grid")
    x = operand(op, "input", "self")
    dx, dgrid = mask(op, "output_mask", 2)
    corners, taps = _corners(op, rank)
    per_element = dx * max(2 * taps, 1) + dgrid * 2 * taps * rank
    # the nearest place's value does not change with the grid: its gradient is zeros
    read = _sampled_bytes(x, grid, corners, rank) if dgrid and taps else 0
    read += region_bytes([dy, grid])
    return cost(op, f"resampling.{op.name}", vector=per_element * dy.numel, read_bytes=read)


def _affine_grid(op: Op) -> Cost:
    """A point of the grid is the product of an affine matrix and its homogeneous coordinates."""
    theta, grid = operand(op, "theta"), result(op)
    columns = theta.shape[-1] if theta.shape else 0
    flops = 2 * columns * grid.numel
    return cost(op, "resampling.affine_grid", matrix=flops, math=matrix_math(op, theta))


_KINDS = {
    "upsample_nearest1d": (1, "nearest"),
    "upsample_nearest2d": (2, "nearest"),
    "upsample_nearest3d": (3, "nearest"),
    "upsample_nearest_exact1d": (1, "nearest_exact"),
    "upsample_nearest_exact2d": (2, "nearest_exact"),
    "upsample_nearest_exact3d": (3, "nearest_exact"),
    "upsample_linear1d": (1, "linear"),
    "upsample_bilinear2d": (2, "linear"),
    "upsample_trilinear3d": (3, "linear"),
    "upsample_bicubic2d": (2, "cubic"),
}
# Width of the filter before it is stretched.
_ANTIALIASED = {"upsample_bilinear2d_aa": 2, "upsample_bicubic2d_aa": 4, "upsample_lanczos2d_aa": 6}

OPS: dict[str, Formula] = {
    **{name: partial(_interpolate, rank=r, kind=kind) for name, (r, kind) in _KINDS.items()},
    **{
        f"{name}_backward": partial(_interpolate_backward, rank=r, kind=kind)
        for name, (r, kind) in _KINDS.items()
    },
    **{name: partial(_antialiased, width=width) for name, width in _ANTIALIASED.items()},
    **{f"{name}_backward": partial(_antialiased, width=w) for name, w in _ANTIALIASED.items()},
    "grid_sample2d": partial(_grid_sample, rank=2),
    "grid_sample3d": partial(_grid_sample, rank=3),
    "grid_sample2d_backward": partial(_grid_sample_backward, rank=2),
    "grid_sample3d_backward": partial(_grid_sample_backward, rank=3),
    "affine_grid": _affine_grid,
}
