"""rms_norm against torch's: values, gradients, layouts, registration, compile, refusals."""

from __future__ import annotations

import pytest
import torch
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops.rms_norm import RMSNorm, rms_norm, rms_norm_ref
from rooftile.ops.rows.norm_ops import OPS
from rooftile.plan.launch import override

# 1: one lane; 63, 111: no vector, or rows that start anywhere; 256: several rows a program;
# 1000: vectors that end early; 1023: heads and tails; 4096: several warps
SHAPES = [(1, 1), (9, 63), (21, 111), (33, 256), (3, 1000), (19, 1023), (5, 4096), (2, 3, 64)]
LOOP = {"kind": "loop", "block_n": 512, "num_warps": 4}


def eager(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """torch's own."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)


def ours(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Over the weight's dimensions."""
    return rms_norm(x, weight.shape, weight, 1e-6)


def reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The definition with the same eps."""
    return rms_norm_ref(x, weight, 1e-6)


def inputs(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """x and weight at unit scale."""
    return [torch.randn(s, device=device).to(dtype) for s in (shape, shape[-1:])]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_torch(shape, dtype, device):
    """Result and both gradients are as accurate as torch's in the same dtype."""
    dy = torch.randn(shape, device=device).to(dtype)
    assert_matches(ours, eager, reference, inputs(shape, dtype, device), [dy])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [1, 512, 1111, 2056])
def test_long_rows_in_chunks(n_cols, dtype, device):
    """Rows too long for a program's registers are read again, with the same result."""
    dy = torch.randn(9, n_cols, device=device).to(dtype)
    with override("norm_fwd", **LOOP), override("norm_bwd", **LOOP):
        assert_matches(ours, eager, reference, inputs((9, n_cols), dtype, device), [dy])


@pytest.mark.parametrize("plan", [{}, LOOP], ids=["tile", "loop"])
def test_strided_rows_and_gradients(plan, device):
    """Heads sliced out of a fused projection, and a stride-0 gradient, need no copy."""
    qkv = torch.randn(2, 5, 3, 4, 72, device=device)
    q = qkv[:, :, 1].requires_grad_()
    weight = torch.randn(72, device=device)
    with override("norm_fwd", **plan), override("norm_bwd", **plan):
        y = rms_norm(q, (72,), weight)
        (dq,) = torch.autograd.grad(y.sum(), q)
    expected = torch.nn.functional.rms_norm(q, (72,), weight, torch.finfo(torch.float32).eps)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(dq, torch.autograd.grad(expected.sum(), q)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8), (2, 2, 3, 8), (2, 1, 2, 3, 8)])
@pytest.mark.parametrize("n_dims", [1, 2])
def test_any_rank(shape, n_dims, device):
    """Ranks 1 to 5, and several dimensions normalized together; dweight has theirs (nrm-04)."""
    n_dims = min(n_dims, len(shape))
    x = torch.randn(shape, device=device, requires_grad=True)
    weight = torch.randn(shape[len(shape) - n_dims :], device=device, requires_grad=True)
    dy = torch.randn(shape, device=device)
    actual = torch.autograd.grad(ours(x, weight), (x, weight), dy)
    expected = torch.autograd.grad(eager(x, weight), (x, weight), dy)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_without_weight(device):
    """No weight, and torch's own default of eps."""
    x = torch.randn(3, 64, device=device)
    torch.testing.assert_close(rms_norm(x, (64,)), torch.nn.functional.rms_norm(x, (64,)))


def test_gemma_offset_is_added_in_float32(device):
    """1 + 15.8125 is 16.8125; added in bfloat16 it would be 16.75 (nrm-05)."""
    x = torch.ones(1, 8, device=device)
    weight = torch.full((8,), 15.8125, device=device, dtype=torch.bfloat16)
    assert rms_norm(x, (8,), weight, 0.0, weight_offset=1.0).eq(16.8125).all()


def test_gemma_gradient(device):
    """The offset is part of the scale in the gradient too."""
    x = torch.randn(3, 8, device=device, requires_grad=True)
    weight = torch.randn(8, device=device)
    (dx,) = torch.autograd.grad(rms_norm(x, (8,), weight, 1e-6, weight_offset=1.0).sum(), x)
    (expected,) = torch.autograd.grad(eager(x, weight + 1).sum(), x)
    torch.testing.assert_close(dx, expected, rtol=1e-4, atol=1e-5)


def test_order_of_the_cast(device):
    """Rounding before the weight is Llama's norm, bit for bit (nrm-05)."""
    x, weight = inputs((64, 512), torch.bfloat16, device)
    x_hat = rms_norm_ref(x.float(), None, 1e-6).bfloat16()
    assert torch.equal(rms_norm(x, (512,), weight, 1e-6, cast_before_weight=True), x_hat * weight)


def test_weight_gradient_accumulates_in_float32(device):
    """4,096 rows of one sum to 4,096; in bfloat16 the sum would stop at 256 (nrm-05)."""
    x = torch.ones(4096, 8, device=device, dtype=torch.bfloat16)
    weight = torch.ones(8, device=device, dtype=torch.bfloat16, requires_grad=True)
    (dweight,) = torch.autograd.grad(rms_norm(x, (8,), weight, 0.0).sum(), weight)
    assert dweight.eq(4096).all()


