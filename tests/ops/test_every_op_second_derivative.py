"""Second derivatives, which no op has: refused whichever way they are asked for, never left out."""

from __future__ import annotations

import pytest
import torch
from ops.calls import CALLS, N, shaped

from rooftile import ops
from rooftile.errors import InputError

NONE = r"create_graph must be False"
# turning is linear: its gradient does not depend on what was turned
CURVED = [op for op in CALLS if op != "rotary_embedding"]


def first(result):
    """The only result, or the first of two."""
    return result[0] if isinstance(result, tuple) else result


def case(op, device):
    """A scalar of an op's result, and the operand that it depends on."""
    x = shaped(op, torch.randn(3, N, device=device)).requires_grad_()
    weight = torch.arange(N, device=device).cos()

    def scalar(t):
        y = first(CALLS[op](t))
        return (y * weight).sum() if y.dim() else y

    return scalar, x


def gradient(scalar, x, **options):
    """Of the scalar, to be differentiated again."""
    return torch.autograd.grad(scalar(x), x, create_graph=True, **options)[0]


@pytest.mark.parametrize(
    "ask",
    [
        lambda f, x: gradient(f, x).norm().backward(),
        lambda f, x: torch.autograd.grad(gradient(f, x).norm(), x),
        lambda f, x: torch.autograd.grad(gradient(f, x).norm() + f(x), x),
        lambda f, x: torch.autograd.grad(gradient(lambda t: f(t) ** 2, x).norm(), x),
        lambda f, x: torch.autograd.functional.hessian(f, x),
        lambda f, x: torch.autograd.functional.hvp(f, x, x),
    ],
    ids=["backward", "grad", "penalty", "upstream", "hessian", "hvp"],
)
@pytest.mark.parametrize("op", CURVED)
def test_a_second_derivative(op, ask, device):
    """A gradient penalty added 0 to the loss, a Hessian came out as 0."""
    with pytest.raises(InputError, match=NONE):
        ask(*case(op, device))


@pytest.mark.parametrize("op", [op for op in CALLS if op != "linear_cross_entropy"])
def test_a_graph_that_is_not_used(op, device):
    """The first derivative with a graph behind it is the same."""
    scalar, x = case(op, device)
    (expected,) = torch.autograd.grad(scalar(x), x)
    actual = gradient(scalar, x)
    torch.testing.assert_close(actual.detach(), expected, rtol=0, atol=0)


def test_what_is_linear(device):
    """The gradient of what was turned is no function of it."""
    scalar, x = case("rotary_embedding", device)
    assert not gradient(scalar, x).requires_grad


def test_linear_cross_entropy_of_each_row(device):
    """Without a reduction it keeps its operands, so the graph alone is no error."""
    x = torch.randn(3, N, device=device, requires_grad=True)
    weight = torch.randn(5, N, device=device, requires_grad=True)
    target = torch.tensor([0, 1, 2], device=device)
    loss = ops.linear_cross_entropy(x, weight, target, reduction="none")
    dx, dweight = torch.autograd.grad(loss.sum(), (x, weight), create_graph=True)
    for gradients in (dx, dweight):
        with pytest.raises(InputError, match=NONE):
            torch.autograd.grad(gradients.norm(), weight, retain_graph=True)
