"""attention as one of torch's operators: registered, compiled, cast, and the same each time."""

from __future__ import annotations

import pytest
import torch
from ops.attention_cases import draw, small_tiles

from rooftile.ops.attention import attention, scaled_dot_product_attention
from rooftile.ops.flash.torch_ops import bwd_op, fwd_op


@pytest.fixture(autouse=True)
def _tiles(device):
    with small_tiles(device):
        yield


def causal(q, k, v):
    """Ours, by torch's signature."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


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
    compiled = torch.compile(causal, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (18, 20, 35):
        q, k, v = (
            t.requires_grad_() for t in draw(device, torch.float32, 1, 2, 2, length, length, 16)
        )
        do = torch.randn_like(q)
        with torch.compiler.set_stance("fail_on_recompile" if length > 18 else "default"):
            found = torch.autograd.grad(compiled(q, k, v), (q, k, v), do)
        for a, b in zip(found, torch.autograd.grad(causal(q, k, v), (q, k, v), do), strict=True):
            torch.testing.assert_close(a, b)


def test_autocast(device):
    """Under autocast, float32 operands are cast as for torch's attention."""
    q, k, v = draw(device, torch.float32, 1, 1, 1, 16, 16, 16)
    with torch.autocast(device, dtype=torch.bfloat16):
        o = scaled_dot_product_attention(q, k, v)
    assert o.dtype == torch.bfloat16
    assert torch.equal(o, scaled_dot_product_attention(*(t.bfloat16() for t in (q, k, v))))


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
