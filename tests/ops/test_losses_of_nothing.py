"""Losses without classes, width or rows: torch's numbers where it has some, a named error else."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch.nn.functional import linear

from rooftile.errors import InputError
from rooftile.ops import cross_entropy, linear_cross_entropy
from rooftile.ops.rows.cross_entropy import fwd_op
from rooftile.plan.launch import logit_rows

module = import_module("rooftile.ops.cross_entropy")
REDUCTIONS = ["none", "mean", "sum"]
IGNORED = -100


def torchs(x, target, **options):
    """Torch's loss; with label smoothing it divides an ignored row's 0 by 0 classes."""
    if x.numel() == 0:
        options.pop("label_smoothing", None)
    return torch.nn.functional.cross_entropy(x, target, **options)


def with_gradients(loss, *leaves):
    """A loss and the gradients of what it is made of."""
    return [t.cpu() for t in (loss, *torch.autograd.grad(loss.sum(), leaves))]


def on_the_cpu(*tensors):
    """The same leaves where torch's loss has all of these cases."""
    return [t.detach().cpu().requires_grad_(t.requires_grad) for t in tensors]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(3, 0), (0, 0), (0, 5), (0,), (2, 0, 0), (0, 5, 3)], ids=str)
def test_cross_entropy_of_nothing(shape, reduction, smoothing, device):
    """All rows ignored: 0 each, and the mean is NaN. What was in memory came out."""
    x = torch.randn(shape, device=device, requires_grad=True)
    rest = shape[:-1] if len(shape) < 3 else (shape[0], shape[2])
    target = torch.full(rest, IGNORED, device=device)
    options = {"reduction": reduction, "label_smoothing": smoothing}
    actual = with_gradients(cross_entropy(x, target, **options), x)
    y, rows = on_the_cpu(x, target)
    expected = with_gradients(torchs(y, rows, **options), y)
    torch.testing.assert_close(actual, expected, equal_nan=True)
    with torch.no_grad():
        loss = cross_entropy(x, target, **options).cpu()
    torch.testing.assert_close(loss, expected[0], equal_nan=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_target_where_there_are_no_classes(reduction, device, monkeypatch):
    """It is none of them: an error where targets are looked at, else NaN."""
    x, target = torch.empty(2, 0, device=device), torch.tensor([0, IGNORED], device=device)
    loss, _, lse = fwd_op(x, target, reduction, IGNORED, 0.0, 0.0, 0.0)
    assert loss.isnan().tolist() == ([True, False] if reduction == "none" else True)
    assert lse.tolist() == [-torch.inf] * 2
    monkeypatch.setattr(module, "_asked", True)
    with pytest.raises(InputError, match=r"target must be -100 \(ignore_index\) where .*got 0"):
        cross_entropy(x, target, reduction=reduction)
    with pytest.raises(InputError, match=r"target must be -100 \(ignore_index\) where .*got 0"):
        linear_cross_entropy(x, x[:0], target, reduction=reduction)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("rows", "width", "classes"),
    [(3, 0, 5), (0, 4, 5), (0, 0, 5), (3, 4, 0), (3, 0, 0), (0, 4, 0), (3, 4, 1)],
    ids=str,
)
def test_linear_cross_entropy_of_nothing(rows, width, classes, dtype, reduction, bias, device):
    """Of width 0 all logits are the bias; without classes each row is ignored."""
    shapes = [(rows, width), (classes, width), (classes,)][: 2 + bias]
    tensors = [torch.randn(s, device=device).to(dtype).requires_grad_() for s in shapes]
    x, weight, b = (*tensors, None)[:3]
    target = torch.full((rows,), 0 if classes else IGNORED, device=device)
    loss = linear_cross_entropy(x, weight, target, linear_bias=b, reduction=reduction)
    actual = with_gradients(loss, *tensors)
    leaves = on_the_cpu(*tensors)
    logits = linear(*leaves).float()
    expected = with_gradients(torchs(logits, target.cpu(), reduction=reduction), *leaves)
    torch.testing.assert_close(actual, expected, equal_nan=True)


def test_groups_of_logits_without_classes():
    """They take no memory, so one group has all rows that there may be."""
    assert logit_rows(0, 2) >= 2**28
    assert logit_rows(0, 4, width=4096) >= 2**28
