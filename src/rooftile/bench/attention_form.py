"""Which attention is benchmarked: its mask, and how many queries' heads share a key's."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import torch
from torch import Tensor

from rooftile.cost.formulas.attention import Mask

_WINDOW = 8  # a window is this part of the sequence: 1,024 of 8,192 keys


@dataclass(frozen=True, slots=True)
class Form:
    """One form of attention.

    Attributes:
        name: Of the variant; ``""`` for the plain one.
        causal: A query sees no key after its own place.
        group: Query heads to one head of keys and values, at most.
        window: A query sees an eighth of the sequence before its own place, and no more.
    """

    name: str = ""
    causal: bool = False
    group: int = 1
    window: bool = False

    def left(self, length: int) -> int:
        """Keys before its own place that a query sees; -1 where all."""
        return length // _WINDOW if self.window else -1

    def kv_heads(self, heads: int) -> int:
        """Heads of keys and values; fewer share one where the queries' heads do not divide."""
        return heads // gcd(heads, self.group)

    def mask(self, length: int) -> Mask:
        """What the cost formulas know of it."""
        left = self.left(length)
        return Mask(causal=self.causal, left=None if left < 0 else left)

    def hidden(self, length: int, device: torch.device) -> Tensor | None:
        """True where a query sees a key not; None where it sees all."""
        if not self.causal and not self.window:
            return None
        ahead = torch.arange(length, device=device) - torch.arange(length, device=device)[:, None]
        hidden = ahead > 0 if self.causal else torch.zeros_like(ahead, dtype=torch.bool)
        return hidden | (ahead < -self.left(length)) if self.window else hidden


FORMS = (
    Form(),
    Form("causal", causal=True),
    Form("gqa", causal=True, group=4),
    Form("window", causal=True, window=True),
)
