"""softmax against torch's: values, gradients, layouts, registration, compile, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from ops.close import DTYPES, assert_as_accurate, assert_matches

from rooftile.errors import InputError
from rooftile.ops.rows.softmax import bwd_op, fwd_op
from rooftile.ops.softmax import Softmax, softmax, softmax_ref
from rooftile.plan.launch import override, row_launch

# 1: one lane; 63, 111: no vector, or rows that start anywhere; 256: several rows a program;
# 1000: vectors that end early; 1023: heads and tails; 4096: several warps; 5000: half-empty tile
SHAPES = [(1, 1), (9, 63), (5, 111), (33, 256), (3, 1000), (9, 1023), (2, 4096), (2, 5000)]
LOOP = {"kind": "loop", "block_n": 512, "num_warps": 4}


def eager(x: torch.Tensor) -> torch.Tensor:
    """torch's own."""
    return torch.softmax(x, -1)


def ours(x: torch.Tensor) -> torch.Tensor:
    """Along the last dimension."""
    return softmax(x, -1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_torch(shape, dtype, device):
    """Result and gradient are as accurate as torch's in the same dtype."""
    x = torch.randn(shape, device=device).mul(3).to(dtype)
    dy = torch.randn(shape, device=device).to(dtype)
    assert_matches(ours, eager, softmax_ref, [x], [dy])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [1, 512, 1111, 2048, 2056])
def test_long_rows_in_chunks(n_cols, dtype, device):
    """Rows too long for a program's registers are read twice, with the same result."""
    x = torch.randn(9, n_cols, device=device).mul(3).to(dtype)
    dy = torch.randn(9, n_cols, device=device).to(dtype)
    with override("softmax_fwd", **LOOP), override("softmax_bwd", **LOOP):
        assert_matches(ours, eager, softmax_ref, [x], [dy])


def test_longest_rows(device):
    """131,073 columns: past every tile, and no multiple of anything."""
    assert row_launch("softmax_fwd", 131073, 2).kind == "loop"
    x = torch.randn(2, 131073, device=device).bfloat16()
    assert_matches(ours, eager, softmax_ref, [x], [torch.randn_like(x)])


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_any_dimension(dim, device):
    """The dimension that sums to 1 may lie anywhere."""
    x = torch.randn(3, 5, 4, device=device)
    dy = torch.randn(3, 5, 4, device=device)
    assert_matches(
        lambda t: softmax(t, dim),
        lambda t: torch.softmax(t, dim),
        lambda t: softmax_ref(t, dim),
        [x],
        [dy],
    )


def test_transposed_rows(device):
    """The row of a transposed view is a column of its storage (sm-03)."""
    x = torch.arange(1.0, 13.0, device=device).view(3, 4).t()
    expected = torch.tensor([0.00032932, 0.01798029, 0.98169039], device=device)
    torch.testing.assert_close(softmax(x, 1)[0], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[:, :, 1],  # two strides lead to a row
        lambda t: t[:, :, :, 3:],  # rows start at no multiple of 16 bytes
        lambda t: t.transpose(0, 1),
        lambda t: t[::2, ::2, ::2],  # three strides
        lambda t: t[:, :1].expand(-1, 4, -1, -1),
    ],
)
def test_strided_rows(view, device):
    """Any strides give what the contiguous copy gives."""
    x = view(torch.randn(5, 4, 6, 72, device=device))
    torch.testing.assert_close(softmax(x, -1), softmax(x.contiguous(), -1), rtol=0, atol=1e-7)


@pytest.mark.parametrize("n_cols", [64, 111])
def test_gradient_of_any_strides(n_cols, device):
    """An expanded scalar and a transposed tensor are gradients like any other."""
    x = torch.randn(6, n_cols, device=device, requires_grad=True)
    y = softmax(x, -1)
    for dy in (torch.ones((), device=device).expand(6, n_cols), torch.randn(n_cols, 6).t()):
        dy = dy.to(device)
        (actual,) = torch.autograd.grad(y, x, dy, retain_graph=True)
        expected = y.detach() * (dy - (dy * y.detach()).sum(-1, keepdim=True))
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("plan", [{}, LOOP], ids=["tile", "loop"])
def test_infinities(plan, device):
    """A block of -inf before the first number leaves no NaN; a row of -inf is NaN (sm-02)."""
    x = torch.zeros(3, 2048, device=device)
    x[0, :1024] = -math.inf
    x[1] = -math.inf
    x[2, 5] = math.nan
    with override("softmax_fwd", **plan):
        y = softmax(x, -1)
    assert y[0, :1024].eq(0).all()
    assert y[0, 1024:].eq(1 / 1024).all()
    assert y[1:].isnan().all()


