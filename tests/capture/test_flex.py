"""flex_attention arrives as one op, its mask and its score function counted."""

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from rooftile.capture.module import capture_module
from rooftile.cost.graph import price

B, HEADS, SEQ, WIDTH = 2, 4, 256, 64
DENSE = 4 * WIDTH * B * HEADS * SEQ * SEQ
CAUSAL_PAIRS = B * HEADS * SEQ * (SEQ + 1) // 2


def causal(b, h, q, k):
    """No query sees a later key."""
    return q >= k


class Flex(nn.Module):
    """A product, then attention in any of its forms; the output's sum is the loss."""

    def __init__(self, heads=HEADS, kv_heads=HEADS, compiled=False, within=False, **options):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)
        self.kv_heads, self.within, self.options = kv_heads, within, options
        self.attend = torch.compile(flex_attention) if compiled else flex_attention

    def forward(self, q):
        kv = self.linear(q)[:, : self.kv_heads]
        options = dict(self.options)
        if self.within:
            options["block_mask"] = create_block_mask(causal, None, None, SEQ, SEQ, device="cuda")
        return self.attend(q, kv, kv, enable_gqa=self.kv_heads < HEADS, **options).sum()


def captured(model, mode="infer"):
    """The attention ops, forward and backward, with their costs."""
    graph = capture_module(model, torch.zeros(B, HEADS, SEQ, WIDTH), mode=mode)
    ops = [op for op in graph.ops if "attention" in op.name]
    return ops, [price(op) for op in ops], graph


def block_mask(mask_mod=causal, batch=None, heads=None):
    """Of 128 x 128 blocks."""
    return create_block_mask(mask_mod, batch, heads, SEQ, SEQ, device="cpu")


@pytest.mark.parametrize("compiled", [False, True])
def test_causal_is_counted_as_sdpa_s(compiled):
    """Dense and effective FLOP of a causal block mask are those of is_causal, forward and back."""
    (forward, backward), (there, back), _ = captured(
        Flex(block_mask=block_mask(), compiled=compiled), "train"
    )
    assert (forward.name, backward.name) == ("flex_attention", "flex_attention_backward")
    assert there.dense_matrix_flops == DENSE
    assert there.matrix_flops == 4 * WIDTH * CAUSAL_PAIRS
    assert (back.matrix_flops, back.dense_matrix_flops) == (
        10 * WIDTH * CAUSAL_PAIRS,
        DENSE * 5 // 2,
    )
    # softmax 5 and 6 a pair; one comparison a pair of the two blocks on the diagonal
    asked, out = B * HEADS * 2 * 128 * 128, B * HEADS * SEQ * WIDTH
    assert there.vector_flops == 5 * CAUSAL_PAIRS + out + asked
    assert back.vector_flops == 6 * CAUSAL_PAIRS + 2 * out + asked


def test_bytes_are_the_operands():
    """q, k, v, o once, the log-sum-exp in training, and the block mask's indices."""
    indices = 4 * (2 + 4) * 2  # counts and places of partial and of full blocks, int32
    _, (infer,), _ = captured(Flex(kv_heads=2, block_mask=block_mask()))
    q, kv = B * HEADS * SEQ * WIDTH * 4, B * 2 * SEQ * WIDTH * 4
    assert (infer.read_bytes, infer.write_bytes) == (q + kv + indices, q)
    _, (there, _), _ = captured(Flex(kv_heads=2, block_mask=block_mask()), "train")
    assert there.write_bytes == q + B * HEADS * SEQ * 4


def test_a_mask_made_in_the_forward():
    """The mask is built by ops of its own, the attention is one and causal."""
    _, (cost,), graph = captured(Flex(within=True))
    assert cost.matrix_flops == 4 * WIDTH * CAUSAL_PAIRS
    assert not any("flex_attention" in line for line in graph.assumptions)


def test_a_mask_of_documents():
    """Which pairs documents of 96 and 160 tokens have follows from a tensor that is known."""
    documents = torch.tensor([0] * 96 + [1] * 160)
    mask = block_mask(lambda b, h, q, k: documents[q] == documents[k])
    _, (cost,), _ = captured(Flex(block_mask=mask))
    assert cost.matrix_flops == 4 * WIDTH * B * HEADS * (96**2 + 160**2)


def test_a_mask_of_each_sequence_and_head():
    """Head 0 sees all, the others a window of 64 before them."""
    mask = block_mask(lambda b, h, q, k: (h == 0) | ((q >= k) & (q - k < 64)), B, HEADS)
    _, (cost,), _ = captured(Flex(block_mask=mask))
    window = 64 * SEQ - 64 * 63 // 2
    assert cost.matrix_flops == 4 * WIDTH * B * (SEQ * SEQ + (HEADS - 1) * window)


def test_an_unknown_mask_counts_all_pairs():
    """Documents that are computed from data: dense, and the user is told."""

    class Packed(nn.Module):
        def forward(self, q):
            documents = q[0, 0, :, 0].cumsum(0).long()
            mask = create_block_mask(
                lambda b, h, i, j: documents[i] == documents[j], None, None, SEQ, SEQ
            )
            return flex_attention(q, q, q, block_mask=mask)

    _, (cost,), graph = captured(Packed())
    assert cost.matrix_flops == cost.dense_matrix_flops == DENSE
    assert any("all pairs counted" in line for line in graph.assumptions)


def test_no_mask_is_all_pairs():
    """Without a block mask nothing else is recorded than the attention and what is around it."""
    _, (cost,), graph = captured(Flex())
    assert cost.matrix_flops == DENSE
    assert [op.name for op in graph.ops if op.name not in ("view", "empty")] == [
        "mm", "flex_attention", "sum",
    ]  # fmt: skip


def test_a_score_function_is_counted_by_pair():
    """ALiBi, slope[h] * (k - q) added: 3 FLOP a pair; its gradient to the score is none."""
    slopes = torch.rand(HEADS)
    model = Flex(score_mod=lambda score, b, h, q, k: score + slopes[h] * (k - q))
    (op, _), (there, back), _ = captured(model, "train")
    pairs, out = B * HEADS * SEQ * SEQ, B * HEADS * SEQ * WIDTH
    assert there.vector_flops == (5 + 3) * pairs + out
    assert back.vector_flops == (6 + 3) * pairs + 2 * out
    assert there.read_bytes == 4 * (2 * out + HEADS) - 0  # k and v are one
    assert op.operand("buffers.0").shape == (HEADS,)


def test_a_learnt_bias_has_a_gradient():
    """A bias that the score function reads gets its gradient from the same op."""

    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(HEADS, 2 * SEQ))

        def forward(self, q):
            def score_mod(score, b, h, i, j):
                return score + self.bias[h, i - j + SEQ]

            return flex_attention(q, q, q, score_mod=score_mod).sum()

    ops, _, graph = captured(Biased(), "train")
    assert ops[1].outputs[-1].shape == (HEADS, 2 * SEQ)
    assert ops[1].outputs[-1].storage in graph.results
