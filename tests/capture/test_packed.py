"""Packed sequences: what stands in the tensor of their ends decides how many pairs there are."""

import torch
from torch import nn
from torch.nn.attention.varlen import varlen_attn

import rooftile


class Packed(nn.Module):
    """Attention over packed sequences, causal; their ends given or made of floats."""

    def __init__(self, *, from_floats: bool = False) -> None:
        super().__init__()
        self.from_floats = from_floats

    def forward(self, q: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Of 16 tokens a sequence at most."""
        if self.from_floats:
            ends = ends + q.sum().int()
        return varlen_attn(q, q, q, ends, ends, 16, 16, window_size=(-1, 0))


def packed(*, from_floats: bool):
    """The audit of sequences of 4, 16 and 4 tokens, 2 heads of 8."""
    q = torch.randn(24, 2, 8, dtype=torch.bfloat16)
    ends = torch.tensor([0, 4, 20, 24], dtype=torch.int32)
    return rooftile.audit(Packed(from_floats=from_floats), (q, ends), gpu="h100-sxm")


def test_the_ends_of_packed_sequences_are_read():
    """10 + 136 + 10 pairs of a causal mask, 288 dense: not three sequences of 8."""
    totals = packed(from_floats=False).totals
    assert (totals.matrix_flops, totals.dense_matrix_flops) == (156 * 4 * 2 * 8, 288 * 4 * 2 * 8)


def test_unknown_ends_of_packed_sequences_are_said():
    """Ends computed from data: three sequences of 8 tokens, and a line that says so."""
    estimate = packed(from_floats=True)
    (op,) = [op for op in estimate.ops if op.name == "packed_attention"]
    assert op.cost.matrix_flops == 3 * 36 * 4 * 2 * 8
    assert "packed sequences of unknown lengths are taken as equally long" in " ".join(
        estimate.graph.assumptions
    )
