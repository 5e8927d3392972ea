"""linear_cross_entropy against torch's two ops: losses, every gradient, memory, refusals."""

from __future__ import annotations

import math
from importlib import import_module

import pytest
import torch
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops import linear_cross_entropy as public
from rooftile.ops.flat.scale import scaled
from rooftile.ops.linear_cross_entropy import (
    bwd_op,
    fwd_op,
    linear_cross_entropy,
    linear_cross_entropy_ref,
)
from rooftile.ops.rows import logit_groups
from rooftile.plan.launch import logit_rows

REDUCTIONS = ["none", "mean", "sum"]


@pytest.fixture
def small_groups(monkeypatch):
    """Groups of 4 rows, so that a test has several and a last one that is not whole."""
    monkeypatch.setattr(logit_groups, "logit_rows", lambda n_classes, itemsize, width: 4)


def draw(dtype, device, n_rows=9, width=16, n_classes=50):
    """x, weight and bias, and targets, one of them ignored."""
    x = torch.randn(n_rows, width, device=device)
    weight = torch.randn(n_classes, width, device=device) / width**0.5
    bias = torch.randn(n_classes, device=device)
    target = torch.randint(0, n_classes, (n_rows,), device=device)
    target[n_rows // 2] = -100
    return [t.to(dtype) for t in (x, weight, bias)], target


def eager(x, weight, bias, target, **options):
    """torch's own two ops."""
    logits = torch.nn.functional.linear(x, weight, bias)
    return torch.nn.functional.cross_entropy(logits, target, **options)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_matches_torch(reduction, smoothing, dtype, device):
    """Loss and all gradients are as accurate as torch's in the same dtype."""
    inputs, target = draw(dtype, device)
    options = {"reduction": reduction, "label_smoothing": smoothing}
    shape = (9,) if reduction == "none" else ()
    assert_matches(
        lambda x, w, b: linear_cross_entropy(x, w, target, linear_bias=b, **options),
        lambda x, w, b: eager(x, w, b, target, **options),
        lambda x, w, b: linear_cross_entropy_ref(x, w, target, b, **options),
        inputs,
        [torch.rand(shape, device=device)],
    )


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_extras(reduction, device):
    """z-loss and soft-cap follow the definition, gradients too."""
    inputs, target = draw(torch.float32, device)
    options = {"reduction": reduction, "z_loss": 1e-2, "softcap": 2.0, "ignore_index": -100}
    reference = lambda x, w: linear_cross_entropy_ref(x, w, target, **options)  # noqa: E731
    shape = (9,) if reduction == "none" else ()
    assert_matches(
        lambda x, w: linear_cross_entropy(x, w, target, **options),
        reference,
        reference,
        inputs[:2],
        [torch.rand(shape, device=device)],
    )


@pytest.mark.usefixtures("small_groups")
def test_tokens_of_their_own_weight(device):
    """Without a reduction each token's gradient has its own factor, not the first one's."""
    (x, weight, _), target = draw(torch.float32, device)
    x.requires_grad_()
    factor = torch.zeros(9, device=device)
    factor[6] = 2.0
    loss = linear_cross_entropy(x, weight, target, reduction="none")
    (dx,) = torch.autograd.grad(loss, x, factor)
    assert dx.any(1).tolist() == [i == 6 for i in range(9)]


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_frozen_parts(wanted, reduction, device):
    """Only the gradients asked for are given, and they are the same."""
    inputs, target = draw(torch.float32, device)
    for t, w in zip(inputs, wanted, strict=True):
        t.requires_grad_(bool(w))
    x, weight, bias = inputs
    linear_cross_entropy(x, weight, target, linear_bias=bias, reduction=reduction).sum().backward()
    found = [t.grad for t in inputs]
    for t in inputs:
        t.grad = None
    eager(*inputs, target, reduction=reduction).sum().backward()
    for actual, t in zip(found, inputs, strict=True):
        assert (actual is None) == (t.grad is None)
        if t.grad is not None:
            torch.testing.assert_close(actual, t.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("small_groups")
def test_any_leading_dimensions(device):
    """Tokens may be [B, S], strided too; the loss without reduction has their shape."""
    (x, weight, _), target = draw(torch.float32, device, n_rows=12)
    x, target = x.view(4, 3, 16).transpose(0, 1), target.view(4, 3).t()
    loss = linear_cross_entropy(x, weight, target, reduction="none")
    expected = linear_cross_entropy_ref(x, weight, target, reduction="none")
    torch.testing.assert_close(loss, expected)


@pytest.mark.usefixtures("small_groups")
def test_gradients_can_be_asked_for_twice(device):
    """The backward leaves what it scales as it is."""
    (x, weight, _), target = draw(torch.float32, device)
    x.requires_grad_()
    loss = linear_cross_entropy(x, weight, target)
    first = torch.autograd.grad(loss, x, retain_graph=True)[0].clone()
    assert torch.equal(first, torch.autograd.grad(2 * loss, x)[0] / 2)


@pytest.mark.parametrize("shape", [(), (7,), (33, 64), (0, 5)], ids=str)
def test_scaled_and_rounded_once(shape, device):
    """A gradient times a number, rounded to another dtype: that of float64, bit for bit."""
    x = torch.randn(shape, device=device)
    factor = torch.tensor(0.3, device=device)
    actual = scaled(x, factor, torch.bfloat16)
    assert actual.dtype == torch.bfloat16
    assert torch.equal(actual, (x * factor).bfloat16())
    torch.library.opcheck(scaled.overload, (x, factor, torch.bfloat16))


def test_logits_in_memory():
    """512 MiB of them at a time, at least 1,024 rows: Llama 3's vocabulary in bfloat16 is 2,048.

    Where its gradient is wanted, as many bytes as the weight has: 4,096 rows for 4,096 columns.
    """
    assert logit_rows(128_256, 2) == logit_rows(128_256, 2, 1024) == 2048
    assert logit_rows(32_000, 2) == logit_rows(32_000, 2, 4096) == 8192
    assert logit_rows(1_000_000, 4) == 1024
    assert logit_rows(128_256, 2, 4096) == 4096


def test_weight_gradient_accumulates_in_float32(device):
    """Many groups of equal rows: the sum is exact where bfloat16 would lose the last ones."""
    n_rows = 4096
    x = torch.ones(n_rows, 8, device=device, dtype=torch.bfloat16)
    weight = torch.zeros(2, 8, device=device, dtype=torch.bfloat16, requires_grad=True)
    target = torch.zeros(n_rows, dtype=torch.int64, device=device)
    loss = linear_cross_entropy(x, weight, target, reduction="sum")
    (dweight,) = torch.autograd.grad(loss, weight)
    assert dweight[0].eq(-n_rows / 2).all()
    assert dweight[1].eq(n_rows / 2).all()


def test_every_token_ignored_and_no_token(device):
    """The mean of nothing is NaN, as torch's; gradients of a sum are zero."""
    (x, weight, _), target = draw(torch.float32, device)
    weight.requires_grad_()
    ignored = torch.full_like(target, -100)
    assert math.isnan(linear_cross_entropy(x, weight, ignored).item())
    for tokens in (slice(0, 0), slice(None)):
        loss = linear_cross_entropy(x[tokens], weight, ignored[tokens], reduction="sum")
        assert loss.item() == 0
        assert torch.autograd.grad(loss, weight)[0].eq(0).all()


def test_autocast(device):
    """float32 parameters and activations meet in bfloat16, as in torch's linear layer."""
    (x, weight, _), target = draw(torch.float32, device)
    weight.requires_grad_()
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = linear_cross_entropy(x, weight, target)
    expected = linear_cross_entropy(x.bfloat16(), weight.bfloat16(), target)
    assert loss.item() == expected.item()
    assert torch.autograd.grad(loss, weight)[0].dtype == torch.float32


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_registration(reduction, device):
    """Schema, fake kernel and dispatch agree with what runs."""
    (x, weight, bias), target = draw(torch.float32, device)
    extras = (-100, 0.1, 0.0, 0.0, [True, False, True])
    torch.library.opcheck(fwd_op, (x, weight, bias, target, reduction, *extras))
    lse = torch.randn(9, device=device)
    torch.library.opcheck(bwd_op, (lse, x, weight, bias, target, lse, *extras))


def test_compiles_without_recompiling(device):
    """One graph serves every number of tokens, forward and backward, in one piece."""
    compiled = torch.compile(public, fullgraph=True, backend="aot_eager", dynamic=True)
    for n_rows in (5, 6, 9):
        (x, weight, _), target = draw(torch.float32, device, n_rows)
        leaves = [x.requires_grad_(), weight.requires_grad_()]
        with torch.compiler.set_stance("fail_on_recompile" if n_rows > 5 else "default"):
            actual = torch.autograd.grad(compiled(x, weight, target), leaves)
        expected = torch.autograd.grad(linear_cross_entropy(x, weight, target), leaves)
        torch.testing.assert_close(actual, expected)


X, W, T = torch.ones(2, 4), torch.ones(3, 4), torch.zeros(2).long()


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((X.int(), W, T), {}, "input must be float32"),
        ((X, W[0], T), {}, r"linear_weight must have shape \[V, H\]"),
        ((X, W[:, :3], T), {}, r"linear_weight must have shape \[3, 4\], got \[3, 3\]"),
        ((X, W.half(), T), {}, "linear_weight must be torch.float32 like input, got torch.float16"),
        ((X, W, T[:1]), {}, r"target must have shape \[2\], got \[1\]"),
        ((X, W, T + 3), {}, r"target must be in \[0, 2\] or -100"),
        ((X, W, T), {"linear_bias": X[0]}, r"linear_bias must have shape \[3\], got \[4\]"),
        ((X, W, T), {"reduction": "avg"}, "reduction must be none, mean or sum, got 'avg'"),
    ],
    ids=["dtype", "rank", "width", "mixed", "shape", "target", "bias", "reduction"],
)
def test_refuses(args, options, message, monkeypatch):
    """A bad argument is named, with what was wanted and what came."""
    monkeypatch.setattr(import_module("rooftile.ops.cross_entropy"), "_asked", True)
    with pytest.raises(InputError, match=message):
        linear_cross_entropy(*args, **options)
