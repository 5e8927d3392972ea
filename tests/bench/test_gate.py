"""A result is right before a time is taken."""

from __future__ import annotations

import re

import pytest
import torch

from rooftile.bench import gate
from rooftile.bench.cases.bias_gelu_dropout_residual import CASES as DROPOUT_CASES
from rooftile.records.measurement import Check


def checked(case, direction, dtype=torch.bfloat16, function=None) -> Check:
    torch.manual_seed(1)
    inputs = case.inputs(case.sizes(case.small[0]), dtype, "cpu")
    grads = gate.output_grads(case, inputs, direction)
    known = gate.truth(case, inputs, grads, direction)
    mine = gate.own_inputs(inputs)
    _, got = gate.evaluate(function or case.function, mine, grads, direction)
    return gate.check(case, direction, got, known)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_right_result_passes(case, direction, dtype):
    """Torch's own op is as far from float64 as itself."""
    check = checked(case(), direction, dtype)
    assert check.passed
    assert 0 < check.error < check.allowed < 3 * torch.finfo(dtype).eps


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: torch.softmax(x, -1) * 1.02, "in norm"),
        (lambda x: torch.softmax(x, -1).index_fill(0, torch.tensor([1]), float("nan")), "nan"),
        (lambda x: torch.softmax(x, -1)[:2], r"must have shape \[3, 5\], got \[2, 5\]"),
        (lambda x: (torch.softmax(x, -1), x), "must give 1 results, got 2"),
    ],
)
def test_a_wrong_result_does_not(case, function, words):
    """2 % off, NaN, another shape, another number of results."""
    check = checked(case(), "forward", function=function)
    assert not check.passed
    assert check.error > check.allowed
    assert re.search(words, check.detail)


def test_one_wrong_element_among_many_does_not_pass(case):
    """In the norm of 4,096 elements it would drown."""

    def spoilt(x):
        y = torch.softmax(x, -1).clone()
        worst = y.argmax()
        y.view(-1)[worst] *= 1.05
        return y

    wide = case(small=((64, 64),))
    check = checked(wide, "forward", function=spoilt)
    assert not check.passed
    assert "at the worst element" in check.detail


def test_a_missing_gradient_does_not_pass(case):
    """A weight whose gradient is None would otherwise go unnoticed."""

    def inputs(dims, dtype, device):
        shape = (dims["M"], dims["N"])
        return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(2))

    two = case(inputs=inputs, reference=lambda x, w: x * w)
    check = checked(two, "backward", function=lambda x, w: x * w.detach())
    assert check.detail == "must give 2 results, got 1"
    assert checked(two, "backward", function=lambda x, w: x * w).passed


def test_gradients_are_set_and_never_added():
    """ben-04: after many backwards the gradient is that of one."""
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    for _ in range(5):
        gate.run_backward((y,), (torch.ones(3),), (x,), keep=True)
    assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_inputs_are_a_providers_own():
    """A library that writes into what it is given spoils nobody else's."""
    x = torch.ones(2, requires_grad=True)
    index = torch.tensor([1])
    mine = gate.own_inputs((x, index))
    mine[0].data.zero_()
    assert torch.equal(x, torch.ones(2))
    assert [t.requires_grad for t in mine] == [True, False]
    exact = gate.own_inputs((x, index), torch.float64)
    assert [t.dtype for t in exact] == [torch.float64, torch.int64]


@pytest.mark.parametrize("case", DROPOUT_CASES, ids=lambda case: case.variant)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_random_result_is_checked_against_its_own_mask(case, direction):
    """Torch's dropout draws other numbers each time and is right each time."""
    for dtype in (torch.bfloat16, torch.float32):
        assert checked(case, direction, dtype, function=case.reference).passed


@pytest.mark.parametrize("p", [0.0, 0.25])
def test_another_share_of_dropped_elements_does_not_pass(p):
    """An eighth is to be dropped, and the kept ones scaled by 8 / 7."""
    F = torch.nn.functional

    def other(x, bias, residual):
        kept = F.gelu(x + bias, approximate="tanh") * 8 / 7
        return torch.where(torch.rand_like(x) < p, 0, kept) + residual

    check = checked(DROPOUT_CASES[0], "forward", torch.float32, function=other)
    assert not check.passed
    assert "share of dropped elements must be 0.125" in check.detail


def test_dropping_without_scaling_does_not_pass():
    """Each element must be one of two values, not merely plausible."""
    F = torch.nn.functional

    def unscaled(x, bias, residual):
        kept = F.gelu(x + bias, approximate="tanh")
        return torch.where(torch.rand_like(x) < 0.125, 0, kept) + residual

    assert not checked(DROPOUT_CASES[0], "forward", torch.float32, function=unscaled).passed
