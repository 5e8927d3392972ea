"""Derivatives that no op has: refused by every one, for torch would leave them out in silence."""

from __future__ import annotations

import pytest
import torch
from ops.calls import CALLS, TARGET, N, shaped
from torch._dynamo.exc import Unsupported
from torch.autograd import forward_ad

from rooftile import ops
from rooftile.errors import InputError

TANGENT = r"must have no tangent: ops have no derivative in forward mode"
WITHIN = r"must ask for no gradient within a transform of torch\.func"


def first(result):
    """The only result, or the first of two."""
    return result[0] if isinstance(result, tuple) else result


@pytest.fixture(params=CALLS)
def case(request, device):
    """An op as a function of its first operand, and that operand."""
    x = shaped(request.param, torch.randn(3, N, device=device))
    return lambda t: first(CALLS[request.param](t)), x


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("leaf", [False, True])
def test_a_tangent(case, leaf):
    """A dual tensor's: it came out as None, which says that the derivative is 0."""
    call, x = case
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.requires_grad_(leaf), torch.ones_like(x))
        with pytest.raises(InputError, match=TANGENT):
            call(dual)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize(
    "derivative",
    [
        lambda f, x: torch.func.jvp(f, (x,), (x,)),
        lambda f, x: torch.func.jacfwd(f)(x),
        lambda f, x: torch.func.jvp(torch.func.vmap(f), (x[None],), (x[None],)),
        lambda f, x: torch.func.vmap(lambda t: torch.func.jvp(f, (t,), (t,))[1])(x[None]),
    ],
    ids=["jvp", "jacfwd", "jvp of vmap", "vmap of jvp"],
)
def test_a_tangent_of_a_transform(case, derivative):
    """It came out as zeros, whatever the tangent that went in."""
    with pytest.raises(InputError, match=TANGENT):
        derivative(*case)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize(
    "derivative",
    [
        lambda f, x: torch.func.grad(lambda t: f(t).sum())(x),
        lambda f, x: torch.func.vjp(f, x),
        lambda f, x: torch.func.jacrev(f)(x),
        lambda f, x: torch.func.grad(lambda t: torch.func.vmap(f)(t).sum())(x[None]),
        lambda f, x: torch.func.vmap(f)(x[None].requires_grad_()),
    ],
    ids=["grad", "vjp", "jacrev", "grad of vmap", "vmap of a leaf"],
)
def test_a_gradient_within_a_transform(case, derivative):
    """Under vmap it was lost behind a warning."""
    with pytest.raises(InputError, match=WITHIN):
        derivative(*case)


def compiled(f):
    """Without a break, past which an op would be called as ever."""
    return torch.compile(f, fullgraph=True, backend="aot_eager")


def dual_of(f, x):
    """Of the result of f on a tensor with a tangent."""
    with forward_ad.dual_level():
        return f(forward_ad.make_dual(x, x))


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize(
    "derivative",
    [
        lambda f, x: compiled(lambda t: torch.func.jvp(f, (t,), (t,)))(x),
        lambda f, x: compiled(torch.func.grad(lambda t: f(t).sum()))(x),
        lambda f, x: dual_of(compiled(f), x),
    ],
    ids=["jvp", "grad", "dual"],
)
def test_a_compiled_derivative(derivative):
    """Torch's compiler enters transforms while it traces; what it compiled gave zeros."""
    with pytest.raises(Unsupported, match="InputError"):
        derivative(lambda t: ops.rms_norm(t, (N,)), torch.randn(3, N))


def test_what_is_no_operand_of_the_derivative(device):
    """An op on a constant within grad or jvp is as good as outside."""
    x, y = torch.randn(2, 3, N, device=device)
    expected = torch.softmax(y, -1)
    constant = lambda t: (t * ops.softmax(y, -1)).sum()  # noqa: E731
    torch.testing.assert_close(torch.func.grad(constant)(x), expected)
    _, derivative = torch.func.jvp(constant, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(derivative, expected.sum())


def test_vmap(case):
    """Without a gradient each row of the batch is a call: the same numbers."""
    call, x = case
    both = torch.stack([x, x + 1])
    expected = torch.stack([call(one) for one in both])
    torch.testing.assert_close(torch.func.vmap(call)(both), expected, rtol=0, atol=0)


def test_vmap_over_targets(device):
    """Their values are hidden there, so they are not looked at."""
    x = torch.randn(2, 3, N, device=device)
    target = torch.stack([TARGET, TARGET + 4]).to(device)
    actual = torch.func.vmap(ops.cross_entropy)(x, target)
    expected = [torch.nn.functional.cross_entropy(*pair) for pair in zip(x, target, strict=True)]
    torch.testing.assert_close(actual, torch.stack(expected))
