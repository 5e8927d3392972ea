"""GPT-2 in one file of plain PyTorch: embeddings, causal attention, feed-forward, tied head.

Audit it: ``rooftile audit examples/gpt.py:gpt2_small --mode train --dtype bf16 --gpu h100-sxm``
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT; the defaults are GPT-2 small's (124,439,808 parameters).

    Attributes:
        vocab: Tokens in the vocabulary.
        context: Longest sequence [tokens].
        layers: Transformer blocks.
        heads: Attention heads of a block; must divide ``width``.
        width: Length of a token's vector.
    """

    vocab: int = 50257
    context: int = 1024
    layers: int = 12
    heads: int = 12
    width: int = 768


class CausalSelfAttention(nn.Module):
    """Every token looks at itself and at those before it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``(batch, tokens, width)`` to the same shape."""
        batch, tokens, width = x.shape
        split = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (t.view(split).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class FeedForward(nn.Module):
    """Widens each token four times, bends it, narrows it again."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``(batch, tokens, width)`` to the same shape."""
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    """Attention, then feed-forward, each on a normalised input and added back."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.width)
        self.attention = CausalSelfAttention(config)
        self.norm_feed_forward = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``(batch, tokens, width)`` to the same shape."""
        x = x + self.attention(self.norm_attention(x))
        return x + self.feed_forward(self.norm_feed_forward(x))


class GPT(nn.Module):
    """A decoder-only language model whose head shares the token embedding's weight."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab, config.width)
        self.position_embedding = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.head.weight = self.token_embedding.weight
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(
        self, tokens: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Predicts the next token at every position.

        Args:
            tokens: Token numbers, ``(batch, tokens)``, int64.
            targets: The tokens that follow, ``(batch, tokens)``, int64.

        Returns:
            Logits ``(batch, tokens, vocab)`` and, where targets are given, the mean cross-entropy.
        """
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def gpt2_small(batch: int = 8, seq: int = 1024) -> tuple[GPT, dict[str, Tensor]]:
    """GPT-2 small and one batch for it: 8 sequences of 1,024 tokens."""
    config = GPTConfig()
    text = torch.randint(config.vocab, (batch, seq + 1))
    return GPT(config), {"tokens": text[:, :-1], "targets": text[:, 1:]}
