"""bias_gelu_dropout_residual: each part alone and together, and the statistics of its dropout."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops.bias_gelu_dropout_residual import bias_gelu_dropout_residual as fused
from rooftile.ops.bias_gelu_dropout_residual import bias_gelu_dropout_residual_ref as reference
from rooftile.ops.bias_gelu_dropout_residual import bwd_op, fwd_op
from rooftile.ops.flat.dropout import threshold
from rooftile.plan.launch import override

# 7: shorter than a group of random bits; 33, 100: the last group not whole; 3000: several blocks
SHAPES = [(1, 1), (9, 7), (9, 33), (2, 3, 100), (5, 3000)]
GELUS = [{"approximate": "none"}, {"approximate": "tanh"}, {"gelu": False}]


def eager(x, bias, residual, approximate="none", gelu=True):
    """torch's own ops."""
    y = x + bias
    y = torch.nn.functional.gelu(y, approximate=approximate) if gelu else y
    return y + residual


def draw(shape, dtype, device):
    """x, bias and residual."""
    sizes = (shape, shape[-1:], shape)
    return [torch.randn(s, device=device).to(dtype) for s in sizes]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", GELUS, ids=str)
def test_matches_torch(shape, options, dtype, device):
    """Without dropout, result and gradients are as accurate as torch's in the same dtype."""
    assert_matches(
        lambda *t: fused(*t, **options),
        lambda *t: eager(*t, **options),
        lambda *t: reference(*t, **options),
        draw(shape, dtype, device),
        [torch.randn(shape, device=device).to(dtype)],
    )


def test_tail_of_gelu_is_right_relative_to_itself(device):
    """Where torch's erf cancels, x * Phi(x) keeps its digits: float16 down to its least numbers."""
    x = torch.linspace(-6, 6, 4001, device=device).half()
    truth = torch.special.log_ndtr(x.double()).exp() * x.double()
    spacing = torch.maximum(truth.abs() * 2.0**-11, torch.tensor(2.0**-25, device=device))
    assert ((fused(x).double() - truth).abs() <= 1.05 * spacing).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_values_that_are_no_numbers(approximate, dtype, device):
    """NaN stays NaN and infinity is kept; minus infinity times 0 is NaN, as in torch."""
    largest = torch.finfo(dtype).max
    x = torch.tensor([math.nan, -math.inf, math.inf, largest, -largest], device=device, dtype=dtype)
    y = fused(x, approximate=approximate)
    assert y.isnan().tolist() == [True, True, False, False, False]
    assert y.tolist()[2:] == [math.inf, largest, 0.0]


@pytest.mark.parametrize(
    ("approximate", "one", "gap"), [("none", 0.8413447, 2.6896143), ("tanh", 0.8411920, 2.6900876)]
)
def test_the_forms_of_gelu_are_told_apart(approximate, one, gap, device):
    """At 2.699, where they differ most, by 4.73e-4."""
    y = fused(torch.tensor([1.0, 2.699], device=device), approximate=approximate)
    torch.testing.assert_close(y.tolist(), [one, gap], atol=1e-6, rtol=0)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_residual", [False, True])
def test_each_part_is_optional(has_bias, has_residual, device):
    """With and without bias and residual."""
    x, bias, residual = draw((5, 40), torch.float32, device)
    args = (x, bias if has_bias else None, residual if has_residual else None)
    torch.testing.assert_close(fused(*args), reference(*args))


def test_strides(device):
    """Strided inputs and gradients give what contiguous ones give, with the same mask."""
    x, residual = torch.randn(6, 160, device=device).chunk(2, -1)
    x = x.requires_grad_()
    seed = torch.tensor([3], device=device)
    y = fused(x, None, residual, 0.5, seed=seed)
    torch.testing.assert_close(
        y, fused(x.contiguous(), None, residual.contiguous(), 0.5, seed=seed)
    )
    (dense,) = torch.autograd.grad(y, x, torch.ones(6, 80, device=device), retain_graph=True)
    (expanded,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(dense, expanded)


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("n_cols", [100, 4096])
def test_share_and_mean(p, n_cols, device):
    """The share of zeros is p and the mean is kept, within 5 standard deviations."""
    n = 64 * n_cols
    y = fused(torch.ones(64, n_cols, device=device), None, None, p, gelu=False)
    share = y.eq(0).double().mean().item()
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / n) + 2**-17
    assert abs(y.double().mean().item() - 1) < 5 * math.sqrt(p / (1 - p) / n)


def test_neighbours_are_independent(device):
    """Elements of one draw, of neighbouring draws and of neighbouring rows are uncorrelated."""
    n_cols = 1000
    y = fused(torch.ones(200, n_cols, device=device), None, None, 0.5, gelu=False).eq(0).double()
    y -= 0.5
    for distance in (1, 2, 3, 4, 7, 8, 16, 64):
        pairs = y[:, distance:] * y[:, :-distance]
        assert abs(pairs.mean().item()) < 5 * 0.25 / math.sqrt(pairs.numel()), distance
    assert abs((y[1:] * y[:-1]).mean().item()) < 5 * 0.25 / math.sqrt(199 * n_cols)
    assert y.mean(0).abs().max().item() < 6 * 0.5 / math.sqrt(200)


