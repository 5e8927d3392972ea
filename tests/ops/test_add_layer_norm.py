"""add_layer_norm against the sum and torch's norm: both results, every gradient."""

from __future__ import annotations

import pytest
import torch
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops.add_layer_norm import AddLayerNorm, add_layer_norm, add_layer_norm_ref
from rooftile.ops.rows.norm_ops import OPS
from rooftile.plan.launch import override

# 1: one lane; 111: rows that start anywhere; 256: several rows a program; 4096: several warps
SHAPES = [(1, 1), (21, 111), (33, 256), (2, 3, 1000), (5, 4096)]
LOOP = {"kind": "loop", "block_n": 512, "num_warps": 4}


def ours(x, residual, weight, bias):
    """Over the last dimension."""
    return add_layer_norm(x, residual, weight.shape, weight, bias)


def eager(x, residual, weight, bias):
    """torch's own two ops."""
    h = x + residual
    return torch.nn.functional.layer_norm(h, weight.shape, weight, bias), h


def draw(shape, dtype, device):
    """x, residual, weight and bias, and the gradients of both results."""
    sizes = (shape, shape, shape[-1:], shape[-1:], shape, shape)
    tensors = [torch.randn(s, device=device).to(dtype) for s in sizes]
    return tensors[:4], tensors[4:]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_torch(shape, dtype, device):
    """Norm, sum and all gradients are as accurate as torch's in the same dtype."""
    inputs, gradients = draw(shape, dtype, device)
    assert_matches(ours, eager, add_layer_norm_ref, inputs, gradients)


@pytest.mark.parametrize("n_cols", [1, 1111, 2056])
def test_long_rows_in_chunks(n_cols, device):
    """Rows too long for a program's registers are read again, with the same results."""
    inputs, gradients = draw((9, n_cols), torch.bfloat16, device)
    with override("add_norm_fwd", **LOOP), override("add_norm_bwd", **LOOP):
        assert_matches(ours, eager, add_layer_norm_ref, inputs, gradients)


@pytest.mark.parametrize("used", [0, 1])
def test_one_result_used(used, device):
    """Where only the norm or only the sum goes on, the other's gradient is zero."""
    inputs, gradients = draw((5, 64), torch.float32, device)
    leaves = [t.requires_grad_() for t in inputs]
    actual = torch.autograd.grad(ours(*leaves)[used], leaves[:2], gradients[0])
    expected = torch.autograd.grad(eager(*leaves)[used], leaves[:2], gradients[0])
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_float32_residual(device):
    """A bfloat16 branch on a float32 stream: the sum is float32, each gradient in its dtype."""
    x = torch.randn(5, 64, device=device).bfloat16().requires_grad_()
    residual = torch.randn(5, 64, device=device, requires_grad=True)
    y, h = add_layer_norm(x, residual, (64,))
    assert (y.dtype, h.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(h, x + residual)
    dx, dresidual = torch.autograd.grad(y.float().square().sum() + h.sum(), (x, residual))
    assert (dx.dtype, dresidual.dtype) == (torch.bfloat16, torch.float32)
    expected_y, expected_h = add_layer_norm_ref(x, residual)
    (expected,) = torch.autograd.grad(
        expected_y.float().square().sum() + expected_h.sum(), residual
    )
    torch.testing.assert_close(dresidual, expected, rtol=1e-2, atol=1e-2)


def test_strided_inputs(device):
    """Strided rows and a stride-0 gradient need no copy."""
    x, residual = torch.randn(2, 6, 3, 40, device=device).unbind(0)
    x, residual = x[::2].requires_grad_(), residual[1::2].requires_grad_()
    y, h = add_layer_norm(x, residual, (40,))
    torch.testing.assert_close(h, x + residual)
    (dx,) = torch.autograd.grad(y.sum() + h.sum(), x)
    expected_y, expected_h = add_layer_norm_ref(x, residual)
    (expected,) = torch.autograd.grad(expected_y.sum() + expected_h.sum(), x)
    torch.testing.assert_close(dx, expected, rtol=1e-4, atol=1e-5)


def test_empty(device):
    """No row: no launch, two empty results."""
    x = torch.empty(0, 8, device=device)
    y, h = add_layer_norm(x, x, (8,))
    assert (y.shape, h.shape) == ((0, 8), (0, 8))


def test_registration(device):
    """Schema, fake kernel and dispatch agree with what runs."""
    (x, residual, weight, bias), (dy, dh) = draw((3, 63), torch.float32, device)
    args = (x, residual, weight, bias, 1, 1e-6, 0.0, False)
    _, h, mean, rstd = OPS["add_layer_norm"].fwd(*args)
    torch.library.opcheck(OPS["add_layer_norm"].infer.overload, args)
    torch.library.opcheck(OPS["add_layer_norm"].fwd.overload, args)
    backward = (dy, dh, h, weight, mean, rstd, 1, 0.0, True, bias)
    torch.library.opcheck(OPS["add_layer_norm"].bwd.overload, backward)


def test_compiles_without_recompiling(device):
    """One graph serves every batch size, forward and backward."""
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for n_rows in (3, 5, 8):
        inputs, gradients = draw((n_rows, 64), torch.float32, device)
        leaves = [t.requires_grad_() for t in inputs]
        with torch.compiler.set_stance("fail_on_recompile" if n_rows > 3 else "default"):
            actual = torch.autograd.grad(compiled(*leaves), leaves, gradients)
        expected = torch.autograd.grad(ours(*leaves), leaves, gradients)
        torch.testing.assert_close(actual, expected)


def test_module(device):
    """The module gives the norm and the sum."""
    x, residual = torch.randn(2, 3, 64, device=device)
    y, h = AddLayerNorm(64, device=device)(x, residual)
    torch.testing.assert_close((y, h), add_layer_norm_ref(x, residual))


def test_refuses():
    """A residual of another shape or dtype is named."""
    with pytest.raises(InputError, match=r"residual must have shape \[2, 4\], got \[4\]"):
        add_layer_norm(torch.ones(2, 4), torch.ones(4), (4,))
    with pytest.raises(InputError, match="residual must be float32, float16 or bfloat16"):
        add_layer_norm(torch.ones(2, 4), torch.ones(2, 4).int(), (4,))
