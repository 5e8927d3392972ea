"""Attention under vmap is one op over all samples."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rooftile.capture.module import capture_module
from rooftile.cost.graph import price

Q = (3, 2, 4, 128, 64)
DENSE = 3 * 2 * 4 * 128 * 128 * 4 * 64


class Mapped(nn.Module):
    """vmap of a function of samples and of a weight."""

    def __init__(self, function, in_dims=0):
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.function, self.in_dims = function, in_dims

    def forward(self, *args):
        return torch.vmap(lambda *a: self.function(self.linear, *a), in_dims=self.in_dims)(*args)


def attention(model, *inputs, **options):
    """Costs of the attention ops."""
    graph = capture_module(model, inputs, **options)
    return [price(op) for op in graph.ops if op.name.startswith("attention")]


def test_one_op_for_all_samples():
    """Three samples of 2 x 4 heads in one call, causal: FLOP and bytes of all."""
    model = Mapped(lambda linear, q: F.scaled_dot_product_attention(q, q, q, is_causal=True))
    (cost,) = attention(model, torch.zeros(Q))
    assert cost.dense_matrix_flops == DENSE
    assert cost.matrix_flops == DENSE * 129 // 256
    assert cost.bytes == 2 * 3 * 2 * 4 * 128 * 64 * 4


@pytest.mark.parametrize(
    ("function", "inputs", "in_dims"),
    [
        (lambda _, q, m: F.scaled_dot_product_attention(q, q, q, m), (Q, (3, 128, 128)), 0),
        (lambda _, q, k: F.scaled_dot_product_attention(q, k, k), (Q, Q[1:]), (0, None)),
        (lambda _, q, m: F.scaled_dot_product_attention(q, q, q, m), (Q[1:], (3, 128, 128)),
         (None, 0)),
        (lambda _, q: F.scaled_dot_product_attention(q, q, q), ((2, 4, 3, 128, 64),), 2),
    ],
    ids=["mask each", "keys shared", "masks alone", "samples inside"],
)  # fmt: skip
def test_whatever_is_mapped(function, inputs, in_dims):
    """The same work, whichever operands have samples."""
    (cost,) = attention(Mapped(function, in_dims), *map(torch.zeros, inputs))
    assert cost.matrix_flops == DENSE


def test_training_goes_through():
    """Forward and backward are one op each; the log-sum-exp is kept."""
    model = Mapped(lambda linear, q: F.scaled_dot_product_attention(linear(q), q, q))
    there, back = attention(model, torch.zeros(Q), mode="train", loss=lambda out: out.sum())
    assert back.matrix_flops == there.matrix_flops * 5 // 2 == DENSE * 5 // 2
    assert there.write_bytes == 3 * 2 * 4 * 128 * (64 * 4 + 4)


def test_a_mask_beside_the_flag():
    """A GPU's kernel takes a mask and is_causal together: causal pairs, and the mask is read."""

    class Both(nn.Module):
        def forward(self, q, mask):
            return F.scaled_dot_product_attention(q, q, q, mask, is_causal=True)

    q = torch.zeros(2, 4, 128, 64)
    (cost,) = attention(Both(), q, torch.zeros(128, 128))
    assert cost.matrix_flops == DENSE // 3 * 129 // 256
    assert cost.bytes == 2 * q.numel() * 4 + 128 * 128 * 4
