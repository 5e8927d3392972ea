"""attention against its definition in float64, and against the traps that others fell into."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from ops.attention_cases import compare, draw, small_tiles
from ops.close import DTYPES, assert_matches

from rooftile.ops.attention import attention, attention_ref, scaled_dot_product_attention


@pytest.fixture(autouse=True)
def _tiles(device):
    with small_tiles(device):
        yield


def reference(q, k, v):
    """The output of the definition, causal from the top left."""
    return attention_ref(q, k, v, is_causal=True, alignment="top_left")[0]


def eager(q, k, v):
    """torch's own, by its definition."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def ours(q, k, v):
    """Ours, by torch's signature."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 33, 48])
def test_matches_torch(length, dtype, device):
    """Result and gradients are as accurate as torch's in the same dtype."""
    q, k, v = draw(device, dtype, 1, 2, 2, length, length, 16)
    do = torch.randn_like(v)
    assert_matches(ours, eager, reference, [q, k, v], [do])


def test_products_of_float32_are_not_tf32(device):
    """Values of about 20: TF32 would be off by 1e-3 of them, float32 is by 1e-6 (att-11)."""
    q, k, v = (20 * t for t in draw(device, torch.float32, 1, 2, 2, 33, 33, 16))
    o = attention(q, k, v, scale=1e-3)
    right, _ = attention_ref(q.double(), k.double(), v.double(), scale=1e-3)
    assert (o.double() - right).abs().max() <= 1e-5 * right.abs().max()


def test_square_as_the_field_met_it(device):
    """128 queries and keys of width 64, then half the queries and causal (att-05)."""
    compare(*draw(device, torch.float32, 1, 1, 1, 128, 128, 64))
    compare(*draw(device, torch.float32, 1, 1, 1, 64, 128, 64), is_causal=True)


# fewer queries than keys, as many, more; 33 and 50 end inside a tile
LENGTHS = [(20, 50), (33, 33), (50, 20)]


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize(("is_causal", "window"), [(False, (-1, -1)), (True, (-1, -1)),
                                                   (False, (5, 3)), (True, (9, -1))])  # fmt: skip
def test_masks_of_places(is_causal, window, lengths, alignment, device):
    """Causal masks and windows, at both alignments, with fewer, as many and more queries."""
    q, k, v = draw(device, torch.float32, 1, 2, 1, *lengths, 16)
    compare(q, k, v, is_causal=is_causal, window_size=window, alignment=alignment)


@pytest.mark.parametrize("window", [(-1, 4), (6, -1), (0, 0)])
def test_windows_open_at_one_side(window, device):
    """A window may end at one side alone; (0, 0) leaves a query its own place."""
    q, k, v = draw(device, torch.float32, 1, 1, 1, 37, 37, 16)
    compare(q, k, v, window_size=window)


# D = 80 and 96 pad to 128, 192 to 256; 24 and 1 to 32 and 16
@pytest.mark.parametrize(("dim", "v_dim"), [(80, 80), (96, 64), (192, 128), (1, 1), (24, 40)])
def test_any_head_dim(dim, v_dim, device):
    """Head dims that are no power of two, and values of another width than keys (att-07)."""
    q, k, v = draw(device, torch.float32, 1, 1, 1, 18, 20, dim, v_dim)
    compare(q, k, v, is_causal=True)


def test_scale_is_that_of_the_true_head_dim(device):
    """Padding 80 to 128 leaves the scale at 1 / sqrt(80) = 0.111803, not 0.088388 (att-07)."""
    q = torch.zeros(1, 1, 1, 80, device=device)
    k = torch.zeros(1, 1, 2, 80, device=device)
    q[..., 0], k[0, 0, 1, 0] = 1.0, 1.0
    _, lse = attention(q, k, k, return_lse=True)
    assert lse.item() == pytest.approx(math.log(1 + math.exp(0.111803)), abs=1e-6)


