"""swiglu against its definition: values, gradients, layouts, registration, compile, refusals."""

from __future__ import annotations

import pytest
import torch
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops.flat.glu import bwd_op, fwd_op
from rooftile.ops.swiglu import swiglu, swiglu_ref

# 7 x 9: an odd number of elements; 63: odd rows; 3 x 4096: several chunks
SHAPES = [(1,), (7, 9), (5, 63), (2, 3, 64), (3, 4096)]


def eager(gate, up):
    """torch's own two ops."""
    return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_torch(shape, dtype, device):
    """Result and both gradients are as accurate as torch's in the same dtype."""
    gate, up, dy = (torch.randn(shape, device=device).to(dtype) for _ in range(3))
    assert_matches(swiglu, eager, swiglu_ref, [3 * gate, up], [dy])


@pytest.mark.parametrize("width", [63, 64, 72])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_halves_of_a_projection(width, dtype, device):
    """Halves of one tensor are read where they lie, and left as they are."""
    fused = torch.randn(5, 2 * width, device=device).to(dtype)
    before = fused.clone()
    gate, up = fused.chunk(2, -1)
    torch.testing.assert_close(swiglu(gate, up), swiglu(gate.contiguous(), up.contiguous()))
    assert torch.equal(fused, before)


def test_gradient_of_any_strides(device):
    """Stride-0 and transposed gradients."""
    gate, up = (torch.randn(6, 10, device=device, requires_grad=True) for _ in range(2))
    y = swiglu(gate, up)
    for dy in (torch.ones((), device=device).expand(6, 10), torch.randn(10, 6).to(device).t()):
        actual = torch.autograd.grad(y, (gate, up), dy, retain_graph=True)
        torch.testing.assert_close(actual, torch.autograd.grad(eager(gate, up), (gate, up), dy))


def test_large_gates(device):
    """Gates of 100 either way neither overflow nor give NaN."""
    gate = torch.tensor([-100.0, 100.0], device=device, requires_grad=True)
    y = swiglu(gate, torch.ones_like(gate))
    assert y.tolist() == [0, 100]
    assert torch.autograd.grad(y.sum(), gate)[0].tolist() == [0, 1]


def test_empty(device):
    """No element: no launch, empty result and gradients."""
    gate = torch.empty(0, 8, device=device, requires_grad=True)
    y = swiglu(gate, gate)
    assert torch.autograd.grad(y.sum(), gate)[0].shape == (0, 8)


def test_frozen_half(device):
    """Only the gradient asked for is given."""
    gate, up = torch.randn(2, 6, 10, device=device)
    swiglu(gate.requires_grad_(), up).sum().backward()
    assert gate.grad is not None
    assert up.grad is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_registration(dtype, device):
    """Schema, fake kernel and dispatch agree with what runs, for any layout."""
    x = torch.randn(5, 3, 14, device=device).to(dtype)
    gate, up = x.chunk(2, -1)
    for a, b in ((gate, up), (x, x.transpose(0, 1).contiguous().transpose(0, 1)), (x[:0], x[:0])):
        torch.library.opcheck(fwd_op.overload, (a, b, "silu"))
        torch.library.opcheck(bwd_op.overload, (a, a, b, "silu"))


def test_compiles_without_recompiling(device):
    """One graph serves every batch size, forward and backward."""
    compiled = torch.compile(swiglu, fullgraph=True, backend="aot_eager", dynamic=True)
    for n_rows in (3, 5, 8):
        gate, up = (torch.randn(n_rows, 16, device=device, requires_grad=True) for _ in range(2))
        with torch.compiler.set_stance("fail_on_recompile" if n_rows > 3 else "default"):
            actual = torch.autograd.grad(compiled(gate, up).sum(), (gate, up))
        torch.testing.assert_close(actual, torch.autograd.grad(swiglu(gate, up).sum(), (gate, up)))


def test_autocast_keeps_the_dtype(device):
    """Under autocast the result has the inputs' dtype and value."""
    gate, up = torch.randn(2, 6, 10, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert torch.equal(swiglu(gate, up), swiglu(gate, up))


@pytest.mark.parametrize(
    ("gate", "up", "message"),
    [
        (torch.ones(2).int(), torch.ones(2).int(), "gate must be float32"),
        (torch.ones(2), torch.ones(3), r"up must have shape \[2\], got \[3\]"),
        (torch.ones(2), torch.ones(2).half(), "up must be torch.float32 like gate"),
        (torch.ones(2), torch.ones(2, device="meta"), "up must be on cpu like gate, got meta"),
    ],
    ids=["dtype", "shape", "mixed", "device"],
)
def test_refuses(gate, up, message):
    """A bad argument is named, with what was wanted and what came."""
    with pytest.raises(InputError, match=message):
        swiglu(gate, up)