@pytest.mark.parametrize("shape", [(0, 128), (4, 0), (0,)])
def test_empty(shape, device):
    """No row or no column: no launch, and empty results of the right shape (sm-05)."""
    x = torch.empty(shape, device=device, requires_grad=True)
    y = softmax(x, -1)
    assert y.shape == shape
    assert torch.autograd.grad(y.sum(), x)[0].shape == shape


def test_single_column_and_scalar(device):
    """One element has probability 1 and gradient 0 (sm-05)."""
    x = torch.randn(4, 1, device=device, requires_grad=True)
    y = softmax(x, -1)
    assert y.eq(1).all()
    assert torch.autograd.grad(y.sum(), x)[0].eq(0).all()
    assert softmax(torch.tensor(3.0, device=device), 0).item() == 1


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", DTYPES, ids=str)
def test_result_of_another_dtype(source, target, device):
    """``dtype`` is that of the result; the gradient comes in the input's."""
    x = torch.randn(3, 72, device=device).to(source).requires_grad_()
    y = softmax(x, -1, dtype=target)
    assert y.dtype == target
    dy = torch.randn(3, 72, device=device).to(target)
    (dx,) = torch.autograd.grad(y, x, dy)
    assert dx.dtype == source
    truth = softmax_ref(x.detach().double())
    assert_as_accurate("y", y.detach(), truth.to(target), truth)


def test_row_offset_beyond_int32(device):
    """A row that starts past 2^31 elements is found; int32 would wrap (sm-06)."""
    stride = 2**31 + 8
    storage = torch.UntypedStorage(2 * stride * 2, device="meta" if device == "cpu" else device)
    if storage.device.type == "meta":
        pytest.skip("4 GiB and more: on a GPU alone; the address arithmetic has its own test")
    x = torch.empty(0, dtype=torch.bfloat16, device=device).set_(storage, 0, (2, 8), (stride, 1))
    x.copy_(torch.randn(2, 8))
    torch.testing.assert_close(softmax(x, -1), softmax(x.contiguous(), -1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_registration(dtype, device):
    """Schema, fake kernel and dispatch agree with what runs, for any layout."""
    x = torch.randn(3, 4, 63, device=device).to(dtype)
    for view in (x, x.transpose(0, 1), x[:, :1].expand(-1, 4, -1), x[:0]):
        torch.library.opcheck(fwd_op.overload, (view, 2, False, None))
        torch.library.opcheck(bwd_op.overload, (view, torch.softmax(view, 2), 2, True, None))


def test_compiles_without_recompiling(device):
    """One graph serves every batch size, forward and backward."""
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for n_rows in (3, 5, 8):
        x = torch.randn(n_rows, 64, device=device, requires_grad=True)
        dy = torch.randn(n_rows, 64, device=device)
        with torch.compiler.set_stance("fail_on_recompile" if n_rows > 3 else "default"):
            (actual,) = torch.autograd.grad(compiled(x), x, dy)
        torch.testing.assert_close(actual, torch.autograd.grad(softmax(x, -1), x, dy)[0])


def test_autocast_keeps_the_dtype(device):
    """Under autocast the result has the input's dtype and value."""
    x = torch.randn(3, 64, device=device).bfloat16()
    with torch.autocast(device, dtype=torch.bfloat16):
        y = softmax(x, -1)
    assert torch.equal(y, softmax(x, -1))


def test_deterministic(device):
    """The same call gives the same bits."""
    x = torch.randn(9, 1023, device=device).bfloat16()
    assert torch.equal(softmax(x, -1), softmax(x, -1))


def test_module(device):
    """The module is torch's with our kernel inside."""
    x = torch.randn(3, 64, device=device)
    assert torch.equal(Softmax(dim=0)(x), softmax(x, 0))
    with pytest.raises(InputError, match="dim must be an integer, got None"):
        Softmax()(x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(2, 4, dtype=torch.int32), 1), "input must be float32.*got torch.int32"),
        ((torch.ones(2, 4), 2), r"dim must be in \[-2, 1\] for 2 dimensions, got 2"),
        ((torch.ones(2, 4), 1, torch.float64), "dtype must be float32.*got torch.float64"),
    ],
    ids=["dtype", "dim", "result"],
)
def test_refuses(arguments, message):
    """A bad argument is named, with what was wanted and what came."""
    with pytest.raises(InputError, match=message):
        softmax(*arguments)
