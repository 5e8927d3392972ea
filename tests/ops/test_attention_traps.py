"""What attention was seen to get wrong: strides of small tensors, the least float, empty rows."""

from __future__ import annotations

import math

import pytest
import torch
from ops.attention_cases import assert_near, compare, draw, small_tiles

from rooftile.errors import InputError
from rooftile.ops.attention import (
    attention,
    attention_plan,
    attention_ref,
    scaled_dot_product_attention,
)


@pytest.fixture(autouse=True)
def _tiles(device):
    with small_tiles(device):
        yield


def every_other(t):
    """The same numbers, with another between any two."""
    return torch.stack([t, torch.full_like(t, 77)], -1)[..., 0]


def int32(device, *numbers):
    """An index tensor."""
    return torch.tensor(numbers, dtype=torch.int32, device=device)


@pytest.mark.parametrize("splits", [0, 3])
@pytest.mark.parametrize("q_len", [1, 20])
def test_sinks_of_any_strides(q_len, splits, device):
    """A slice and an expanded number are read through their strides, in both kernels."""
    q, k, v = draw(device, torch.float32, 1, 2, 1, q_len, 40, 16)
    compare(q, k, v, sinks=every_other(torch.randn(2, device=device)), num_splits=splits)
    compare(q, k, v, sinks=torch.randn(1, device=device).expand(2), num_splits=splits)


@pytest.mark.parametrize("q_len", [1, 20])
def test_lengths_of_any_strides(q_len, device):
    """Lengths of a cache, taken out of a wider tensor or one for all sequences."""
    q, k, v = draw(device, torch.float32, 2, 2, 1, q_len, 24, 16)
    for lengths in (every_other(int32(device, 3, 24)), int32(device, 7).expand(2)):
        o = attention(q, k, v, seqused_k=lengths)
        assert torch.equal(o, attention(q, k, v, seqused_k=lengths.contiguous()))


def test_starts_of_any_strides(device):
    """Starts of packed sequences out of a wider tensor, forward and backward."""
    q, k, v = (torch.randn(8, 2, 16, device=device, requires_grad=True) for _ in range(3))
    found = []
    for cu in (int32(device, 0, 3, 8), every_other(int32(device, 0, 3, 8))):
        o = attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu)
        found.append((o, *torch.autograd.grad(o.sum(), (q, k, v))))
    assert all(map(torch.equal, *found))


def test_tables_of_any_strides(device):
    """A block table that is a slice by columns, and one that is transposed."""
    pages = torch.randn(6, 1, 4, 16, device=device)
    q = torch.randn(2, 2, 1, 16, device=device)
    right = int32(device, 0, 3, 5, 1).view(2, 2)
    o = attention(q, pages, pages, block_table=right)
    for table in (every_other(right), right.t().contiguous().t()):
        assert torch.equal(attention(q, pages, pages, block_table=table), o)


def test_a_sink_without_weight_in_a_row_without_keys(device):
    """-inf as sink and no key: output 0, log-sum-exp -inf, gradient 0 and not NaN."""
    q, k, v = draw(device, torch.float32, 1, 2, 2, 5, 2, 16)
    sinks = torch.tensor([-math.inf, 0.3], device=device, requires_grad=True)
    o, lse = attention(q, k, v, is_causal=True, sinks=sinks, return_lse=True)
    assert o[0, :, :3].eq(0).all()
    assert lse[0, 0, :3].eq(-math.inf).all()
    gradient = torch.autograd.grad(o.sum(), sinks)[0]
    assert gradient[0] == 0
    assert gradient.isfinite().all()


