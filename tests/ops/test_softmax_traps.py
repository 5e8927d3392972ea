"""What the softmax family meets in the field: huge logits, masked classes, ignored rows."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from ops.close import DTYPES

from rooftile.ops import cross_entropy, log_softmax, softmax
from rooftile.plan.launch import override

# that is what numpy says of the NaN and infinities here, under the interpreter
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

INF, NAN = math.inf, math.nan
OURS, TORCHS = {"softmax": softmax, "log_softmax": log_softmax}, torch


def gradient(function, x, upstream):
    """Of a function's result at x."""
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(function(x), x, upstream)[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [1, 3, 5, 781])
@pytest.mark.parametrize("logit", [-60_000.0, 60_000.0])
def test_padding_is_no_logit(logit, n_cols, dtype, device):
    """Equal logits share evenly, however low: a lane of padding at 0 would win (ce-04's kind)."""
    x = torch.full((2, n_cols), logit, dtype=dtype, device=device)
    torch.testing.assert_close(softmax(x, -1), torch.full_like(x, 1 / n_cols))
    torch.testing.assert_close(log_softmax(x, -1), torch.full_like(x, -math.log(n_cols)))


@pytest.mark.parametrize(
    "row",
    [[INF, 0, 1], [INF, INF, 0], [-INF, -INF, 0], [NAN, 0, 1], [-INF] * 3, [-INF, 1, INF],
     [3e38, -3e38, 0]],
)  # fmt: skip
@pytest.mark.parametrize("name", OURS)
def test_a_row_of_any_numbers(name, row, device):
    """Result and gradient are torch's, NaN where its are; the other row is untouched (sm-02)."""
    x = torch.tensor([row, [0.0, 1, 2]], device=device)
    dy = torch.tensor([[1.0, 2, 3], [3, 1, 2]], device=device)
    ours = lambda t: OURS[name](t, -1)  # noqa: E731
    theirs = lambda t: getattr(TORCHS, name)(t, -1)  # noqa: E731
    torch.testing.assert_close(ours(x), theirs(x), equal_nan=True)
    torch.testing.assert_close(gradient(ours, x, dy), gradient(theirs, x, dy), equal_nan=True)


@pytest.mark.parametrize(
    "plan", [{}, {"kind": "loop", "block_n": 512, "num_warps": 4}], ids=["tile", "loop"]
)
def test_log_softmax_past_a_masked_block(plan, device):
    """1,024 columns of -inf, then 1,024 of 0: -inf and -log 1024, no NaN (sm-02)."""
    x = torch.zeros(1, 2048, device=device)
    x[0, :1024] = -INF
    with override("softmax_fwd", **plan):
        y = log_softmax(x, -1)
    assert y[0, :1024].eq(-INF).all()
    torch.testing.assert_close(y[0, 1024:], torch.full_like(y[0, 1024:], -math.log(1024)))


@pytest.mark.parametrize("name", OURS)
def test_last_stride_of_one_and_another_row_stride(name, device):
    """[S, B, V] seen as [B, S, V]: rows are V apart in one dimension, B * V in another (sm-03)."""
    x = torch.randn(5, 3, 72, device=device).transpose(0, 1)
    assert x.stride(-1) == 1
    torch.testing.assert_close(OURS[name](x, -1), getattr(TORCHS, name)(x, -1))


MASKED = [{}, {"label_smoothing": 0.1}, {"reduction": "sum"}, {"reduction": "none"},
          {"ignore_index": 6}, {"ignore_index": 0, "reduction": "none"}]  # fmt: skip


@pytest.mark.parametrize("options", MASKED, ids=str)
def test_classes_that_are_masked(options, device):
    """A logit of -inf has no probability and no gradient; smoothing over it costs infinitely."""
    x = torch.randn(4, 7, device=device)
    x[1, 3:] = -INF
    target = torch.tensor([0, 1, 2 if "ignore_index" in options else -100, 6], device=device)
    ours = lambda t: cross_entropy(t, target, **options).sum()  # noqa: E731
    theirs = lambda t: F.cross_entropy(t, target, **options).sum()  # noqa: E731
    torch.testing.assert_close(ours(x), theirs(x), equal_nan=True)
    up = torch.tensor(3.0, device=device)
    torch.testing.assert_close(gradient(ours, x, up), gradient(theirs, x, up), equal_nan=True)


def test_a_target_that_is_masked(device):
    """Its loss is infinite, its row's gradient the probabilities less one at the target."""
    x = torch.tensor([[0.0, 0.0, -INF]], device=device)
    target = torch.tensor([2], device=device)
    assert cross_entropy(x, target).item() == INF
    dx = gradient(
        lambda t: cross_entropy(t, target, reduction="sum"), x, torch.ones((), device=device)
    )
    assert dx.tolist() == [[0.5, 0.5, -1.0]]


@pytest.mark.parametrize("value", [NAN, INF, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_an_ignored_row_does_not_matter(reduction, value, device):
    """Loss and gradients of the others are as without it, its own gradient is exactly 0 (ce-01)."""
    x = torch.randn(4, 9, device=device)
    x[2] = value
    target = torch.tensor([0, 8, -100, 3], device=device)
    keep = [0, 1, 3]
    loss = cross_entropy(x, target, reduction=reduction)
    alone = cross_entropy(x[keep], target[keep], reduction=reduction)
    torch.testing.assert_close(loss[keep] if reduction == "none" else loss, alone)
    dx = gradient(lambda t: cross_entropy(t, target, reduction=reduction).sum(), x, None)
    rest = gradient(
        lambda t: cross_entropy(t, target[keep], reduction=reduction).sum(), x[keep], None
    )
    torch.testing.assert_close(dx[keep], rest)
    assert dx[2].eq(0).all()


def test_the_loss_of_the_report(device):
    """Rows [1, 2, 3] and shifts of it with label 0 cost log(1 + e + e^2) each (ce-05)."""
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6], [-1, 0, 1], [0.5, 1.5, 2.5]], device=device)
    target = torch.zeros(4, dtype=torch.int64, device=device)
    expected = math.log(1 + math.e + math.e**2)
    assert cross_entropy(x, target).item() == pytest.approx(expected, rel=1e-6)
    assert cross_entropy(x.requires_grad_(), target).item() == pytest.approx(expected, rel=1e-6)


def test_logits_are_left_alone(device):
    """Neither pass writes into them, and a factor behind the loss reaches the gradient."""
    x = torch.randn(5, 9, device=device, requires_grad=True)
    before, target = x.detach().clone(), torch.arange(5, device=device)
    (cross_entropy(x, target) * 3).backward()
    assert torch.equal(x.detach(), before)
    expected = gradient(lambda t: F.cross_entropy(t, target) * 3, before, None)
    torch.testing.assert_close(x.grad, expected)


def test_softcap_is_the_cap_times_the_tangent(device):
    """2 * tanh(3 / 2), not 3 * tanh(3 / 2): log(1 + exp(-1.8103)) (ce-04)."""
    x = torch.tensor([[3.0, 0.0]], device=device)
    loss = cross_entropy(x, torch.tensor([0], device=device), softcap=2.0)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-2 * math.tanh(1.5))), rel=1e-6)
