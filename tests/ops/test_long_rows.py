"""Softmax and norms of long rows: clusters that stay on the SMs of a GPU that has them."""

from __future__ import annotations

import pytest
import torch
from ops.close import assert_matches
from torch.nn import functional

from rooftile.ops import add_layer_norm, add_rms_norm, layer_norm, log_softmax, rms_norm, softmax
from rooftile.ops.add_layer_norm import add_layer_norm_ref
from rooftile.ops.add_rms_norm import add_rms_norm_ref
from rooftile.ops.layer_norm import layer_norm_ref
from rooftile.ops.rms_norm import rms_norm_ref

# 3 rows: fewer than clusters. 12345, 33001: rows that start anywhere, parts that are not full;
# 16392: whole vectors, a part for a few of them
SHAPES = [
    (3, 16384), (41, 12345), (300, 16392), (67, 30001), (70, 32768), (67, 33001), (40, 65536),
]  # fmt: skip
LONGER = [12345, 32768, 50257, 65536, 131072]
if not torch.cuda.is_available():  # interpreted: a few rows take seconds
    SHAPES, LONGER = [(3, 12345)], [12345]


def draw(shape, dtype, parameters, results, device):
    """x or x and a residual first, then the parameters; gradients of as many results."""
    tensors = [torch.randn(shape, device=device).to(dtype) for _ in range(results)]
    tensors += [torch.randn(shape[-1:], device=device).to(dtype) for _ in range(parameters)]
    return tensors, [torch.randn(shape, device=device).to(dtype) for _ in range(results)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norms(shape, dtype, device):
    """Layer norm and RMS norm, and their gradients, are as accurate as torch's."""
    inputs, gradients = draw(shape, dtype, 2, 1, device)
    n = shape[-1:]
    assert_matches(
        lambda x, w, b: layer_norm(x, n, w, b), lambda x, w, b: functional.layer_norm(x, n, w, b),
        lambda x, w, b: layer_norm_ref(x, w, b), inputs, gradients,
    )  # fmt: skip
    assert_matches(
        lambda x, w: rms_norm(x, n, w, 1e-6), lambda x, w: functional.rms_norm(x, n, w, 1e-6),
        lambda x, w: rms_norm_ref(x, w, 1e-6), inputs[:2], gradients,
    )  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norms_of_a_sum(shape, device):
    """With a residual both results and every gradient are right."""
    inputs, gradients = draw(shape, torch.bfloat16, 2, 2, device)
    n = shape[-1:]
    assert_matches(
        lambda x, r, w, b: add_layer_norm(x, r, n, w, b),
        lambda x, r, w, b: (functional.layer_norm(x + r, n, w, b), x + r),
        lambda x, r, w, b: add_layer_norm_ref(x, r, w, b), inputs, gradients,
    )  # fmt: skip
    assert_matches(
        lambda x, r, w: add_rms_norm(x, r, n, w, 1e-6),
        lambda x, r, w: (functional.rms_norm(x + r, n, w, 1e-6), x + r),
        lambda x, r, w: add_rms_norm_ref(x, r, w, 1e-6), inputs[:3], gradients,
    )  # fmt: skip


@pytest.mark.parametrize("n_cols", LONGER)
@pytest.mark.parametrize("log", [False, True])
def test_softmax(n_cols, log, device):
    """Softmax and its logarithm, and their gradients, are as accurate as torch's."""
    x, dy = (torch.randn(37, n_cols, device=device).bfloat16() * 4 for _ in range(2))
    x[3, : n_cols - 7] = -float("inf")  # a part of a row may have nothing to add
    fn, eager = (log_softmax, functional.log_softmax) if log else (softmax, functional.softmax)
    assert_matches(
        lambda x: fn(x, -1), lambda x: eager(x, -1), lambda x: eager(x, -1),
        [x[:3]], [dy[:3]],
    )  # fmt: skip
    torch.testing.assert_close(fn(x, -1), eager(x, -1), rtol=2**-6, atol=2**-12)


@pytest.mark.parametrize("n_cols", [16384, 33001])
def test_rows_of_a_wider_tensor(n_cols, device):
    """Rows apart from each other, an offset of the weight, a cast before it."""
    x = torch.randn(70, n_cols + 24, device=device)[:, 8 : n_cols + 8].bfloat16()
    wide = torch.randn(70, n_cols + 24, device=device, dtype=torch.bfloat16)
    wide[:, 8 : n_cols + 8] = x
    w = torch.randn(n_cols, device=device, dtype=torch.bfloat16)
    view = wide[:, 8 : n_cols + 8]
    torch.testing.assert_close(
        rms_norm(view, (n_cols,), w, weight_offset=1.0, cast_before_weight=True),
        rms_norm(x, (n_cols,), w, weight_offset=1.0, cast_before_weight=True), rtol=0, atol=0,
    )  # fmt: skip
    expected = functional.rms_norm(x.double(), (n_cols,)) * (w.double() + 1)
    actual = rms_norm(view, (n_cols,), w, weight_offset=1.0)
    torch.testing.assert_close(actual.double(), expected, rtol=2**-7, atol=2**-7)


def test_small_variance_at_a_large_mean_of_long_rows(device):
    """The squares are summed around the mean of a part, the parts' means around the row's."""
    x = (torch.randn(20, 33000, device=device, dtype=torch.float64) * 1e-3 + 10).float()
    expected = functional.layer_norm(x.double(), (33000,), eps=1e-12)
    actual = layer_norm(x, (33000,), eps=1e-12)
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=1e-2)


def test_long_rows_are_deterministic(device):
    """Sums over rows and over clusters are taken in one order: the same bits every time."""
    inputs, gradients = draw((300, 16384), torch.bfloat16, 2, 1, device)
    x, w, b = (t.requires_grad_() for t in inputs)
    runs = []
    for _ in range(3):
        y = layer_norm(x, (16384,), w, b)
        runs.append((y, *torch.autograd.grad(y, (x, w, b), gradients)))
    for again in runs[1:]:
        for a, e in zip(again, runs[0], strict=True):
            torch.testing.assert_close(a, e, rtol=0, atol=0)