def test_sinks_beside_rows_after_the_last_sequence(device):
    """Such rows give a sink no gradient."""
    q, k, v = (torch.randn(8, 2, 16, device=device) for _ in range(3))
    sinks = torch.randn(2, device=device, requires_grad=True)
    cu = int32(device, 0, 3, 6)
    packed = attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, sinks=sinks)
    cut = attention(q[:6], k[:6], v[:6], cu_seqlens_q=cu, cu_seqlens_k=cu, sinks=sinks)
    found, right = (torch.autograd.grad(o.sum(), sinks)[0] for o in (packed, cut))
    torch.testing.assert_close(found, right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("q_len", [1, 18])
def test_rows_of_the_least_float_are_rows_of_one_weight(q_len, dtype, device):
    """A mask's finfo.min is a number, not -inf: as in torch, a row of it weighs all keys alike."""
    q, k, v = draw(device, dtype, 1, 2, 2, q_len, 80, 16)
    mask = torch.zeros(q_len, 80, dtype=dtype, device=device)
    mask[:, 50:] = torch.finfo(dtype).min
    mask[0] = torch.finfo(dtype).min
    o = attention(q, k, v, attn_mask=mask, num_splits=0 if q_len > 1 else 1)
    assert_near("first", o[:, :, 0], v.double().mean(2))
    right, _ = attention_ref(q.double(), k[:, :, :50].double(), v[:, :, :50].double())
    assert_near("others", o[:, :, 1:], right[:, :, 1:])


@pytest.mark.parametrize("low", [-1e9, -1e30, torch.finfo(torch.float32).min])
def test_padding_rows_of_low_numbers_give_no_gradient_where_none_comes_in(low, device):
    """Rows masked by a low number and dropped by the loss leave the others' gradients alone."""
    q, k, v = draw(device, torch.float32, 1, 2, 2, 18, 21, 16)
    mask = torch.zeros(18, 21, device=device)
    mask[:4] = low
    leaves = [t.requires_grad_() for t in (q, k, v)]
    found = torch.autograd.grad(attention(*leaves, attn_mask=mask)[:, :, 4:].sum(), leaves)
    wide = [t.detach().double().requires_grad_() for t in leaves]
    right = torch.autograd.grad(attention_ref(*wide)[0][:, :, 4:].sum(), wide)
    for actual, expected in zip(found, right, strict=True):
        assert_near("gradient", actual, expected)
    everywhere = torch.autograd.grad(attention(*leaves, attn_mask=mask).sum(), leaves)
    assert all(g.isfinite().all() for g in everywhere)


@pytest.mark.parametrize("cap", [1e3, 1e4, 1e30])
def test_a_softcap_far_above_the_scores(cap, device):
    """tanh near 0 keeps its digits: such a cap changes next to nothing."""
    q, k, v = draw(device, torch.float32, 1, 2, 2, 18, 21, 16)
    compare(q, k, v, softcap=cap)


@pytest.mark.parametrize(
    "shape", [(3, 2, 5, 7), (3, 1, 5, 7), (2, 3, 1, 1, 7), (1, 1, 5, 7)], ids=str
)
def test_masks_beside_five_dimensions(shape, device):
    """A mask of fewer batch dimensions than the operands broadcasts to them."""
    q = torch.randn(2, 3, 2, 5, 16, device=device)
    k, v = (torch.randn(2, 3, 2, 7, 16, device=device) for _ in range(2))
    mask = torch.randn(shape, device=device)
    leaves = [t.requires_grad_() for t in (q, k, v, mask)]
    o = scaled_dot_product_attention(*leaves[:3], attn_mask=leaves[3])
    wide = [t.detach().double().requires_grad_() for t in leaves]
    scores = wide[0] @ wide[1].transpose(-1, -2) / 4 + wide[3]
    right = torch.softmax(scores, -1) @ wide[2]
    assert_near("output", o.detach(), right.detach())
    do = torch.randn_like(o)
    expected = torch.autograd.grad(right, wide, do.double())
    for actual, truth in zip(torch.autograd.grad(o, leaves, do), expected, strict=True):
        assert_near("gradient", actual, truth)


def test_a_mask_of_more_dimensions_is_refused(device):
    """The message says what it should broadcast to."""
    q = torch.randn(1, 2, 5, 16, device=device)
    with pytest.raises(InputError, match=r"attn_mask must broadcast to \[1, 2, 5, 5\], got \[2, 1"):
        scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(2, 1, 1, 1, 1, device=device))


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4)], ids=str)
def test_no_batch_and_no_heads(shape, device):
    """Masks, windows, dropout and their gradients of nothing at all; and its plan."""
    batch, heads, q_len, k_len = shape
    q = torch.randn(batch, heads, q_len, 16, device=device, requires_grad=True)
    k = torch.randn(batch, heads, k_len, 16, device=device)
    for sizes in ((batch, heads, q_len, k_len), (1, 1, 1, k_len)):
        mask = torch.randn(sizes, device=device, requires_grad=True)
        o = attention(q, k, k, attn_mask=mask)
        dq, dmask = torch.autograd.grad(o.sum(), (q, mask))
        assert o.shape == dq.shape == q.shape
        assert dmask.eq(0).all()
    assert attention(q, k, k, dropout_p=0.5, window_size=(1, 1)).shape == q.shape
    assert attention(q, k, k, num_splits=3).shape == q.shape
    assert attention_plan(q, k, k).forward in ("portable", "decode")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "1"}, "scale must be a number, got '1'"),
        ({"softcap": None}, "softcap must be a number, got None"),
        ({"dropout_p": "a"}, "dropout_p must be a number, got 'a'"),
        ({"window_size": (1.5, 2)}, "window_size must be an integer, got 1.5"),
        ({"window_size": (None, None)}, "window_size must be an integer, got None"),
        ({"num_splits": 2.5}, "num_splits must be an integer, got 2.5"),
        ({"attn_mask": [[1.0]]}, "attn_mask must be a tensor, got list"),
    ],
)
def test_another_kind_of_value(options, message, device):
    """What is no number, no integer, no tensor is named."""
    q, k, v = draw(device, torch.float32, 1, 2, 2, 5, 6, 16)
    with pytest.raises(InputError, match=message):
        attention(q, k, v, **options)
    if "attn_mask" in options:
        with pytest.raises(InputError, match=message):
            scaled_dot_product_attention(q, k, v, **options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arch": 90}, "arch must be a compiler target such as 'sm_90', got 90"),
        ({"arch": "sm_90", "multiprocessors": 0}, "multiprocessors must be at least 1, got 0"),
        ({"multiprocessors": 1.5}, "multiprocessors must be an integer, got 1.5"),
    ],
)
def test_plan_of_no_gpu(given, message):
    """A GPU that cannot be is named."""
    q, k = (torch.empty(1, 2, n, 64, device="meta") for n in (1, 900))
    with pytest.raises(InputError, match=message):
        attention_plan(q, k, k, **given)


def test_more_parts_than_keys(device):
    """As many parts as there are keys, whatever number is asked for: no room for empty ones."""
    q, k, v = draw(device, torch.float32, 1, 2, 1, 1, 5, 16)
    assert attention_plan(q, k, v, num_splits=2**31).num_splits == 5
    compare(q, k, v, num_splits=2**31)


def test_compiles_with_one_tensor_in_two_places(device):
    """Self-attention of packed sequences: queries are keys, and their starts are the same."""
    x = torch.randn(8, 2, 16, device=device, requires_grad=True)
    cu = int32(device, 0, 3, 8)

    def packed(x, cu):
        return attention(
            x, x, x, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=5, max_seqlen_k=5
        ).sum()

    torch._dynamo.reset()
    compiled = torch.compile(packed, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(x, cu), x)[0]
    torch.testing.assert_close(found, torch.autograd.grad(packed(x, cu), x)[0])
