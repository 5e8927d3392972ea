"""How far float32 attention may be from float64 at each element: what its roundings are of.

dS = P (dP - delta) cancels: with one key it is 0, and what is computed is the rounding of dP and of
delta. So an error is measured against what was there before anything cancelled. With e the unit of
float32 and each sum taken over magnitudes:

- a score is wrong by e |q| |k|, so a weight by e P (1 + |q| |k|), and by as much again, averaged
  over the row, for the log-sum-exp;
- O and dV are wrong by e times such weights with |V| and |dO|;
- dP and delta are wrong by e |dO| |V| and e |dO| times O's own term; dS by P times both and by the
  weight's term times |dP - delta|; dQ and dK by e times that with |K| and |Q|.

Source: Higham 2002, Accuracy and Stability of Numerical Algorithms, section 3.1 (inner products)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Units of float32 that an error may be of its terms. Roundings mostly cancel in a sum: of 20 shapes
# of 1 to 600 queries and keys, 40 draws each, O and dV were off by 1.4 at most, dQ and dK by 0.6
_UNIT = torch.finfo(torch.float32).eps
_WEIGHTED, _CANCELLED = 2 * _UNIT, _UNIT


def output_rounding(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """What a float32 output may be off by.

    Args:
        q: ``[..., queries, D]`` float64.
        k: ``[..., keys, D]``.
        v: ``[..., keys, Dv]``.
        seen: Boolean ``[queries, keys]``: which keys a query sees.

    Returns:
        ``[..., queries, Dv]``.
    """
    _, weights = _weights(q, k, seen)
    return weights @ v.abs() * _WEIGHTED


def gradient_rounding(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, seen: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What float32 gradients of queries, keys and values may be off by, given the output's."""
    p, weights = _weights(q, k, seen)
    out = weights @ v.abs()
    dp = do @ v.transpose(-1, -2)
    delta = ((p @ v) * do).sum(-1, keepdim=True)
    before = do.abs() @ v.abs().transpose(-1, -2) + (do.abs() * out).sum(-1, keepdim=True)
    ds = (p * before + weights * (dp - delta).abs()) * (_CANCELLED / math.sqrt(q.shape[-1]))
    dv = weights.transpose(-1, -2) @ do.abs() * _WEIGHTED
    return ds @ k.abs(), ds.transpose(-1, -2) @ q.abs(), dv


def _weights(q: Tensor, k: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """The weights, and what their rounding is of; both 0 in a row that sees no key."""
    scale = 1 / math.sqrt(q.shape[-1])
    scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~seen, -math.inf)
    p = torch.softmax(scores, -1).nan_to_num(0.0)
    of_score = p * (1 + q.abs() @ k.abs().transpose(-1, -2) * scale)
    return p, of_score + p * of_score.sum(-1, keepdim=True)
