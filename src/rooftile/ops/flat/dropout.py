"""Random bits from a seed and an element's place, cheap enough to draw again in the backward.

One call of Philox gives 128 bits: 16 for each of 8 neighbours. With 7 rounds it passes the whole of
TestU01's BigCrush; probabilities are multiples of 2^-16. A round is two products of 32 by 32 bits,
written as one multiplication of 64 bits each: the hardware has it as one instruction.

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
def _philox(a, b, key_a, key_b, ROUNDS: tl.constexpr):
    """Philox4x32 of the counter (a, b, 0, 0), all unsigned and of 32 bits."""
    c = a * 0
    d = c
    for _ in tl.static_range(ROUNDS):
        first = a.to(tl.uint64) * 0xD2511F53
        second = c.to(tl.uint64) * 0xCD9E8D57
        a = (second >> 32).to(tl.uint32) ^ b ^ key_a
        b = second.to(tl.uint32)
        c = (first >> 32).to(tl.uint32) ^ d ^ key_b
        d = first.to(tl.uint32)
        key_a += 0x9E3779B9
        key_b += 0xBB67AE85
    return a, b, c, d


@triton.jit
def kept(seed, group, dropped, ROWS: tl.constexpr, GROUPS: tl.constexpr):
    """Which elements stay: [ROWS, GROUPS * 8] from the groups' numbers [ROWS, GROUPS], int64.

    The upper half of a word is compared with the word as it is, the lower half with the word
    shifted up: the bound's lower 16 bits are ones, so what stands there decides nothing.
    ``dropped`` is at least 1, and 65,536 is the bound that no word is above.
    """
    low, high = group.to(tl.uint32), (group >> 32).to(tl.uint32)
    a, b, c, d = _philox(low, high, seed.to(tl.uint32), (seed >> 32).to(tl.uint32), _ROUNDS)
    words = tl.join(tl.join(a, b), tl.join(c, d))  # [ROWS, GROUPS, 2, 2]
    halves = tl.reshape(tl.join(words << 16, words), (ROWS, GROUPS * 8))
    return halves > (tl.full((1, 1), dropped, tl.uint32) << 16) - 1
