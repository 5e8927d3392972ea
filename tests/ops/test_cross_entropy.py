"""cross_entropy against torch's: losses, gradients, extras, bad targets, registration, compile."""

from __future__ import annotations

import math
from importlib import import_module

import pytest
import torch
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops.cross_entropy import CrossEntropyLoss, cross_entropy, cross_entropy_ref
from rooftile.ops.rows.cross_entropy import bwd_op, fwd_op, infer_op

module = import_module("rooftile.ops.cross_entropy")

# 1: one class; 3, 10: shorter than a vector; 111: rows that start anywhere; 1000: several rows a
# program; 5000: several chunks, the last not whole; 8193: a tail of one
CLASSES = [1, 3, 10, 111, 1000, 5000, 8193]
REDUCTIONS = ["none", "mean", "sum"]


def case(n_rows, n_classes, dtype, device, ignored=True):
    """Logits and targets, one of them ignored."""
    x = torch.randn(n_rows, n_classes, device=device).mul(2).to(dtype)
    target = torch.randint(0, n_classes, (n_rows,), device=device)
    if ignored:
        target[n_rows // 2] = -100
    return x, target


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_classes", CLASSES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_matches_torch(n_classes, reduction, dtype, device):
    """Loss and gradient are as accurate as torch's in the same dtype."""
    x, target = case(9, n_classes, dtype, device)
    upstream = torch.rand(9, device=device) if reduction == "none" else torch.tensor(1.5).to(device)
    assert_matches(
        lambda t: cross_entropy(t, target, reduction=reduction),
        lambda t: torch.nn.functional.cross_entropy(t, target, reduction=reduction),
        lambda t: cross_entropy_ref(t, target, reduction=reduction),
        [x],
        [upstream],
    )


@pytest.mark.parametrize("n_classes", [10, 111, 5000])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "extras",
    [
        {"label_smoothing": 0.1},
        {"z_loss": 1e-2},
        {"softcap": 2.0},
        {"label_smoothing": 1.0, "z_loss": 1e-3, "softcap": 5.0, "ignore_index": 2},
    ],
    ids=lambda e: "+".join(e),
)
def test_extras(n_classes, reduction, extras, device):
    """Label smoothing, z-loss and soft-cap follow the definition, gradients too."""
    x, target = case(9, n_classes, torch.float32, device, ignored="ignore_index" not in extras)
    reference = lambda t: cross_entropy_ref(t, target, reduction=reduction, **extras)  # noqa: E731
    shape = (9,) if reduction == "none" else ()
    assert_matches(
        lambda t: cross_entropy(t, target, reduction=reduction, **extras),
        reference,
        reference,
        [x],
        [torch.rand(shape, device=device)],
    )


