"""Masks, softcap, ALiBi, sinks and dropout of attention, forward and backward."""

from __future__ import annotations

import math

import pytest
import torch
from ops.attention_cases import compare, draw, small_tiles

from rooftile.errors import InputError
from rooftile.ops.attention import attention, attention_ref


@pytest.fixture(autouse=True)
def _tiles(device):
    with small_tiles(device):
        yield


# whole, of one head, of one query (padding of keys), of one key, one number for all
MASKS = [(2, 2, 18, 21), (18, 21), (2, 1, 1, 21), (1, 2, 18, 1), (1, 1)]


@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_additive_mask_and_its_gradient(shape, device):
    """A mask of any shape that broadcasts; its gradient is summed to that shape."""
    q, k, v = draw(device, torch.float32, 2, 2, 1, 18, 21, 16)
    compare(q, k, v, attn_mask=torch.randn(shape, device=device))


@pytest.mark.parametrize("shape", MASKS[:4], ids=str)
def test_boolean_mask(shape, device):
    """True takes part; a query whose keys are all masked gets 0 and gives no gradient."""
    q, k, v = draw(device, torch.float32, 2, 2, 1, 18, 21, 16)
    mask = torch.rand(shape, device=device) > 0.4
    mask[..., 0, :] = False
    compare(q, k, v, attn_mask=mask)


def test_mask_of_infinities(device):
    """An additive mask may hold -inf, a whole row of it too; the rest is finite."""
    q, k, v = draw(device, torch.float32, 1, 1, 1, 18, 21, 16)
    mask = torch.randn(18, 21, device=device)
    mask[:, 7:] = -math.inf
    mask[3] = -math.inf
    o, lse = attention(q, k, v, attn_mask=mask, return_lse=True)
    right, right_lse = attention_ref(q.double(), k.double(), v.double(), attn_mask=mask.double())
    torch.testing.assert_close(o.double(), right, rtol=1e-5, atol=1e-6)
    assert lse[0, 0, 3] == -math.inf == right_lse[0, 0, 3]
    assert o[0, 0, 3].eq(0).all()


def test_mask_of_any_strides(device):
    """A transposed or expanded mask is read through its own strides."""
    q, k, v = draw(device, torch.float32, 1, 2, 2, 18, 18, 16)
    mask = torch.randn(2, 18, 36, device=device)
    for view in (mask.transpose(0, 1).contiguous().transpose(0, 1)[..., ::2], mask[0, :, :18].t()):
        o = attention(q, k, v, attn_mask=view)
        same = attention(q, k, v, attn_mask=view.contiguous())
        torch.testing.assert_close(o, same, rtol=1e-5, atol=1e-6)


def test_mask_of_another_dtype(device):
    """A float32 mask beside 16-bit operands stays float32, and so does its gradient."""
    q, k, v = draw(device, torch.float16, 1, 1, 1, 18, 21, 16)
    compare(q, k, v, attn_mask=torch.randn(18, 21, device=device), is_causal=True)


def test_softcap(device):
    """Scores are bounded by cap * tanh(scores / cap), and its derivative is in the gradients."""
    q, k, v = draw(device, torch.float32, 1, 2, 1, 18, 21, 16)
    compare(q, k, v, softcap=1.5, scale=1.0, is_causal=True)


def test_softcap_of_huge_scores(device):
    """exp overflows at both ends of tanh, the result does not: cap and -cap."""
    q = torch.tensor([[1e4], [-1e4]], device=device).view(1, 1, 2, 1)
    k = torch.ones(1, 1, 1, 1, device=device)
    _, lse = attention(q, k, k, scale=1.0, softcap=30.0, return_lse=True)
    assert lse.flatten().tolist() == pytest.approx([30.0, -30.0])


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
@pytest.mark.parametrize("shape", [(2,), (2, 2)], ids=str)
def test_alibi(shape, alignment, device):
    """Slope times distance from a query's own place, which the alignment sets."""
    q, k, v = draw(device, torch.float32, 2, 2, 1, 18, 21, 16)
    slopes = torch.rand(shape, device=device)
    compare(q, k, v, alibi_slopes=slopes, alignment=alignment, is_causal=True)


def test_sinks(device):
    """A sink takes a share of each row, gives nothing, and has a gradient."""
    q, k, v = draw(device, torch.float32, 2, 2, 1, 18, 21, 16)
    compare(q, k, v, sinks=torch.randn(2, device=device), window_size=(4, 0))