def test_weight_of_another_dtype(device):
    """bfloat16 activations with a float32 weight: each gradient in its own dtype."""
    x = torch.randn(5, 64, device=device).bfloat16().requires_grad_()
    weight = torch.randn(64, device=device, requires_grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = rms_norm(x, (64,), weight)
    assert y.dtype == torch.bfloat16
    dx, dweight = torch.autograd.grad(y.sum(), (x, weight))
    assert (dx.dtype, dweight.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize(("x_grad", "w_grad"), [(True, False), (False, True)])
def test_frozen_parts(x_grad, w_grad, device):
    """Only the gradients asked for are computed, and they are the same (nrm-07)."""
    x = torch.randn(5, 64, device=device, requires_grad=x_grad)
    weight = torch.randn(64, device=device, requires_grad=w_grad)
    ours(x, weight).sum().backward()
    grads = (x.grad, weight.grad)
    x.grad = weight.grad = None
    eager(x, weight).sum().backward()
    for actual, expected in zip(grads, (x.grad, weight.grad), strict=True):
        assert (actual is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_gradient_buffer_is_left_alone(device):
    """The caller's gradient is not overwritten."""
    x, weight = inputs((4, 64), torch.float32, device)
    dy = torch.randn(4, 64, device=device)
    before = dy.clone()
    ours(x.requires_grad_(), weight).backward(dy)
    assert torch.equal(dy, before)


@pytest.mark.parametrize("shape", [(0, 8), (4, 0)])
def test_empty(shape, device):
    """No element: no launch, empty results, a zero gradient of the weight."""
    x = torch.empty(shape, device=device, requires_grad=True)
    weight = torch.ones(shape[1], device=device, requires_grad=True)
    y = rms_norm(x, (shape[1],), weight)
    dx, dweight = torch.autograd.grad(y.sum(), (x, weight))
    assert (y.shape, dx.shape) == (shape, shape)
    assert dweight.eq(0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_registration(dtype, device):
    """Schema, fake kernel and dispatch agree with what runs, for any layout."""
    x, weight = inputs((3, 4, 63), dtype, device)
    args = (None, weight, None, 1, 1e-6, 0.0, False)
    for view in (x, x.transpose(0, 1), x[:, :1].expand(-1, 4, -1), x[:0]):
        _, _, _, rstd = OPS["rms_norm"].fwd(view, *args)
        torch.library.opcheck(OPS["rms_norm"].infer.overload, (view, *args))
        torch.library.opcheck(OPS["rms_norm"].fwd.overload, (view, *args))
        backward = (view, None, view, weight, None, rstd, 1, 0.0, True, None)
        torch.library.opcheck(OPS["rms_norm"].bwd.overload, backward)


def test_compiles_without_recompiling(device):
    """One graph serves every batch size, forward and backward."""
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for n_rows in (3, 5, 8):
        x = torch.randn(n_rows, 64, device=device, requires_grad=True)
        weight = torch.randn(64, device=device, requires_grad=True)
        with torch.compiler.set_stance("fail_on_recompile" if n_rows > 3 else "default"):
            actual = torch.autograd.grad(compiled(x, weight).sum(), (x, weight))
        expected = torch.autograd.grad(ours(x, weight).sum(), (x, weight))
        torch.testing.assert_close(actual, expected)


def test_deterministic(device):
    """The same call gives the same bits, gradients too."""
    x, weight = (t.requires_grad_() for t in inputs((37, 96), torch.bfloat16, device))
    first = torch.autograd.grad(ours(x, weight).sum(), (x, weight))
    second = torch.autograd.grad(ours(x, weight).sum(), (x, weight))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_module(device):
    """The module is torch's with our kernel inside."""
    module = RMSNorm(64, eps=1e-6, device=device)
    x = torch.randn(3, 64, device=device)
    torch.testing.assert_close(module(x), torch.nn.RMSNorm(64, eps=1e-6, device=device)(x))


@pytest.mark.parametrize(
    ("x", "shape", "weight", "message"),
    [
        (torch.ones(2, 4, dtype=torch.int32), (4,), None, "input must be float32"),
        (torch.ones(2, 4), (5,), None, r"last dimensions of input, of shape \[2, 4\], got \[5\]"),
        (torch.ones(2, 4), (4,), torch.ones(5), r"weight must have shape \[4\], got \[5\]"),
        (torch.ones(2, 4), (4,), torch.ones(4, device="meta"), "weight must be on cpu like input"),
        (torch.ones(2, 4), (), None, "normalized_shape must be"),
    ],
    ids=["dtype", "shape", "weight shape", "device", "no dimension"],
)
def test_refuses(x, shape, weight, message):
    """A bad argument is named, with what was wanted and what came."""
    with pytest.raises(InputError, match=message):
        rms_norm(x, shape, weight)
