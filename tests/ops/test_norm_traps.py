"""What norms meet in the field: squares that overflow, constant rows, odd weights, frozen parts."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from ops.close import DTYPES

from rooftile.ops import add_layer_norm, add_rms_norm, layer_norm, rms_norm

# that is what numpy says of the NaN and infinities here, under the interpreter
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

NORMS = {
    "rms_norm": (lambda x, w=None: rms_norm(x, (x.shape[-1],), w, 1e-6),
                 lambda x, w=None: F.rms_norm(x, (x.shape[-1],), w, 1e-6)),
    "layer_norm": (lambda x, w=None: layer_norm(x, (x.shape[-1],), w),
                   lambda x, w=None: F.layer_norm(x, (x.shape[-1],), w)),
}  # fmt: skip


@pytest.fixture(params=NORMS)
def norm(request):
    """Ours and torch's, over the last dimension, with a weight or without."""
    return NORMS[request.param]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_squares_beyond_float16(norm, dtype, device):
    """300 squared is 90,000, past float16's 65,504: squares are float32's."""
    x = torch.full((2, 40), 300.0, device=device)
    x[:, ::2] = -299.0
    weight = torch.randn(40, device=device).to(dtype)
    right = norm[1](x.double(), weight.double())
    torch.testing.assert_close(norm[0](x.to(dtype), weight).double(), right, rtol=2e-2, atol=4e-3)


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_a_row_of_one_value(norm, value, device):
    """Its variance is 0: eps keeps result and gradient finite, as torch has them (nrm-02)."""
    x = torch.full((2, 8), value, device=device)
    dy = torch.randn(2, 8, device=device)
    torch.testing.assert_close(norm[0](x), norm[1](x))
    grads = []
    for function in norm:
        leaf = x.clone().requires_grad_()
        grads += torch.autograd.grad(function(leaf), leaf, dy)
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n_cols", [8, 20_011])
@pytest.mark.parametrize("value", [math.inf, math.nan, 1e-30])
def test_a_strange_number_stays_in_its_row(norm, value, n_cols, device):
    """Its row is what torch makes of it on a CPU; the others are untouched.

    On a GPU torch's rms norm gives NaN for a long row with an infinity, not for a short one.
    """
    x = torch.randn(3, n_cols, device=device)
    x[1, 2] = value
    torch.testing.assert_close(norm[0](x).cpu(), norm[1](x.cpu()), equal_nan=True)


@pytest.mark.parametrize("n_cols", [8, 20_011])
def test_squares_beyond_float32(norm, n_cols, device):
    """3e38 has a square of infinity, so 1 / deviation is 0, and so is its row, and no other.

    By the formula in float32: in float64 the row is finite; torch's layer norm gives 0 on a CPU and
    NaN on a GPU, where it multiplies that infinity by the 0 elements of an idle thread.
    """
    x = torch.randn(3, n_cols, device=device)
    others = norm[1](x)
    x[1, 2] = 3e38
    y = norm[0](x)
    assert y[1].count_nonzero() == 0
    torch.testing.assert_close(y[::2], others[::2])


@pytest.mark.parametrize("view", [lambda w: w[::2], lambda w: w[:1].expand(8)])
def test_weights_with_strides(norm, view, device):
    """Every second element, or one for all: read, and given a gradient, through its strides."""
    x = torch.randn(3, 8, device=device)
    grads = []
    for function in norm:
        weight = torch.arange(1.0, 17.0, device=device).requires_grad_()
        y = function(x, view(weight))
        grads.append(torch.autograd.grad(y.square().sum(), weight)[0])
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_rows", [1, 2, 127, 257])
def test_the_weights_gradient_over_any_number_of_rows(norm, n_rows, device):
    """Fewer rows than programs, a prime number, one more than a power of two."""
    x = torch.randn(n_rows, 12, device=device)
    grads = []
    for function in norm:
        weight = torch.ones(12, device=device, requires_grad=True)
        grads += torch.autograd.grad(function(x, weight).square().sum(), weight)
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_eps_stands_below_the_root(device):
    """x = 1e-3 and eps = 1e-2: 1e-3 / sqrt(1e-6 + 1e-2), not 1e-3 / (1e-3 + 1e-2)."""
    x = torch.full((1, 4), 1e-3, device=device)
    y = rms_norm(x, (4,), None, 1e-2)
    assert y.flatten().tolist() == pytest.approx([1e-3 / math.sqrt(1e-6 + 1e-2)] * 4, rel=1e-5)


@pytest.mark.parametrize("function", [add_rms_norm, add_layer_norm])
def test_a_tensor_as_its_own_residual(function, device):
    """x + x, and both gradients come to the one leaf."""
    x = torch.randn(3, 16, device=device, requires_grad=True)
    y, h = function(x, x, (16,))
    torch.testing.assert_close(h, 2 * x)
    dy, dh = torch.randn(2, 3, 16, device=device)
    (dx,) = torch.autograd.grad((y, h), x, (dy, dh))
    plain = F.rms_norm if function is add_rms_norm else F.layer_norm
    other = (2 * x.detach()).requires_grad_()
    eps = {"eps": 1.1920929e-07} if function is add_rms_norm else {}
    (right,) = torch.autograd.grad(plain(other, (16,), **eps), other, dy)
    torch.testing.assert_close(dx, 2 * (right + dh), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [add_rms_norm, add_layer_norm])
@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)])
def test_frozen_parts_of_a_norm_with_a_residual(function, wanted, device):
    """Only what asks for a gradient gets one; where nothing does, there is none to ask (nrm-07)."""
    leaves = [torch.randn(size, device=device) for size in ((5, 16), (5, 16), (16,))]
    for leaf, asks in zip(leaves, wanted, strict=True):
        leaf.requires_grad_(bool(asks))
    y, h = function(leaves[0], leaves[1], (16,), leaves[2])
    assert y.requires_grad == any(wanted)
    if any(wanted):
        (y.sum() + h.sum()).backward()
    assert [leaf.grad is not None for leaf in leaves] == list(map(bool, wanted))


def test_groups_normalized_as_rows(device):
    """GroupNorm of (2, 4, 3, 5) in 2 groups: the norm of rows of 30, gradients too (nrm-04)."""
    x = torch.randn(2, 4, 3, 5, device=device, requires_grad=True)
    ours = layer_norm(x.view(2, 2, 30), (30,)).view_as(x)
    theirs = F.group_norm(x, 2)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    dy = torch.randn_like(x)
    grads = [torch.autograd.grad(y, x, dy, retain_graph=True)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)
