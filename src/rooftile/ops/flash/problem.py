"""What is asked of one attention call: all that the choice of a kernel depends on."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Problem:
    """One call of attention, without its tensors.

    Attributes:
        batch: Sequences.
        heads: Heads of queries.
        kv_heads: Heads of keys and values; they divide ``heads``.
        q_len: Queries of a sequence, of the longest where they are packed.
        k_len: Keys of a sequence, likewise.
        head_dim: Width of queries and keys.
        v_dim: Width of values and of the output.
        dtype: Of queries, keys, values and the output.
        arch: Compiler target of the device: ``"sm_90"``, ``"gfx942"``, ``"interpreted"``.
        window_left: Keys before a query's own place that it sees; -1: all.
        window_right: Keys after it, likewise; 0 is a causal mask.
        bottom_right: The last query stands at the last key; else the first at the first.
        scale: Factor of the scores.
        softcap: Bound of the scaled scores; 0: none.
        mask: ``"additive"``, ``"boolean"`` or ``""`` for none.
        mask_gradient: Whether the additive mask's gradient is wanted.
        alibi: Whether the heads have slopes.
        sinks: Whether the heads have sinks.
        dropout_p: Probability that a weight becomes 0.
        varlen: Whether sequences are packed, their starts in another tensor.
        key_lengths: Whether each sequence has a number of keys of its own in a shared cache.
        paged: Whether keys lie in pages.
        aligned: Rows of q, k and v lie at multiples of 16 bytes, their elements side by side.
        deterministic: Whether gradients must come out bit-equal each time.
    """

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    k_len: int
    head_dim: int
    v_dim: int
    dtype: torch.dtype
    arch: str
    window_left: int = -1
    window_right: int = -1
    bottom_right: bool = False
    scale: float = 1.0
    softcap: float = 0.0
    mask: str = ""
    mask_gradient: bool = False
    alibi: bool = False
    sinks: bool = False
    dropout_p: float = 0.0
    varlen: bool = False
    key_lengths: bool = False
    paged: bool = False
    aligned: bool = True
    deterministic: bool = False

    @property
    def group(self) -> int:
        """Query heads that share a head of keys; none where there are no heads."""
        return self.heads // max(1, self.kv_heads)


def itemsize_of(problem: Problem) -> int:
    """Bytes of an element of the operands."""
    return problem.dtype.itemsize
