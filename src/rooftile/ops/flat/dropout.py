"""Random bits from a seed and an element's place, cheap enough to draw again in the backward.

One call of Philox gives 128 bits: 16 for each of 8 neighbours. With 7 rounds it passes the whole of
TestU01's BigCrush; probabilities are multiples of 2^-16.

Source: Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405
"""

from __future__ import annotations

import triton
import triton.language as tl

GROUP = tl.constexpr(8)
STEPS = 65536
_ROUNDS = tl.constexpr(7)


def threshold(p: float) -> tuple[int, float]:
    """Of 65,536 values the ones that drop an element, and the factor that keeps the mean.

    The factor is that of the probability as rounded, so that the mean is kept exactly.
    """
    dropped = round(p * STEPS)
    return dropped, 0.0 if dropped == STEPS else STEPS / (STEPS - dropped)


@triton.jit
def kept(seed, group, dropped, ROWS: tl.constexpr, GROUPS: tl.constexpr):
    """Which elements stay: [ROWS, GROUPS * 8] from the groups' numbers [ROWS, GROUPS], int64."""
    low = (group & 0xFFFFFFFF).to(tl.uint32)
    high = (group >> 32).to(tl.uint32)
    zero = low * 0
    a, b, c, d = tl.philox(seed, low, high, zero, zero, _ROUNDS)
    words = tl.join(tl.join(a, b), tl.join(c, d))  # [ROWS, GROUPS, 2, 2]
    halves = tl.join(words & 0xFFFF, words >> 16)
    return tl.reshape(halves, (ROWS, GROUPS * 8)) >= dropped
