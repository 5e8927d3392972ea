"""rotary_embedding in place: what autograd must notice, and what torch writes over neither."""

from __future__ import annotations

import pytest
import torch

from rooftile.errors import InputError
from rooftile.ops.rotary_embedding import inplace_op, rotary_embedding

SHAPE = (5, 3, 16)


@pytest.fixture
def angles(device):
    """Cosines and sines of five positions."""
    angle = torch.randn(5, 8, device=device)
    return angle.cos(), angle.sin()


@pytest.fixture
def x(device):
    """Queries that ask for no gradient."""
    return torch.randn(SHAPE, device=device)


@pytest.mark.parametrize("empty", [False, True])
def test_the_version_counts(empty, x, angles):
    """As after torch's own ops in place, by the public function and by the op."""
    x = x[:, :0] if empty else x
    before = x._version
    rotary_embedding(x, *angles, inplace=True)
    after = x._version
    assert after > before
    inplace_op(x, *angles, False)
    assert x._version > after
    with torch.inference_mode():
        after = x._version
        rotary_embedding(x, *angles, inplace=True)
    assert x._version > after


def test_a_backward_that_kept_x(x, angles):
    """It would take the turned x for the one it kept: a wrong gradient without a word."""
    weight = torch.randn_like(x).requires_grad_()
    loss = (weight * x).sum()
    rotary_embedding(x, *angles, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_under_a_detached_name(x, angles):
    """The two share a version."""
    kept = x.requires_grad_() * 2
    loss = kept.square().sum()
    rotary_embedding(kept.detach(), *angles, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_leaf_without_a_graph(x, angles):
    """Under no_grad torch writes over a leaf too."""
    expected = rotary_embedding(x, *angles)
    x.requires_grad_()
    with torch.no_grad():
        rotary_embedding(x, *angles, inplace=True)
    assert torch.equal(x, expected)


def test_a_view_of_what_is_no_leaf(x, angles):
    """The gradient reaches the base: turned back where the view was, as it is elsewhere."""
    dy = torch.randn_like(x)
    x.requires_grad_()
    base = x * 1
    rotary_embedding(base[:, :1], *angles, inplace=True)
    (actual,) = torch.autograd.grad(base, x, dy)
    whole = torch.cat([rotary_embedding(x[:, :1], *angles), x[:, 1:]], 1)
    (expected,) = torch.autograd.grad(whole, x, dy)
    assert torch.equal(actual, expected)


def under_no_grad(x):
    """A view made there."""
    base = x * 1
    with torch.no_grad():
        return base[:]


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda x: x, "x must be no leaf that asks for a gradient when inplace"),
        (lambda x: x[:, 1:], "x must be no leaf that asks for a gradient when inplace"),
        (lambda x: (x * 1).chunk(3, 1)[0], "x must be no view made by chunk, split or unbind"),
        (lambda x: (x * 1).unbind(1)[0][:, None], "x must be no view made by chunk"),
        (under_no_grad, "x must be no view made by .* under no_grad"),
    ],
    ids=["leaf", "view of a leaf", "chunk", "view of unbind", "no_grad"],
)
def test_what_torch_does_not_write_over(view, message, x, angles):
    """Torch would say so after the launch, when x is lost."""
    x = view(x.requires_grad_())
    with pytest.raises(InputError, match=message):
        rotary_embedding(x, *angles, inplace=True)
    with pytest.raises(RuntimeError):
        x.mul_(2)


@pytest.mark.usefixtures("no_launch")
def test_a_tensor_of_inference_mode(angles, device):
    """It has no version, so no backward could notice."""
    with torch.inference_mode():
        x = torch.randn(SHAPE, device=device)
    with pytest.raises(InputError, match=r"x must be no tensor of torch\.inference_mode"):
        rotary_embedding(x, *angles, inplace=True)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("place", [0, 200])
def test_angles_within_x(place, x, angles):
    """They would be read as turned already by another program."""
    cos, sin = angles
    within = x.view(-1)[place : place + 40].view(5, 8)
    with pytest.raises(InputError, match="cos must not lie in x when inplace is set"):
        rotary_embedding(x, within, sin, inplace=True)
    with pytest.raises(InputError, match="sin must not lie in x when inplace is set"):
        rotary_embedding(x, cos, within, inplace=True)


def test_angles_beside_x(angles, device):
    """One allocation may hold both."""
    base = torch.randn(320, device=device)
    cos, sin = base[:40].view(5, 8).copy_(angles[0]), base[280:].view(5, 8).copy_(angles[1])
    x = base[40:280].view(SHAPE)
    expected = rotary_embedding(x, *angles)
    assert torch.equal(rotary_embedding(x, cos, sin, inplace=True), expected)


@pytest.mark.usefixtures("no_launch")
def test_under_vmap(x, angles):
    """Torch's loop over a batch cannot write in place."""
    with pytest.raises(InputError, match="inplace must be False within a transform"):
        torch.func.vmap(lambda t: rotary_embedding(t, *angles, inplace=True))(x[None])


def test_angles_that_ask_for_a_gradient(x, angles):
    """Refused where one would be recorded, and only there."""
    cos, sin = angles[0].clone().requires_grad_(), angles[1]
    with pytest.raises(InputError, match="cos must not ask for a gradient"):
        rotary_embedding(x, cos, sin)
    with torch.no_grad():
        assert torch.equal(rotary_embedding(x, cos, sin), rotary_embedding(x, *angles))
