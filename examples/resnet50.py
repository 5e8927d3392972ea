"""ResNet-50 in plain PyTorch, the stride of a stage in its first 3 × 3 convolution.

Audit it: ``rooftile audit examples/resnet50.py:resnet50 --mode train --gpu h100-sxm``
Source: He et al., "Deep Residual Learning for Image Recognition", 2015, table 1; the stride's
place as in the later "version 1.5".
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EXPANSION = 4  # channels out of a block over channels inside it
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # channels inside, blocks, stride


def conv_norm(channels_in: int, channels: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the image's size (over the stride), and its batch norm."""
    conv = nn.Conv2d(channels_in, channels, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels))


class Bottleneck(nn.Module):
    """1 × 1 down, 3 × 3, 1 × 1 up, added to the input (projected where its shape differs)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        channels_out = EXPANSION * channels
        self.reduce = conv_norm(channels_in, channels, 1)
        self.spatial = conv_norm(channels, channels, 3, stride)
        self.expand = conv_norm(channels, channels_out, 1)
        same = channels_in == channels_out and stride == 1
        self.shortcut = nn.Identity() if same else conv_norm(channels_in, channels_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``(batch, channels_in, h, w)`` to ``(batch, 4 * channels, h/stride, w/stride)``."""
        y = F.relu(self.reduce(x))
        y = F.relu(self.spatial(y))
        return F.relu(self.expand(y) + self.shortcut(x))


class ResNet50(nn.Module):
    """The 50-layer residual network: 25,557,032 parameters with 1,000 classes."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = conv_norm(3, 64, 7, stride=2)
        blocks: list[nn.Module] = []
        width = 64
        for channels, count, stride in STAGES:
            for position in range(count):
                blocks.append(Bottleneck(width, channels, stride if position == 0 else 1))
                width = EXPANSION * channels
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Maps images ``(batch, 3, h, w)`` to logits ``(batch, classes)``."""
        x = F.max_pool2d(F.relu(self.stem(images)), kernel_size=3, stride=2, padding=1)
        x = self.blocks(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def resnet50(
    batch: int = 32, size: int = 224
) -> tuple[ResNet50, tuple[Tensor], Callable[[Tensor], Tensor]]:
    """ResNet-50, one batch of 32 images of 224 × 224, and the loss of its logits."""
    labels = torch.randint(1000, (batch,))

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels)

    return ResNet50(), (torch.randn(batch, 3, size, size),), loss
