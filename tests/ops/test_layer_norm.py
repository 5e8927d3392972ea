"""layer_norm against torch's: values, gradients, layouts, registration, compile, refusals."""

from __future__ import annotations

import pytest
import torch
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops.layer_norm import LayerNorm, layer_norm, layer_norm_ref
from rooftile.ops.rows.norm_ops import OPS
from rooftile.plan.launch import override

# 1: one lane; 63, 111: no vector, or rows that start anywhere; 256: several rows a program;
# 1000: vectors that end early; 1023: heads and tails; 4096: several warps
SHAPES = [(1, 1), (9, 63), (21, 111), (33, 256), (3, 1000), (19, 1023), (5, 4096), (2, 3, 64)]
LOOP = {"kind": "loop", "block_n": 512, "num_warps": 4}


def eager(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """torch's own."""
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


def ours(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Over the weight's dimensions."""
    return layer_norm(x, weight.shape, weight, bias)


def inputs(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """x, weight and bias at unit scale."""
    sizes = (shape, shape[-1:], shape[-1:])
    return [torch.randn(s, device=device).to(dtype) for s in sizes]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_torch(shape, dtype, device):
    """Result and all gradients are as accurate as torch's in the same dtype."""
    dy = torch.randn(shape, device=device).to(dtype)
    assert_matches(ours, eager, layer_norm_ref, inputs(shape, dtype, device), [dy])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [1, 512, 1111, 2056])
def test_long_rows_in_chunks(n_cols, dtype, device):
    """Rows too long for a program's registers are read again, with the same result."""
    dy = torch.randn(9, n_cols, device=device).to(dtype)
    with override("layer_norm_fwd", **LOOP), override("norm_bwd", **LOOP):
        assert_matches(ours, eager, layer_norm_ref, inputs((9, n_cols), dtype, device), [dy])


@pytest.mark.parametrize("plan", [{}, LOOP], ids=["tile", "loop"])
def test_strided_rows_and_gradients(plan, device):
    """Heads sliced out of a fused projection, and a stride-0 gradient, need no copy."""
    qkv = torch.randn(2, 5, 3, 4, 72, device=device)
    q = qkv[:, :, 1].requires_grad_()
    weight = torch.randn(72, device=device)
    with override("layer_norm_fwd", **plan), override("norm_bwd", **plan):
        y = layer_norm(q, (72,), weight)
        (dq,) = torch.autograd.grad(y.square().sum(-1).sum(), q)
    expected = torch.nn.functional.layer_norm(q, (72,), weight)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(
        dq, torch.autograd.grad(expected.square().sum(), q)[0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8), (2, 2, 3, 8), (2, 1, 2, 3, 8)])
@pytest.mark.parametrize("n_dims", [1, 2])
def test_any_rank(shape, n_dims, device):
    """Ranks 1 to 5, and several dimensions normalized together; dweight has theirs (nrm-04)."""
    n_dims = min(n_dims, len(shape))
    x = torch.randn(shape, device=device, requires_grad=True)
    trailing = shape[len(shape) - n_dims :]
    leaves = [x, *(torch.randn(trailing, device=device, requires_grad=True) for _ in range(2))]
    dy = torch.randn(shape, device=device)
    actual = torch.autograd.grad(ours(*leaves), leaves, dy)
    expected = torch.autograd.grad(eager(*leaves), leaves, dy)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_without_weight(device):
    """Neither weight nor bias."""
    x = torch.randn(3, 64, device=device)
    torch.testing.assert_close(layer_norm(x, (64,)), torch.nn.functional.layer_norm(x, (64,)))


def test_width_that_is_no_power_of_two(device):
    """Padding is not part of the variance: 2/3, not 41 (nrm-01)."""
    x = torch.tensor([[10.0, 11.0, 12.0]], device=device)
    expected = torch.tensor([[-1.224735, 0.0, 1.224735]], device=device)
    torch.testing.assert_close(layer_norm(x, (3,)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("plan", [{}, LOOP], ids=["tile", "loop"])
def test_small_variance_at_a_large_mean(plan, device):
    """The variance is taken around the mean: no difference of squares (nrm-02)."""
    x = torch.full((1, 10240), 256.0, device=device)
    x[0, 17] = 255.0
    ramp = (1000 + torch.arange(16, device=device) * 1e-3).view(1, 16)
    with override("layer_norm_fwd", **plan):
        y, slope = layer_norm(x, (10240,)), layer_norm(ramp, (16,))
    # float32 knows a mean of 256 to 2^-16, which is 96 * 2^-16 = 0.0015 of the result
    torch.testing.assert_close(y[0, 0].item(), 0.00941, rtol=0, atol=0.0015)
    torch.testing.assert_close(y[0, 17].item(), -96.37, rtol=1e-3, atol=0)
    assert abs(slope[0, 0].item() + 1.3415) < 2e-2


def test_bias_gradient_accumulates_in_float32(device):
    """4,096 rows of one sum to 4,096; in bfloat16 the sum would stop at 256."""
    x = torch.ones(4096, 8, device=device, dtype=torch.bfloat16)
    bias = torch.ones(8, device=device, dtype=torch.bfloat16, requires_grad=True)
    (dbias,) = torch.autograd.grad(layer_norm(x, (8,), None, bias).sum(), bias)
    assert dbias.eq(4096).all()


def test_weight_of_another_dtype(device):
    """bfloat16 activations with a float32 weight: each gradient in its own dtype."""
    x = torch.randn(5, 64, device=device).bfloat16().requires_grad_()
    weight = torch.randn(64, device=device, requires_grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = layer_norm(x, (64,), weight)
    assert y.dtype == torch.bfloat16
    dx, dweight = torch.autograd.grad(y.sum(), (x, weight))
    assert (dx.dtype, dweight.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1)])
def test_frozen_parts(wanted, device):
    """Only the gradients asked for are computed, and they are the same (nrm-07)."""
    leaves = inputs((5, 64), torch.float32, device)
    for t, w in zip(leaves, wanted, strict=True):
        t.requires_grad_(bool(w))
    ours(*leaves).square().sum().backward()
    grads = [t.grad for t in leaves]
    for t in leaves:
        t.grad = None
    eager(*leaves).square().sum().backward()
    for actual, t in zip(grads, leaves, strict=True):
        assert (actual is None) == (t.grad is None)
        if t.grad is not None:
            torch.testing.assert_close(actual, t.grad, rtol=1e-4, atol=1e-4)


def test_gradient_buffer_is_left_alone(device):
    """The caller's gradient is not overwritten."""
    x, weight, bias = inputs((4, 64), torch.float32, device)
    dy = torch.randn(4, 64, device=device)
    before = dy.clone()
    ours(x.requires_grad_(), weight, bias).backward(dy)
    assert torch.equal(dy, before)


@pytest.mark.parametrize("shape", [(0, 8), (4, 0)])
def test_empty(shape, device):
    """No element: no launch, empty results, a zero gradient of the weight."""
    x = torch.empty(shape, device=device, requires_grad=True)
    weight = torch.ones(shape[1], device=device, requires_grad=True)
    y = layer_norm(x, (shape[1],), weight)
    dx, dweight = torch.autograd.grad(y.sum(), (x, weight))
    assert (y.shape, dx.shape) == (shape, shape)
    assert dweight.eq(0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_registration(dtype, device):
    """Schema, fake kernel and dispatch agree with what runs, for any layout."""
    x, weight, bias = inputs((3, 4, 63), dtype, device)
    args = (None, weight, bias, 1, 1e-6, 0.0, False)
    for view in (x, x.transpose(0, 1), x[:, :1].expand(-1, 4, -1), x[:0]):
        _, _, mean, rstd = OPS["layer_norm"].fwd(view, *args)
        torch.library.opcheck(OPS["layer_norm"].infer.overload, (view, *args))
        torch.library.opcheck(OPS["layer_norm"].fwd.overload, (view, *args))
        backward = (view, None, view, weight, mean, rstd, 1, 0.0, True, bias)
        torch.library.opcheck(OPS["layer_norm"].bwd.overload, backward)


def test_compiles_without_recompiling(device):
    """One graph serves every batch size, forward and backward."""
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for n_rows in (3, 5, 8):
        x = torch.randn(n_rows, 64, device=device, requires_grad=True)
        leaves = [x, *(torch.randn(64, device=device, requires_grad=True) for _ in range(2))]
        with torch.compiler.set_stance("fail_on_recompile" if n_rows > 3 else "default"):
            actual = torch.autograd.grad(compiled(*leaves).square().sum(), leaves)
        expected = torch.autograd.grad(ours(*leaves).square().sum(), leaves)
        torch.testing.assert_close(actual, expected)


def test_deterministic(device):
    """The same call gives the same bits, gradients too."""
    leaves = [t.requires_grad_() for t in inputs((37, 96), torch.bfloat16, device)]
    first = torch.autograd.grad(ours(*leaves).sum(), leaves)
    second = torch.autograd.grad(ours(*leaves).sum(), leaves)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_module(device):
    """The module is torch's with our kernel inside."""
    module = LayerNorm(64, eps=1e-5, device=device)
    x = torch.randn(3, 64, device=device)
    torch.testing.assert_close(module(x), torch.nn.LayerNorm(64, eps=1e-5, device=device)(x))


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
        layer_norm(x, shape, weight)
