"""What every attention kernel does to a tile of scores: scale, cap, biases, mask, dropout.

A tile has its queries along one axis and its keys along the other; which is which is the caller's:
``row`` and ``col`` hold their places, shaped to broadcast. Logits leave in base 2, for ``exp2``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rooftile.ops.flat.dropout import kept

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LEAST = tl.constexpr(-3.4e38)  # of a finite logit in base 2


@triton.jit
def tanh_of(x):
    """tanh(x) = 1 - 2 / (exp(2 x) + 1): right at both ends, for exp may overflow.

    Near 0, where that cancels, it is its own series: the next term is 1e-8 of x at 0.25.
    """
    y = x * x
    near = x + x * y * (-1.0 / 3 + y * (2.0 / 15 + y * (-17.0 / 315 + y * (62.0 / 2835))))
    return tl.where(y < 0.0625, near, 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0))


@triton.jit
def capped(s, scale, softcap, CAP: tl.constexpr):
    """Scaled scores, and tanh(scores / cap), of which the backward needs the derivative."""
    s = s * scale
    t = s
    if CAP:
        t = tanh_of(s / softcap)
        s = t * softcap
    return s, t


@triton.jit
def logits_of(s, row, col, shift, slope, mask_ptrs, in_mask, MASK: tl.constexpr):
    """Capped scores with their biases, in base 2; a boolean mask's False is -inf."""
    if slope is not None:
        s -= slope * tl.abs(row + shift - col).to(tl.float32)
    if MASK == "additive":
        s += tl.load(mask_ptrs, mask=in_mask, other=0.0).to(tl.float32)
        # The least float32 hides no key that -inf does not: in base 2 it stays finite. Behind the
        # product, so that it is not contracted with the maximum's subtraction, unrounded.
        s = tl.where(s == float("-inf"), s, tl.maximum(s * LOG2E, LEAST, tl.PropagateNan.ALL))
    else:
        s *= LOG2E
    if MASK == "boolean":
        s = tl.where(tl.load(mask_ptrs, mask=in_mask, other=0) != 0, s, float("-inf"))
    return s


@triton.jit
def visible(row, col, k_len, first, last, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Whether a query sees a key: keys row + first to row + last, cut to those there are."""
    seen = (col < k_len) & (row >= 0)
    if LEFT:
        seen = seen & (col >= row + first)
    if RIGHT:
        seen = seen & (col <= row + last)
    return seen


@triton.jit
def accumulate(s, m, norm, acc, to_base2):
    """One step of the online softmax: weights of a tile, and what was summed before, rescaled.

    ``s * to_base2`` are logits in base 2; a row that has seen no key yet keeps m = -inf.
    """
    m_new = tl.maximum(m, tl.max(s, 1) * to_base2)
    base = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s * to_base2 - base[:, None])
    fade = tl.exp2(m - base)
    return p, m_new, norm * fade + tl.sum(p, 1), acc * fade[:, None]


@triton.jit
def finish(m, norm, acc, sink):
    """Output and natural log-sum-exp of a row; 0 and -inf where it saw no key.

    A sink is one more logit that takes a share and gives nothing.
    """
    if sink is not None:
        m_new = tl.maximum(m, sink * LOG2E)
        base = tl.where(m_new == float("-inf"), 0.0, m_new)
        fade = tl.exp2(m - base)
        norm = norm * fade + tl.exp2(sink * LOG2E - base)
        acc = acc * fade[:, None]
        m = m_new
    none = norm == 0.0
    whole = tl.where(none, 1.0, norm)
    lse = tl.where(none, float("-inf"), m * LN2 + tl.log(whole))
    return acc / whole[:, None], lse


@triton.jit
def stays(seed, line, start, per_row, dropped, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Which weights dropout leaves: [ROWS, COLS] of lines ``line`` [ROWS, 1] from key start on."""
    group = line * per_row + (start // 8 + tl.arange(0, COLS // 8))[None, :]
    return kept(seed, group, dropped, ROWS, COLS // 8)


@triton.jit
def span(first_row, rows, k_len, first, last, BLOCK: tl.constexpr,
         LEFT: tl.constexpr, RIGHT: tl.constexpr):  # fmt: skip
    """Where queries [first_row, first_row + rows) look: keys [a, d), unmasked in [b, c).

    b and c are multiples of BLOCK, as is a; only d is not. Segments may be empty: a <= b <= c <= d.
    """
    a = k_len * 0
    d = k_len
    b = a
    c = k_len // BLOCK * BLOCK
    if RIGHT:
        d = tl.minimum(k_len, tl.maximum(first_row + rows + last, 0))
        c = tl.minimum(c, tl.maximum(first_row + last + 1, 0) // BLOCK * BLOCK)
    if LEFT:
        a = tl.minimum(tl.maximum(first_row + first, 0), d) // BLOCK * BLOCK
        b = tl.cdiv(tl.maximum(first_row + rows - 1 + first, 0), BLOCK) * BLOCK
        b = tl.minimum(tl.maximum(b, a), tl.cdiv(d, BLOCK) * BLOCK)
    return a, b, tl.maximum(b, c), d