# as a fast kernel takes them: 16 bits, rows of 16 bytes; more queries than keys, tails, windows
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize(
    ("q_len", "k_len", "options"),
    [(33, 50, {}), (50, 33, {"is_causal": True}), (40, 40, {"window_size": (20, 4)}),
     (33, 50, {"is_causal": True, "alignment": "top_left"})],
)  # fmt: skip
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_what_fast_kernels_take(dim, q_len, k_len, options, layout, device):
    """Whichever kernel runs it, forward and backward, with and without a gradient of the lse."""
    q, k, v = draw(device, torch.bfloat16, 1, 4, 2, q_len, k_len, dim)
    if layout == "bshd":
        q, k, v = (t.transpose(1, 2).contiguous() for t in (q, k, v))
    compare(q, k, v, layout=layout, **options)
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    o, lse = attention(*leaves, layout=layout, return_lse=True, **options)
    do = torch.randn_like(o)
    alone = torch.autograd.grad(o, leaves, do, retain_graph=True)
    both = torch.autograd.grad([o, lse], leaves, [do, torch.zeros_like(lse)])
    for a, b in zip(alone, both, strict=True):
        torch.testing.assert_close(a.float(), b.float(), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("group", [1, 3])
def test_grouped_heads(group, device):
    """Several heads of queries share one of keys; its gradient is their sum."""
    q, k, v = draw(device, torch.float32, 2, 2 * group, 2, 17, 19, 16)
    compare(q, k, v, is_causal=True)


def places(n: int, device: str) -> torch.Tensor:
    """Values 0, 1, 2 ...: an output says which keys were averaged."""
    return torch.arange(float(n), device=device).view(1, 1, n, 1)


@pytest.mark.parametrize(
    ("q_len", "alignment", "expected"),
    [(2, "top_left", [0.0, 0.5]), (2, "bottom_right", [1.5, 2.0]), (1, "top_left", [0.0]),
     (1, "bottom_right", [2.0])],
)  # fmt: skip
def test_alignment_of_causal_masks(q_len, alignment, expected, device):
    """Two or one queries of five keys: means of 0 .. 4 that the alignment lets through (att-01)."""
    q = torch.zeros(1, 1, q_len, 1, device=device)
    k = torch.zeros(1, 1, 5, 1, device=device)
    o = attention(q, k, places(5, device), is_causal=True, alignment=alignment)
    assert o.flatten().tolist() == pytest.approx(expected)
    if alignment == "top_left":
        same = scaled_dot_product_attention(q, k, places(5, device), is_causal=True)
        assert torch.equal(o, same)


def test_more_queries_than_keys(device):
    """Rows that see no key: output 0, log-sum-exp -inf, gradient 0, and no NaN (att-02)."""
    q = torch.zeros(1, 1, 5, 1, device=device, requires_grad=True)
    k = torch.zeros(1, 1, 2, 1, device=device, requires_grad=True)
    v = torch.tensor([1.0, 3.0], device=device).view(1, 1, 2, 1).requires_grad_()
    o, lse = attention(q, k, v, is_causal=True, return_lse=True)
    assert o.flatten().tolist() == pytest.approx([0, 0, 0, 1, 2])
    assert lse.flatten()[:3].eq(-math.inf).all()
    assert lse.flatten()[3:].tolist() == pytest.approx([0, math.log(2)])
    gradients = torch.autograd.grad(o.sum() + lse[..., 3:].sum(), (q, k, v))
    assert all(g.isfinite().all() for g in gradients)
    assert gradients[0].flatten()[:3].eq(0).all()


@pytest.mark.parametrize("logit", [-60_000.0, 60_000.0])
def test_logits_beyond_any_sentinel(logit, device):
    """Four keys with the same huge logit get a quarter each (att-04)."""
    q = torch.full((1, 1, 1, 1), logit, device=device)
    k = torch.ones(1, 1, 4, 1, device=device)
    assert attention(q, k, places(4, device), scale=1.0).item() == pytest.approx(1.5)


@pytest.mark.parametrize("scale", [0.0, -0.3, 0.7])
def test_any_scale(scale, device):
    """A scale of 0 or below is a scale."""
    q, k, v = draw(device, torch.float32, 1, 1, 1, 20, 20, 16)
    compare(q, k, v, scale=scale, is_causal=True)


@pytest.mark.parametrize(("batch", "q_len", "k_len"), [(0, 3, 3), (1, 0, 3), (1, 3, 0)])
def test_empty(batch, q_len, k_len, device):
    """No sequence, no query or no key: outputs of the right shape, 0 where there is no key."""
    q, k, v = (
        t.requires_grad_() for t in draw(device, torch.float32, batch, 2, 2, q_len, k_len, 8)
    )
    o, lse = attention(q, k, v, return_lse=True)
    assert o.shape == q.shape
    assert o.eq(0).all()
    assert lse.eq(-math.inf).all()
    for leaf, gradient in zip((q, k, v), torch.autograd.grad(o.sum(), (q, k, v)), strict=True):
        assert gradient.shape == leaf.shape
        assert gradient.eq(0).all()
