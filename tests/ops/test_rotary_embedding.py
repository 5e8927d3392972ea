"""rotary_embedding against its definition: both pairings, partial heads, strides, in place."""

from __future__ import annotations

import pytest
import torch
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops.rotary_embedding import (
    fwd_op,
    inplace_op,
    rotary_embedding,
    rotary_embedding_ref,
)

# (x, R / 2): 80 and 7 are no powers of two; one head; a quarter of each head; no batch
SHAPES = [((2, 5, 3, 80), 40), ((1, 2, 1, 128), 64), ((2, 9, 2, 64), 8), ((5, 3, 7), 3)]
PAIRINGS = [False, True]


def angles(n_seq, half, device, batch=()):
    """Cosines and sines of random angles."""
    angle = torch.randn(*batch, n_seq, half, device=device)
    return angle.cos(), angle.sin()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "half"), SHAPES, ids=str)
@pytest.mark.parametrize("interleaved", PAIRINGS)
def test_matches_the_definition(shape, half, interleaved, dtype, device):
    """Result and gradient are as accurate as the definition in the same dtype."""
    cos, sin = angles(shape[-3], half, device)

    def reference(x):
        return rotary_embedding_ref(x, cos.to(x.dtype), sin.to(x.dtype), interleaved)

    cos, sin = cos.to(dtype).float(), sin.to(dtype).float()
    x, dy = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
    assert_matches(
        lambda t: rotary_embedding(t, cos, sin, interleaved=interleaved),
        reference,
        reference,
        [x],
        [dy],
    )


@pytest.mark.parametrize("interleaved", PAIRINGS)
def test_positions_of_each_batch(interleaved, device):
    """Angles may differ from batch to batch."""
    cos, sin = angles(5, 8, device, batch=(2,))
    x = torch.randn(2, 5, 3, 16, device=device)
    actual = rotary_embedding(x, cos, sin, interleaved=interleaved)
    torch.testing.assert_close(actual, rotary_embedding_ref(x, cos, sin, interleaved))


@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.transpose(1, 2),
        lambda t: t[:, :, 1:2],
        lambda t: t[..., 8:24],
        lambda t: t[:, :1].expand(-1, 5, -1, -1),
    ],
)
def test_strided_inputs_are_left_alone(view, interleaved, device):
    """Any strides are read where they lie, and x is bitwise what it was."""
    base = torch.randn(2, 5, 3, 32, device=device)
    x, before = view(base), base.clone()
    cos, sin = angles(x.shape[1], x.shape[3] // 2, device)
    actual = rotary_embedding(x, cos, sin, interleaved=interleaved)
    torch.testing.assert_close(actual, rotary_embedding_ref(x, cos, sin, interleaved))
    assert torch.equal(base, before)


@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize(("shape", "half"), SHAPES, ids=str)
def test_in_place(shape, half, interleaved, device):
    """Over a view of x: the same numbers, and nothing beside them changes."""
    base = torch.randn(*shape[:-1], shape[-1] + 1, device=device)
    before = base.clone()
    cos, sin = angles(shape[-3], half, device)
    x = base[..., :-1]
    expected = rotary_embedding(x, cos, sin, interleaved=interleaved)
    result = rotary_embedding(x, cos, sin, interleaved=interleaved, inplace=True)
    assert result.data_ptr() == x.data_ptr()
    torch.testing.assert_close(x, expected, rtol=0, atol=0)
    assert torch.equal(base[..., -1], before[..., -1])


def test_gradient_in_place(device):
    """The gradient of what x was before."""
    leaf = torch.randn(2, 5, 3, 16, device=device, requires_grad=True)
    cos, sin = angles(5, 8, device)
    dy = torch.randn(2, 5, 3, 16, device=device)
    y = rotary_embedding(leaf * 1, cos, sin, inplace=True)
    (actual,) = torch.autograd.grad(y, leaf, dy)
    (expected,) = torch.autograd.grad(rotary_embedding_ref(leaf, cos, sin), leaf, dy)
    torch.testing.assert_close(actual, expected)


def test_stride_0_gradient(device):
    """An expanded scalar is a gradient like any other."""
    x = torch.randn(2, 5, 3, 16, device=device, requires_grad=True)
    cos, sin = angles(5, 8, device)
    (actual,) = torch.autograd.grad(rotary_embedding(x, cos, sin).sum(), x)
    (expected,) = torch.autograd.grad(rotary_embedding_ref(x, cos, sin).sum(), x)
    torch.testing.assert_close(actual, expected)


def test_empty(device):
    """No position: no launch."""
    cos, sin = angles(0, 8, device)
    assert rotary_embedding(torch.empty(2, 0, 3, 16, device=device), cos, sin).shape == (
        2,
        0,
        3,
        16,
    )


def test_registration(device):
    """Schema, fake kernel, dispatch and what is written agree with what runs."""
    x = torch.randn(2, 5, 3, 16, device=device)
    cos, sin = angles(5, 6, device)
    for view in (x, x.transpose(0, 2).contiguous().transpose(0, 2), x[:0]):
        torch.library.opcheck(fwd_op.overload, (view, cos, sin, False, True))
    torch.library.opcheck(inplace_op, (x, cos, sin, True))


def test_compiles_without_recompiling(device):
    """One graph serves every batch size, forward and backward."""
    compiled = torch.compile(rotary_embedding, fullgraph=True, backend="aot_eager", dynamic=True)
    cos, sin = angles(5, 8, device)
    for n_batch in (2, 3, 4):
        x = torch.randn(n_batch, 5, 3, 16, device=device, requires_grad=True)
        dy = torch.randn_like(x)
        with torch.compiler.set_stance("fail_on_recompile" if n_batch > 2 else "default"):
            (actual,) = torch.autograd.grad(compiled(x, cos, sin), x, dy)
        (expected,) = torch.autograd.grad(rotary_embedding(x, cos, sin), x, dy)
        torch.testing.assert_close(actual, expected)


X, T = torch.ones(2, 5, 3, 16), torch.ones(5, 8)


@pytest.mark.parametrize(
    ("x", "cos", "sin", "message"),
    [
        (X.int(), T, T, "x must be float32"),
        (X[0, 0], T, T, r"x must have shape \[B, S, H, D\] or \[S, H, D\], got \[3, 16\]"),
        (X, torch.ones(4, 8), T, r"cos must have shape .* S = 5 and R <= 16, got \[4, 8\]"),
        (X, T, torch.ones(5, 9), r"sin must have shape .*got \[5, 9\]"),
        (X, T, torch.ones(5, 4), r"sin must be like cos, \[5, 8\]"),
        (X, T, T.clone().requires_grad_(), "sin must not ask for a gradient"),
    ],
    ids=["dtype", "rank", "sequence", "width", "unlike", "gradient"],
)
def test_refuses(x, cos, sin, message):
    """A bad argument is named, with what was wanted and what came."""
    with pytest.raises(InputError, match=message):
        rotary_embedding(x, cos, sin)


def test_refuses_a_leaf_in_place():
    """A leaf that asks for a gradient cannot be written over."""
    with pytest.raises(InputError, match="x must be no leaf"):
        rotary_embedding(X.clone().requires_grad_(), T, T, inplace=True)