def test_upstream_weights_of_rows(device):
    """Without a reduction each row's gradient has its own factor (ce-02)."""
    x = torch.tensor([[1.0, 2.0, 3.0]] * 2, device=device, requires_grad=True)
    loss = cross_entropy(x, torch.tensor([0, 2], device=device), reduction="none")
    torch.testing.assert_close(
        loss.detach().cpu(), torch.tensor([2.4076, 0.4076]), rtol=0, atol=1e-4
    )
    (dx,) = torch.autograd.grad(loss, x, torch.tensor([1.0, 0.0], device=device))
    expected = torch.tensor([[-0.9100, 0.2447, 0.6652], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(dx.cpu(), expected, rtol=0, atol=1e-4)


def test_every_row_ignored(device):
    """The mean of nothing is NaN, the sum 0, the gradient exactly 0 (ce-01)."""
    x = torch.randn(2, 3, device=device, requires_grad=True)
    target = torch.full((2,), -100, device=device)
    mean = cross_entropy(x, target)
    assert math.isnan(mean.item())
    assert torch.autograd.grad(mean, x)[0].eq(0).all()
    assert cross_entropy(x, target, reduction="sum").item() == 0
    assert cross_entropy(x, target, reduction="none").tolist() == [0, 0]


def test_softcap_masks_after_the_cap(device):
    """Padding lanes do not become -softcap: three equal logits cost ln 3 (ce-04)."""
    x = torch.full((1, 3), -100.0, device=device)
    loss = cross_entropy(x, torch.tensor([0], device=device), softcap=1.0)
    torch.testing.assert_close(loss.item(), math.log(3), rtol=1e-6, atol=0)


def test_loss_does_not_depend_on_gradients(device):
    """With and without requires_grad the loss is the same number (ce-05)."""
    x, target = case(4, 3, torch.float32, device)
    with_grad = cross_entropy(x.clone().requires_grad_(), target)
    with torch.no_grad():
        without = cross_entropy(x, target)
    assert with_grad.item() == without.item() == cross_entropy(x, target).item() != 0


@pytest.mark.parametrize("bad", [5, -1, 2**40])
def test_target_out_of_range_is_an_error(bad, device, monkeypatch):
    """Where targets are looked at, a bad one is named; no memory outside is read (ce-05)."""
    monkeypatch.setattr(module, "_asked", True)
    target = torch.tensor([0, bad], device=device)
    with pytest.raises(InputError, match=rf"target must be in \[0, 2\] or -100.*got {bad}"):
        cross_entropy(torch.randn(2, 3, device=device), target)


@pytest.mark.parametrize("bad", [5, -1, 2**40])
def test_target_out_of_range_in_the_kernel(bad, device):
    """Unchecked, its loss and gradient are NaN, those of other rows are right."""
    x, target = torch.randn(2, 3, device=device), torch.tensor([0, bad], device=device)
    loss, _, lse = fwd_op(x, target, "none", -100, 0.0, 0.0, 0.0)
    dx = bwd_op(torch.ones(2, device=device), x, target, lse, None, -100, 0.0, 0.0, 0.0)
    assert loss.isnan().tolist() == [False, True]
    assert dx.isnan().any(1).tolist() == [False, True]


@pytest.mark.parametrize("shape", [(7,), (3, 7), (3, 7, 4), (2, 7, 3, 4)])
def test_any_rank(shape, device):
    """Classes are torch's second dimension, or the only one."""
    x = torch.randn(shape, device=device, requires_grad=True)
    dim = min(1, len(shape) - 1)
    target = torch.randint(0, 7, (*shape[:dim], *shape[dim + 1 :]), device=device)
    for reduction in REDUCTIONS:
        actual = cross_entropy(x, target, reduction=reduction)
        expected = torch.nn.functional.cross_entropy(x, target, reduction=reduction)
        torch.testing.assert_close(actual, expected)
        gradients = [torch.autograd.grad(loss.sum(), x)[0] for loss in (actual, expected)]
        torch.testing.assert_close(*gradients)


def test_strided_logits(device):
    """Rows of another stride, and rows that are columns of their storage."""
    base = torch.randn(6, 90, device=device)
    target = torch.randint(0, 6, (6,), device=device)
    for x in (base[:, 7:71], base.t()[:6]):
        torch.testing.assert_close(
            cross_entropy(x, target), torch.nn.functional.cross_entropy(x, target)
        )


def test_empty(device):
    """No row: torch's NaN for the mean, 0 for the sum, an empty gradient (ce-01)."""
    x = torch.empty(0, 5, device=device, requires_grad=True)
    target = torch.empty(0, dtype=torch.int64, device=device)
    assert math.isnan(cross_entropy(x, target).item())
    assert cross_entropy(x, target, reduction="sum").item() == 0
    loss = cross_entropy(x, target, reduction="none")
    assert torch.autograd.grad(loss.sum(), x)[0].shape == (0, 5)


def test_int32_targets(device):
    """Both integer types of torch's losses are taken."""
    x, target = case(5, 10, torch.float32, device)
    assert cross_entropy(x, target.int()).item() == cross_entropy(x, target).item()


def test_registration(device):
    """Schema, fake kernel and dispatch agree with what runs."""
    x, target = case(5, 63, torch.float32, device)
    extras = (-100, 0.1, 1e-3, 5.0)
    loss, _, lse = fwd_op(x, target, "none", *extras)
    for reduction in REDUCTIONS:
        torch.library.opcheck(fwd_op.overload, (x, target, reduction, *extras))
        torch.library.opcheck(infer_op.overload, (x, target, reduction, *extras))
    _, count, _ = fwd_op(x, target, "mean", *extras)
    torch.library.opcheck(bwd_op.overload, (loss, x, target, lse, count, *extras))
    torch.library.opcheck(
        bwd_op.overload, (loss[0], x.t().contiguous().t(), target, lse, None, *extras)
    )


def test_compiles_without_recompiling(device):
    """One graph serves every batch size, forward and backward."""
    compiled = torch.compile(cross_entropy, fullgraph=True, backend="aot_eager", dynamic=True)
    for n_rows in (3, 5, 8):
        x, target = case(n_rows, 64, torch.float32, device)
        x.requires_grad_()
        with torch.compiler.set_stance("fail_on_recompile" if n_rows > 3 else "default"):
            (actual,) = torch.autograd.grad(compiled(x, target), x)
        torch.testing.assert_close(actual, torch.autograd.grad(cross_entropy(x, target), x)[0])


def test_autocast(device):
    """Under autocast the loss is the same float32 number."""
    x, target = case(5, 64, torch.bfloat16, device)
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = cross_entropy(x, target)
    assert loss.dtype == torch.float32
    assert loss.item() == cross_entropy(x, target).item()


def test_deterministic(device):
    """The same call gives the same bits."""
    x, target = case(500, 96, torch.bfloat16, device)
    assert cross_entropy(x, target).item() == cross_entropy(x, target).item()


def test_module(device):
    """The module holds the options."""
    x, target = case(5, 64, torch.float32, device)
    options = {"ignore_index": 3, "reduction": "sum", "label_smoothing": 0.1}
    target[target == -100] = 3
    assert (
        CrossEntropyLoss(**options)(x, target).item() == cross_entropy(x, target, **options).item()
    )


@pytest.mark.parametrize(
    ("x", "target", "options", "message"),
    [
        (torch.ones(2, 3, dtype=torch.int64), torch.zeros(2).long(), {}, "input must be float32"),
        (torch.ones(()), torch.zeros(()).long(), {}, "must have a dimension of classes"),
        (torch.ones(2, 3), torch.zeros(3).long(), {}, r"target must have shape \[2\], got \[3\]"),
        (torch.ones(2, 3), torch.zeros(2), {}, "target must be int64 or int32, got torch.float32"),
        (torch.ones(2, 3), torch.zeros(2).long(), {"reduction": "avg"}, "reduction must be none"),
        (
            torch.ones(2, 3),
            torch.zeros(2).long(),
            {"label_smoothing": 1.5},
            r"in \[0, 1\], got 1.5",
        ),
        (torch.ones(2, 3), torch.zeros(2).long(), {"softcap": -1.0}, "softcap must be finite"),
        (torch.ones(2, 3), torch.zeros(2).long(), {"z_loss": -1.0}, "z_loss must be finite"),
    ],
    ids=["dtype", "scalar", "shape", "target", "reduction", "smoothing", "softcap", "z-loss"],
)
def test_refuses(x, target, options, message):
    """A bad argument is named, with what was wanted and what came."""
    with pytest.raises(InputError, match=message):
        cross_entropy(x, target, **options)
