"""GELU and its derivative on the device, in few operations.

``PTX`` says that the kernel may hold inline PTX: then exponentials and reciprocals are the
hardware's own instruction each. Triton's compile to the same one between steps that save numbers
below 2^-126.
``FAST`` is for 16-bit elements.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LOG2_E = tl.constexpr(1.4426950408889634)
_SQRT_HALF = tl.constexpr(0.7071067811865476)
_INV_SQRT_TWO_PI = tl.constexpr(0.3989422804014327)
_TWO_SQRT_TWO_OVER_PI = tl.constexpr(1.5957691216057308)
_CUBIC = tl.constexpr(0.044715)
# past it the normal distribution's tail is 0 in any 16-bit sum, and the polynomial has no limit
_TAIL_END = tl.constexpr(16.0)


@triton.jit
def exp2_of(x, PTX: tl.constexpr):
    """2^x, off by at most 2 units of a float32's last place; 0 below 2^-126."""
    if PTX:
        y = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        y = tl.exp2(x)
    return y


@triton.jit
def reciprocal_of(x, PTX: tl.constexpr):
    """1 / x, off by at most 1 unit of a float32's last place; 0 above 2^126."""
    if PTX:
        y = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        y = 1.0 / x
    return y


@triton.jit
def _tail(a, PTX: tl.constexpr):
    """Phi(-a) for a in [0, 16]: wrong by 6.6e-6 of itself up to 6, and never by more than 1.7e-6.

    The tail's logarithm is smooth, so a polynomial of degree 7, fitted to it for the least of the
    largest errors, and one exponential are enough: erf takes four times as many operations.
    """
    p = -1.8348137018620037e-06 * a + 6.159833719721064e-05
    p = p * a - 0.0009305252460762858
    p = p * a + 0.008507892489433289
    p = p * a - 0.05396007373929024
    p = p * a - 0.4584643840789795
    p = p * a - 1.1512510776519775
    p = p * a - 0.9999952912330627
    return exp2_of(p, PTX)


@triton.jit
def _normal_cdf(x, FAST: tl.constexpr, PTX: tl.constexpr):
    """Phi(x): 0 at -inf, so that GELU is NaN there, as torch's is."""
    if FAST:
        tail = _tail(tl.minimum(tl.abs(x), _TAIL_END), PTX)
        cdf = tl.where(x < 0, tail, 1.0 - tail)
    else:
        cdf = 0.5 * (1.0 + tl.erf(x * _SQRT_HALF))
    return cdf


@triton.jit
def _tanh_exponent(x, square):
    """-2u / ln 2 of GELU's tanh form, where 0.5 * (1 + tanh(u)) is the logistic of 2u."""
    linear: tl.constexpr = -_TWO_SQRT_TWO_OVER_PI * _LOG2_E
    cubic: tl.constexpr = linear * _CUBIC
    return x * (square * cubic + linear)


@triton.jit
def gelu_of(x, TANH: tl.constexpr, FAST: tl.constexpr, PTX: tl.constexpr):
    """x * Phi(x), or its tanh form."""
    if TANH:
        y = x * reciprocal_of(1.0 + exp2_of(_tanh_exponent(x, x * x), PTX), PTX)
    else:
        y = x * _normal_cdf(x, FAST, PTX)
    return y


@triton.jit
def gelu_and_derivative(x, TANH: tl.constexpr, FAST: tl.constexpr, PTX: tl.constexpr):
    """GELU and its derivative."""
    square = x * x
    if TANH:
        e = exp2_of(_tanh_exponent(x, square), PTX)
        s = reciprocal_of(1.0 + e, PTX)
        y = x * s
        if FAST:
            rest = y - y * s
        else:
            rest = y * (s * tl.minimum(e, 1e30))  # 1 - s without its rounding where s is nearly 1
        cubic: tl.constexpr = 3.0 * _CUBIC * _TWO_SQRT_TWO_OVER_PI
        dy = s + rest * (square * cubic + _TWO_SQRT_TWO_OVER_PI)
    else:
        cdf = _normal_cdf(x, FAST, PTX)
        half: tl.constexpr = -0.5 * _LOG2_E
        density = exp2_of(square * half, PTX) * _INV_SQRT_TWO_PI
        y = x * cdf
        dy = cdf + x * density
    return y, dy
