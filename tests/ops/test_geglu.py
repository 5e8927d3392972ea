"""geglu against its definition, with both forms of GELU."""

from __future__ import annotations

import pytest
import torch
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops.flat.glu import bwd_op, fwd_op
from rooftile.ops.geglu import geglu, geglu_ref

FORMS = ["none", "tanh"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1,), (7, 9), (5, 63), (3, 4096)], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_matches_torch(shape, form, dtype, device):
    """Result and both gradients are as accurate as torch's in the same dtype."""
    gate, up, dy = (torch.randn(shape, device=device).to(dtype) for _ in range(3))
    assert_matches(
        lambda a, b: geglu(a, b, form),
        lambda a, b: torch.nn.functional.gelu(a, approximate=form) * b,
        lambda a, b: geglu_ref(a, b, form),
        [3 * gate, up],
        [dy],
    )


def test_polynomial_of_16_bit_dtypes(device):
    """For bfloat16 the error function is a polynomial: right to the last bit but one, anywhere."""
    gate = torch.linspace(-8, 8, 4097, device=device).bfloat16()
    actual = geglu(gate, torch.ones_like(gate)).double()
    expected = geglu_ref(gate.double(), torch.ones_like(gate).double())
    error = (actual - expected).abs()
    assert (error <= 2**-8 * expected.abs() + 1e-6).all()


@pytest.mark.parametrize("form", FORMS)
def test_halves_of_a_projection(form, device):
    """Halves of one tensor are read where they lie."""
    gate, up = torch.randn(5, 144, device=device).chunk(2, -1)
    expected = geglu(gate.contiguous(), up.contiguous(), form)
    torch.testing.assert_close(geglu(gate, up, form), expected)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_registration(activation, device):
    """Schema, fake kernel and dispatch agree with what runs."""
    gate, up, dy = torch.randn(3, 5, 7, device=device)
    torch.library.opcheck(fwd_op.overload, (gate, up, activation))
    torch.library.opcheck(bwd_op.overload, (dy, gate, up, activation))


def test_compiles_fullgraph(device):
    """No graph break, forward and backward."""
    gate, up = (torch.randn(5, 16, device=device, requires_grad=True) for _ in range(2))
    compiled = torch.compile(geglu, fullgraph=True, backend="aot_eager")
    actual = torch.autograd.grad(compiled(gate, up).sum(), (gate, up))
    torch.testing.assert_close(actual, torch.autograd.grad(geglu(gate, up).sum(), (gate, up)))


def test_refuses():
    """An unknown form of GELU is named."""
    with pytest.raises(InputError, match="approximate must be none or tanh, got 'fast'"):
        geglu(torch.ones(2), torch.ones(2), "fast")
