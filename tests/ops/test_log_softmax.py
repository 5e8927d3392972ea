"""log_softmax against torch's: values, gradients, long rows, module, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops.log_softmax import LogSoftmax, log_softmax, log_softmax_ref
from rooftile.ops.rows.softmax import bwd_op, fwd_op
from rooftile.plan.launch import override

LOOP = {"kind": "loop", "block_n": 512, "num_warps": 4}


def ours(x: torch.Tensor) -> torch.Tensor:
    """Along the last dimension."""
    return log_softmax(x, -1)


def eager(x: torch.Tensor) -> torch.Tensor:
    """torch's own."""
    return torch.log_softmax(x, -1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (9, 111), (33, 256), (9, 1023), (2, 4096)], ids=str)
def test_matches_torch(shape, dtype, device):
    """Result and gradient are as accurate as torch's in the same dtype."""
    x = torch.randn(shape, device=device).mul(3).to(dtype)
    assert_matches(ours, eager, log_softmax_ref, [x], [torch.randn(shape, device=device).to(dtype)])


@pytest.mark.parametrize("n_cols", [512, 1111, 2056])
def test_long_rows_in_chunks(n_cols, device):
    """Rows too long for a program's registers are read twice, with the same result."""
    x = torch.randn(9, n_cols, device=device).bfloat16()
    with override("softmax_fwd", **LOOP), override("softmax_bwd", **LOOP):
        assert_matches(ours, eager, log_softmax_ref, [x], [torch.randn_like(x)])


def test_any_dimension(device):
    """A dimension in the middle, and its gradient."""
    x = torch.randn(3, 5, 4, device=device)
    assert_matches(
        lambda t: log_softmax(t, 1), lambda t: torch.log_softmax(t, 1),
        lambda t: log_softmax_ref(t, 1), [x], [torch.randn_like(x)],
    )  # fmt: skip


def test_large_logits(device):
    """Logits of 10,000 keep their differences; a masked one is -inf."""
    x = torch.tensor([[10000.0, 10001.0, -math.inf]], device=device)
    expected = torch.tensor([[-1.3132617, -0.3132617, -math.inf]], device=device)
    torch.testing.assert_close(ours(x), expected)


def test_empty(device):
    """No row: no launch, an empty result and gradient."""
    x = torch.empty(0, 8, device=device, requires_grad=True)
    assert torch.autograd.grad(ours(x).sum(), x)[0].shape == (0, 8)


def test_registration(device):
    """Schema, fake kernel and dispatch agree with what runs."""
    x = torch.randn(3, 63, device=device)
    torch.library.opcheck(fwd_op.overload, (x, 1, True, None))
    torch.library.opcheck(bwd_op.overload, (x, x, 1, True, None))


def test_compiles_fullgraph(device):
    """No graph break, forward and backward."""
    x = torch.randn(3, 64, device=device, requires_grad=True)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    (actual,) = torch.autograd.grad(compiled(x)[:, 0].sum(), x)
    torch.testing.assert_close(actual, torch.autograd.grad(eager(x)[:, 0].sum(), x)[0])


def test_module(device):
    """The module is torch's with our kernel inside, and refuses to guess its dimension."""
    x = torch.randn(3, 64, device=device)
    assert torch.equal(LogSoftmax(dim=-1)(x), ours(x))
    with pytest.raises(InputError, match="dim must be an integer, got None"):
        LogSoftmax()(x)


def test_refuses():
    """A bad dimension is named."""
    with pytest.raises(InputError, match=r"dim must be in \[-2, 1\] for 2 dimensions, got -3"):
        log_softmax(torch.ones(2, 3), -3)