def test_bytes_of_a_draw_are_uniform(device):
    """Dropped at p = k / 16 the sets are nested: one uniform number an element, in 16 classes."""
    x, seed = torch.ones(64, 1024, device=device), torch.tensor([5], device=device)
    zeros = [fused(x, None, None, k / 16, gelu=False, seed=seed).eq(0) for k in range(1, 16)]
    assert all((b | ~a).all() for a, b in pairwise(zeros))
    counts = torch.stack(zeros).sum((1, 2)).double().diff()
    expected = x.numel() / 16
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    assert chi_square < 45  # 14 degrees of freedom: exceeded once in 25,000


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_backward_draws_the_same_mask(dtype, device):
    """Without GELU the gradient of ones is the forward of ones."""
    x = torch.ones(9, 333, device=device, dtype=dtype, requires_grad=True)
    bias = torch.zeros(333, device=device, dtype=dtype, requires_grad=True)
    y = fused(x, bias, None, 0.3, gelu=False)
    dx, dbias = torch.autograd.grad(y.sum(), (x, bias))
    assert torch.equal(dx, y.detach())
    torch.testing.assert_close(dbias.float(), y.detach().float().sum(0), rtol=1e-2, atol=1e-2)


def test_more_sums_than_the_last_kernel_adds_at_once(device):
    """300 programs' sums of a column are added up in several rounds."""
    x, bias = torch.randn(300, 24, device=device), torch.randn(24, device=device)
    bias.requires_grad_()
    dy = torch.randn(300, 24, device=device)
    with override("column_sums", rows=1, programs_per_sm=300):
        (actual,) = torch.autograd.grad(fused(x, bias), bias, dy)
    (expected,) = torch.autograd.grad(reference(x, bias), bias, dy)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-4)


def test_seed(device):
    """One seed, one mask; torch's generator decides where none is given."""
    x, seed = torch.ones(8, 256, device=device), torch.tensor([1], device=device)
    assert torch.equal(fused(x, p=0.5, seed=seed), fused(x, p=0.5, seed=seed))
    assert not torch.equal(fused(x, p=0.5, seed=seed), fused(x, p=0.5, seed=seed + 1))
    torch.manual_seed(7)
    first, second = fused(x, p=0.5), fused(x, p=0.5)
    torch.manual_seed(7)
    assert torch.equal(first, fused(x, p=0.5))
    assert not torch.equal(first, second)


def test_ends_of_the_range(device):
    """p = 0 and evaluation drop nothing, p = 1 everything."""
    x, bias, residual = draw((5, 40), torch.float32, device)
    assert torch.equal(fused(x, bias, residual, 0.5, training=False), fused(x, bias, residual))
    assert torch.equal(fused(x, bias, residual, 1.0), residual)


def test_a_probability_below_a_step_drops_nothing(device):
    """p is rounded to a multiple of 2^-16; of 2^-18 that is 0, of 2^-16 + 2^-18 it is 2^-16."""
    x = torch.ones(64, 4096, device=device)
    assert fused(x, None, None, 2**-18, gelu=False).eq(1).all()
    share = fused(x, None, None, 2**-16 + 2**-18, gelu=False).eq(0).sum().item()
    assert 0 < share < 16  # 4 are expected


def test_threshold():
    """p becomes a multiple of 2^-16, and the factor is that multiple's own."""
    assert threshold(0.25) == (16384, 4 / 3)
    dropped, scale = threshold(0.1)
    assert dropped == 6554
    assert scale * (65536 - dropped) == 65536
    assert threshold(1.0) == (65536, 0.0)


def test_empty(device):
    """No row: no launch, a zero gradient of the bias."""
    x = torch.empty(0, 8, device=device, requires_grad=True)
    bias = torch.ones(8, device=device, requires_grad=True)
    dx, dbias = torch.autograd.grad(fused(x, bias, None, 0.5).sum(), (x, bias))
    assert dx.shape == (0, 8)
    assert dbias.eq(0).all()


def test_registration(device):
    """Schema, fake kernel and dispatch agree with what runs."""
    x, bias, residual = draw((5, 30), torch.float32, device)
    seed = torch.tensor([1], device=device)
    torch.library.opcheck(fwd_op.overload, (x, bias, residual, seed, 0.5, "gelu"))
    torch.library.opcheck(bwd_op.overload, (residual, x, bias, seed, 0.5, "gelu_tanh", True))


def test_compiles_without_recompiling(device):
    """One graph serves every batch size, forward and backward."""

    def run(x, bias, residual, seed):
        return fused(x, bias, residual, 0.5, seed=seed)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=True)
    seed = torch.tensor([1], device=device)
    for n_rows in (3, 5, 8):
        leaves = [t.requires_grad_() for t in draw((n_rows, 32), torch.float32, device)]
        with torch.compiler.set_stance("fail_on_recompile" if n_rows > 3 else "default"):
            actual = torch.autograd.grad(compiled(*leaves, seed).sum(), leaves)
        torch.testing.assert_close(actual, torch.autograd.grad(run(*leaves, seed).sum(), leaves))


X = torch.ones(2, 4)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((X.int(),), {}, "x must be float32"),
        ((torch.tensor(1.0),), {}, "x must have a dimension"),
        ((X, torch.ones(5)), {}, r"bias must have shape \[4\], got \[5\]"),
        ((X, None, torch.ones(2, 5)), {}, r"residual must have shape \[2, 4\], got \[2, 5\]"),
        ((X, None, None, 1.5), {}, r"p must be in \[0, 1\], got 1.5"),
        ((X, None, None, math.nan), {}, r"p must be in \[0, 1\], got nan"),
        ((X,), {"approximate": "fast"}, "approximate must be none or tanh, got 'fast'"),
        ((X, None, None, 0.5), {"seed": torch.ones(1)}, "seed must be one int64"),
    ],
    ids=["dtype", "scalar", "bias", "residual", "p", "nan", "approximate", "seed"],
)
def test_refuses(args, options, message):
    """A bad argument is named, with what was wanted and what came."""
    with pytest.raises(InputError, match=message):
        fused(*args, **options)
