"""GELU and its derivative on the device, in few operations."""

from __future__ import annotations

import triton
import triton.language as tl

_SQRT_HALF = tl.constexpr(0.7071067811865476)
_INV_SQRT_TWO_PI = tl.constexpr(0.3989422804014327)
_TWO_SQRT_TWO_OVER_PI = tl.constexpr(1.5957691216057308)
_CUBIC = tl.constexpr(0.044715)


@triton.jit
def _normal_cdf(x, density, FAST: tl.constexpr):
    """Phi(x). FAST takes erfc from a polynomial, wrong by at most 1.5e-7, and exp(-x^2 / 2).

    Source: Abramowitz and Stegun 7.1.26. Its 12 operations are a third of those of erf.
    """
    if FAST:
        z = tl.abs(x) * _SQRT_HALF
        t = 1.0 / (1.0 + 0.3275911 * z)
        p = 0.254829592 + t * (
            -0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))
        )
        upper = 0.5 * t * p * density
        cdf = tl.where(x < 0, upper, 1.0 - upper)
    else:
        cdf = 0.5 * (1.0 + tl.erf(x * _SQRT_HALF))
    return cdf


@triton.jit
def gelu_of(x, TANH: tl.constexpr, FAST: tl.constexpr):
    """x * Phi(x), or its tanh form, in which 0.5 * (1 + tanh(u)) is the logistic of 2u."""
    if TANH:
        y = x * tl.sigmoid(x * _TWO_SQRT_TWO_OVER_PI * (1.0 + x * x * _CUBIC))
    else:
        y = x * _normal_cdf(x, tl.exp(-0.5 * x * x), FAST)
    return y


@triton.jit
def gelu_and_derivative(x, TANH: tl.constexpr, FAST: tl.constexpr):
    """GELU and its derivative."""
    if TANH:
        u = x * _TWO_SQRT_TWO_OVER_PI * (1.0 + x * x * _CUBIC)
        e = tl.exp(-u)
        s = 1.0 / (1.0 + e)
        rest = tl.where(u > 0, e * s, 1.0 - s)  # 1 - s without its rounding where s is nearly 1
        slope = (1.0 + 3.0 * (x * x * _CUBIC)) * _TWO_SQRT_TWO_OVER_PI
        y = x * s
        dy = s + y * rest * slope
    else:
        density = tl.exp(-0.5 * x * x)
        cdf = _normal_cdf(x, density, FAST)
        y = x * cdf
        dy = cdf + x * density * _INV_SQRT_TWO_PI
    return y, dy
