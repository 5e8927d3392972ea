"""attention reads its operands and gradients as they lie, whatever their strides and dimensions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from ops.attention_cases import compare, draw, small_tiles

from rooftile.ops.attention import attention, scaled_dot_product_attention


@pytest.fixture(autouse=True)
def _tiles(device):
    with small_tiles(device):
        yield


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
