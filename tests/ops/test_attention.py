"""attention against its definition in float64, and against the traps that others fell into."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from ops.attention_cases import compare, draw, small_tiles
from ops.close import DTYPES, assert_matches

from rooftile.errors import InputError
from rooftile.ops.attention import attention, attention_ref, scaled_dot_product_attention
from rooftile.ops.flash.torch_ops import bwd_op, fwd_op


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


def test_layout_with_heads_inside(device):
    """[batch, sequence, heads, width] comes out as it went in, without a copy of the operands."""
    q, k, v = (
        t.transpose(1, 2).contiguous() for t in draw(device, torch.float32, 2, 2, 1, 18, 33, 16)
    )
    compare(q, k, v, layout="bshd", is_causal=True)
    assert attention(q, k, v, layout="bshd").is_contiguous()
    swapped = scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, q, q)))
    assert swapped.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[..., ::2],  # elements are not side by side
        lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
        lambda t: t[:, :1].expand(-1, 2, -1, -1),
        lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
    ],
)
def test_strides(view, device):
    """Any strides of the operands, and of the gradient, give what contiguous copies give."""
    q, k, v = (view(t) for t in draw(device, torch.float32, 2, 2, 2, 20, 20, 16))
    compare(q, k, v, is_causal=True)


@pytest.mark.parametrize("expanded", [False, True])
def test_gradient_in_another_layout(expanded, device):
    """A gradient with strides of its own, or expanded, is read through them (att-08)."""
    q, k, v = (t.requires_grad_() for t in draw(device, torch.float32, 2, 2, 2, 20, 20, 16))
    o = attention(q, k, v)
    if expanded:
        do = torch.randn(16, device=device).expand(o.shape)
    else:
        do = torch.randn(2, 20, 2, 16, device=device).transpose(1, 2)
    found = torch.autograd.grad(o, (q, k, v), do, retain_graph=True)
    right = torch.autograd.grad(o, (q, k, v), do.contiguous())
    for actual, expected in zip(found, right, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


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


def test_torch_dimensions(device):
    """Two, three and five dimensions, and batches that broadcast, as torch takes them."""
    for shapes in (
        [(5, 8), (7, 8), (7, 4)],
        [(3, 5, 8), (3, 7, 8), (1, 7, 4)],
        [(2, 1, 2, 5, 8), (3, 2, 7, 8), (2, 3, 2, 7, 8)],
        [(2, 4, 5, 8), (1, 1, 7, 8), (2, 4, 7, 8)],
    ):
        q, k, v = (torch.randn(shape, device=device) for shape in shapes)
        right = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
        actual = scaled_dot_product_attention(q, k, v)
        torch.testing.assert_close(actual.double(), right, rtol=1e-5, atol=1e-6)


def test_registration(device):
    """Schema, fake kernel and dispatch agree with what runs, for any layout."""
    q, k, v = draw(device, torch.float32, 1, 2, 1, 9, 12, 8)
    for inside in (False, True):
        none = [None] * 8
        rest = (*none, 0.3, 0.0, -1, 0, True, 0.0, 9, 12, False, False)
        torch.library.opcheck(fwd_op, (q, k, v, *rest, 0, inside))
        o, lse = fwd_op(q, k, v, *rest, 0, inside)
        wanted = [True, True, True, False, False]
        torch.library.opcheck(bwd_op, (o, lse, o, lse, q, k, v, *rest, inside, wanted))


def test_compiles_without_recompiling(device):
    """One graph serves every length, forward and backward."""
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (18, 20, 35):
        q, k, v = (
            t.requires_grad_() for t in draw(device, torch.float32, 1, 2, 2, length, length, 16)
        )
        do = torch.randn_like(q)
        with torch.compiler.set_stance("fail_on_recompile" if length > 18 else "default"):
            found = torch.autograd.grad(compiled(q, k, v), (q, k, v), do)
        for a, b in zip(found, torch.autograd.grad(ours(q, k, v), (q, k, v), do), strict=True):
            torch.testing.assert_close(a, b)


def test_autocast(device):
    """Under autocast, float32 operands are cast as for torch's attention."""
    q, k, v = draw(device, torch.float32, 1, 1, 1, 16, 16, 16)
    with torch.autocast(device, dtype=torch.bfloat16):
        o = scaled_dot_product_attention(q, k, v)
    assert o.dtype == torch.bfloat16
    assert torch.equal(o, scaled_dot_product_attention(*(t.bfloat16() for t in (q, k, v))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q.double(), k.double(), v.double()), "query must be float32"),
        (lambda q, k, v: (q, k.bfloat16(), v), "key must be torch.float32 like query"),
        (
            lambda q, k, v: (q[:, :3], k, v),
            "query must have a multiple of key's heads, got 3 and 2",
        ),
        (lambda q, k, v: (q, k[..., :8], v), "key must have head dim 16 like query, got 8"),
        (lambda q, k, v: (q, k, v[:, :, 1:]), "value must have the batch, heads and length of key"),
        (lambda q, k, v: (q[0], k, v), "query must have 4 dimensions"),
        (lambda q, k, v: (q[:1], k, v), "key must have batch 1 like query, got 2"),
        (lambda q, k, v: (t.repeat(1, 1, 1, 17) for t in (q, k, v)), r"head dim in \[1, 256\]"),
    ],
)
def test_refuses_operands(change, message, device):
    """A wrong operand is named, with what was wanted and what came."""
    q, k, v = draw(device, torch.float32, 2, 4, 2, 5, 6, 16)
    with pytest.raises(InputError, match=message):
        attention(*change(q, k, v))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": math.nan}, "scale must be finite"),
        ({"softcap": -1.0}, "softcap must be finite and at least 0"),
        ({"window_size": (-2, 0)}, "window_size must be two numbers"),
        ({"alignment": "centre"}, "alignment must be top_left or bottom_right, got 'centre'"),
        ({"layout": "sbhd"}, "layout must be bhsd or bshd, got 'sbhd'"),
        ({"dropout_p": 1.5}, r"dropout_p must be in \[0, 1\]"),
        ({"num_splits": -1}, "num_splits must be at least 0"),
        ({"max_seqlen_q": 3}, "max_seqlen_q and max_seqlen_k must be None"),
    ],
)
def test_refuses_options(options, message, device):
    """A wrong option is named, with what was wanted and what came."""
    q, k, v = draw(device, torch.float32, 2, 4, 2, 5, 6, 16)
    with pytest.raises(InputError, match=message):
        attention(q, k, v, **options)


def test_refuses_a_mask_beside_causal(device):
    """torch's attention takes one of the two."""
    q, k, v = draw(device, torch.float32, 1, 1, 1, 4, 4, 8)
    mask = torch.ones(4, 4, dtype=torch.bool, device=device)
    with pytest.raises(InputError, match="attn_mask must be None where is_causal is set"):
        scaled_dot_product_attention(q, k, v, mask, is_causal=True)


def test_deterministic(device):
    """The same call gives the same bits, 50 times on a GPU: no atomics anywhere."""
    q, k, v = (t.requires_grad_() for t in draw(device, torch.float16, 1, 2, 1, 40, 40, 16))
    do = torch.randn_like(q)

    def run():
        o = attention(q, k, v, is_causal=True, deterministic=True)
        return (o, *torch.autograd.grad(o, (q, k, v), do))

    first = run()
    for _ in range(1 if device == "cpu" else 50):
        assert all(map(torch.equal, first, run()))
