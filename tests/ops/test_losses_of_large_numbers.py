"""Logits far from 0 and soft-caps far above them: what cancels must not take the loss along."""

from __future__ import annotations

import math

import pytest
import torch

from rooftile.ops import cross_entropy
from rooftile.ops.cross_entropy import cross_entropy_ref

# of float32's 2^24: at 1e8 neighbours are 8 apart, and log(111) is 4.7
SHIFTS = [0.0, 1e3, -1e3, 1e5, 1e8, -1e8]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("n_classes", [3, 111, 5000])
@pytest.mark.parametrize("shift", SHIFTS)
def test_logits_that_share_a_large_part(shift, n_classes, smoothing, device):
    """The loss is the same wherever the logits lie, as torch's is."""
    x = torch.randn(9, n_classes, device=device) + shift
    target = torch.randint(0, n_classes, (9,), device=device)
    actual = cross_entropy(x, target, reduction="none", label_smoothing=smoothing)
    truth = cross_entropy_ref(x.double(), target, reduction="none", label_smoothing=smoothing)
    # smoothing takes the mean: a sum by pairs is as exact as log2(n) roundings of its terms' sum
    # (Higham 2002, Accuracy and Stability of Numerical Algorithms, 4.2)
    floor = smoothing * abs(shift) * math.ceil(math.log2(n_classes)) * 2**-24
    torch.testing.assert_close(actual.double(), truth, rtol=2e-6, atol=2e-6 + floor)


def test_the_largest_logits(device):
    """Equal ones cost the logarithm of their number: 0 came out, their sum with it being lost."""
    x = torch.full((1, 3), 3.4e38, device=device)
    loss = cross_entropy(x, torch.tensor([0], device=device))
    assert loss.item() == pytest.approx(1.0986123, rel=1e-6)


@pytest.mark.parametrize("cap", [1e-3, 1.0, 30.0, 1e3, 1e6, 1e10, 1e30])
def test_a_softcap_far_above_the_logits(cap, device):
    """It changes nothing; ``1 - exp(-2 x / cap)`` left 0 of every logit."""
    x = torch.randn(9, 111, device=device).requires_grad_()
    target = torch.randint(0, 111, (9,), device=device)
    loss = cross_entropy(x, target, softcap=cap)
    wide = x.detach().double().requires_grad_()
    truth = cross_entropy_ref(wide, target, softcap=cap)
    torch.testing.assert_close(loss.double(), truth, rtol=1e-6, atol=1e-6)
    gradients = [torch.autograd.grad(*pair)[0].double() for pair in ((loss, x), (truth, wide))]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-8)
