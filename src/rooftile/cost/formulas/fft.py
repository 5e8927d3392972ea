"""Fourier transforms: 5 n log2 n FLOP a complex transform of n points, half of it from or to reals.

Source: the count of the radix-2 transform, the convention of FFTW's and cuFFT's benchmarks.
"""

from __future__ import annotations

from functools import partial
from math import log2, prod

from rooftile.cost.formulas.operands import Formula, cost, integer_list, operand, result
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op


def fft_flops(points: int, batch: int = 1, *, real: bool = False) -> int:
    """FLOP of ``batch`` transforms of that many points."""
    if points < 2:
        return 0
    flops = 5 * points * log2(points) * batch
    return round(flops / 2 if real else flops)


def _transform(op: Op, real: bool) -> Cost:
    """The full length of a real transform stands on its real side."""
    x, y = operand(op, "self"), result(op)
    full = y if not y.dtype.startswith("complex") else x
    rank = len(full.shape)
    dims = integer_list(op, "dim")
    if any(not -rank <= d < rank for d in dims):
        raise InputError(f"{op.aten}: dim must be a list of {rank} dimensions, got {dims!r}")
    points = prod(full.shape[d] for d in dims)
    batch = full.numel // points if points else 0
    return cost(op, f"fft.{op.name}", vector=fft_flops(points, batch, real=real))


OPS: dict[str, Formula] = {
    "fft_c2c": partial(_transform, real=False),
    "fft_r2c": partial(_transform, real=True),
    "fft_c2r": partial(_transform, real=True),
}