def test_a_row_that_sees_a_sink_alone(device):
    """Output 0 and the sink's logit as log-sum-exp."""
    q, k, v = draw(device, torch.float32, 1, 1, 1, 3, 2, 8)
    o, lse = attention(
        q, k, v, is_causal=True, sinks=torch.tensor([0.7]).to(device), return_lse=True
    )
    assert o[0, 0, 0].eq(0).all()
    assert lse[0, 0, 0].item() == pytest.approx(0.7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_all_extras_at_once(dtype, device):
    """A mask, softcap, slopes, sinks and a window together, with 16-bit operands."""
    q, k, v = draw(device, dtype, 1, 2, 1, 35, 37, 16)
    compare(
        q, k, v, attn_mask=torch.randn(37, device=device), softcap=5.0, is_causal=True,
        alibi_slopes=torch.rand(2, device=device), sinks=torch.randn(2, device=device),
        window_size=(20, -1),
    )  # fmt: skip


def dropped(q, k, v, weight, p, seed):
    """Output by the mask that a probe with the identity as values shows."""
    eye = torch.eye(k.shape[2], device=k.device).expand(*k.shape[:2], -1, -1)
    shown = attention(q, k, eye, dropout_p=p, seed=seed)
    kept = shown != 0
    return kept, (weight * kept / (1 - p)) @ v


def test_dropout_keeps_the_mean(device):
    """A half of the weights is dropped, the others are doubled, by a seed that repeats."""
    q, k, v = draw(device, torch.float32, 1, 2, 2, 40, 24, 16)
    seed = torch.tensor([11], device=device)
    weight = torch.softmax(q @ k.transpose(-1, -2) / 4, -1)
    kept, expected = dropped(q, k, v, weight, 0.5, seed)
    assert abs(kept.float().mean().item() - 0.5) < 0.05
    o = attention(q, k, v, dropout_p=0.5, seed=seed)
    torch.testing.assert_close(o, expected, rtol=1e-4, atol=1e-5)
    assert not torch.equal(o, attention(q, k, v, dropout_p=0.5, seed=seed + 1))
    assert torch.equal(attention(q, k, v, dropout_p=1.0), torch.zeros_like(q))


def test_gradients_under_dropout(device):
    """The backward draws the forward's mask again, in both of its kernels."""
    q, k, v = (t.requires_grad_() for t in draw(device, torch.float32, 1, 2, 1, 20, 24, 16))
    seed = torch.tensor([5], device=device)
    mask = torch.randn(20, 24, device=device, requires_grad=True)
    group = [t.repeat_interleave(2, 1) for t in (k, v)]
    weight = torch.softmax(q @ group[0].transpose(-1, -2) / 4 + mask, -1)
    kept, _ = dropped(q.detach(), group[0].detach(), group[1].detach(), weight.detach(), 0.25, seed)
    right = (weight * kept / 0.75) @ group[1]
    o = attention(q, k, v, attn_mask=mask, dropout_p=0.25, seed=seed)
    torch.testing.assert_close(o, right, rtol=1e-4, atol=1e-5)
    do = torch.randn_like(o)
    leaves = (q, k, v, mask)
    expected = torch.autograd.grad(right, leaves, do)
    for a, b in zip(torch.autograd.grad(o, leaves, do), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attn_mask": torch.ones(5, 7)}, r"attn_mask must broadcast to \[2, 2, 5, 6\]"),
        ({"attn_mask": torch.ones(6, dtype=torch.int64)}, "attn_mask must be bool, float32"),
        ({"alibi_slopes": torch.ones(3)}, "alibi_slopes must be float32 of shape"),
        ({"alibi_slopes": torch.ones(2).requires_grad_()}, "alibi_slopes must not require"),
        ({"sinks": torch.ones(3)}, r"sinks must have shape \[2\], got \[3\]"),
        ({"seed": torch.ones(1), "dropout_p": 0.5}, "seed must be one int64"),
        ({"num_splits": 2, "dropout_p": 0.5}, "num_splits must be 0 here, got 2: dropout"),
    ],
)
def test_refuses(options, message, device):
    """A wrong extra is named, with what was wanted and what came."""
    q, k, v = draw(device, torch.float32, 2, 2, 1, 5, 6, 16)
    placed = {n: t.to(device) if isinstance(t, torch.Tensor) else t for n, t in options.items()}
    with pytest.raises(InputError, match=message):
        attention(q, k, v, **placed)
