"""Attention of packed sequences: each as if it were alone."""

from __future__ import annotations

import math

import pytest
import torch
from ops.attention_cases import assert_near, small_tiles

from rooftile.errors import InputError
from rooftile.ops.attention import attention, attention_ref


@pytest.fixture(autouse=True)
def _tiles(device):
    with small_tiles(device):
        yield


def starts(lengths, device):
    """Starts of packed sequences, and the end of the last."""
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device=device)


def packed(device, tokens_q, tokens_k, heads=2, kv_heads=1, width=16):
    """Random packed operands that require gradients."""
    shapes = [(tokens_q, heads, width), (tokens_k, kv_heads, width), (tokens_k, kv_heads, width)]
    return [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]


def alone(q, k, v, q_lens, k_lens, **options):
    """The definition, sequence by sequence, in float64."""
    outputs, sums = [], []
    for a, b, c in zip(q.split(q_lens), k.split(k_lens), v.split(k_lens), strict=True):
        o, lse = attention_ref(*(t.transpose(0, 1)[None] for t in (a, b, c)), **options)
        outputs.append(o[0].transpose(0, 1))
        sums.append(lse[0])
    return torch.cat(outputs), torch.cat(sums, 1)


LENGTHS = [([17, 1, 33], [20, 5, 33]), ([0, 18, 0, 3], [4, 18, 0, 9]), ([19, 0], [0, 7])]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window_size": (6, 2)}], ids=str)
@pytest.mark.parametrize(("q_lens", "k_lens"), LENGTHS)
def test_each_sequence_as_if_alone(q_lens, k_lens, options, device):
    """Outputs and gradients, with sequences of no query, of no key and of neither (att-10)."""
    q, k, v = packed(device, sum(q_lens), sum(k_lens))
    cu_q, cu_k = starts(q_lens, device), starts(k_lens, device)
    o, lse = attention(
        q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=max(q_lens),
        max_seqlen_k=max(k_lens), return_lse=True, **options,
    )  # fmt: skip
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    right, right_lse = alone(*wide, q_lens, k_lens, **options)
    assert_near("output", o.detach(), right.detach())
    assert_near("log-sum-exp", lse.detach(), right_lse.detach())
    do = torch.randn_like(o)
    expected = torch.autograd.grad(right, wide, do.double())
    for a, b in zip(torch.autograd.grad(o, (q, k, v), do), expected, strict=True):
        assert_near("gradient", a, b)


def test_rows_after_the_last_sequence(device):
    """8 rows of which sequences hold 6: the other two give and get 0 (att-10)."""
    q, k, v = packed(device, 8, 70)
    cu_q = torch.tensor([0, 1, 1, 6], dtype=torch.int32, device=device)
    cu_k = torch.tensor([0, 2, 2, 9], dtype=torch.int32, device=device)
    o, lse = attention(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, return_lse=True)
    assert o[6:].eq(0).all()
    assert lse[:, 6:].eq(-math.inf).all()
    dq, dk, dv = torch.autograd.grad(o.sum(), (q, k, v))
    assert dq[6:].eq(0).all()
    assert dk[9:].eq(0).all()
    assert dv[9:].eq(0).all()
    assert all(t.isfinite().all() for t in (o, dq, dk, dv))


def test_without_sequences(device):
    """No sequence at all: every row is after the last."""
    q, k, v = packed(device, 5, 4)
    none = torch.zeros(1, dtype=torch.int32, device=device)
    o = attention(q, k, v, cu_seqlens_q=none, cu_seqlens_k=none)
    assert o.eq(0).all()
    assert torch.autograd.grad(o.sum(), k)[0].eq(0).all()


def test_extras_of_packed_sequences(device):
    """Slopes by sequence, softcap, sinks and dropout work on packed sequences."""
    lengths = [9, 20]
    q, k, v = packed(device, 29, 29)
    cu = starts(lengths, device)
    given = {"softcap": 3.0, "sinks": torch.randn(2, device=device), "is_causal": True}
    slopes = torch.rand(2, 2, device=device)
    o = attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, alibi_slopes=slopes, **given)
    for i, rows in enumerate((slice(0, 9), slice(9, 29))):
        one, _ = attention_ref(
            *(t[rows].transpose(0, 1)[None].double() for t in (q, k, v)),
            alibi_slopes=slopes[i], **given,
        )  # fmt: skip
        assert_near("output", o[rows].detach(), one[0].transpose(0, 1).detach())
    again = {"dropout_p": 0.5, "seed": torch.tensor([3], device=device)}
    a, b = (attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, **again) for _ in range(2))
    assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cu_seqlens_q": [0, 5, 3, 8]}, "cu_seqlens_q must start at 0, never fall and end at 8"),
        ({"cu_seqlens_k": [1, 2, 3, 8]}, "cu_seqlens_k must start at 0"),
        ({"cu_seqlens_q": [0, 2, 3, 9]}, "end at 8 at most"),
        ({"cu_seqlens_k": [0, 8]}, "cu_seqlens_k must have 4 starts like cu_seqlens_q, got 2"),
        ({"cu_seqlens_k": None}, "cu_seqlens_k must be given"),
        ({"max_seqlen_q": 2}, "max_seqlen_q must be at least 5, got 2"),
        ({"attn_mask": torch.ones(8, 8)}, "attn_mask must be None where sequences are packed"),
        ({"num_splits": 2}, "num_splits must be 0 here, got 2: sequences are packed"),
    ],
)
def test_refuses(changes, message, device, monkeypatch):
    """Starts that no packing has, and what packed sequences have not."""
    monkeypatch.setenv("ROOFTILE_CHECK_SEQLENS", "1")
    q, k, v = packed(device, 8, 8)
    given = {"cu_seqlens_q": [0, 2, 3, 8], "cu_seqlens_k": [0, 2, 3, 8]} | changes
    placed = {
        n: torch.tensor(t, dtype=torch.int32, device=device) if isinstance(t, list) else t
        for n, t in given.items()
    }
    if "attn_mask" in placed:
        placed["attn_mask"] = placed["attn_mask"].to(device)
    with pytest.raises(InputError, match=message):
        attention(q, k, v, **placed)


def test_values_are_looked_at_only_where_that_is_free_or_asked_for(monkeypatch, device):
    """On a GPU a check of numbers waits for it, so it must be asked for."""
    q, k, v = packed(device, 8, 8)
    bad = torch.tensor([0, 9], dtype=torch.int32, device=device)
    monkeypatch.setenv("ROOFTILE_CHECK_SEQLENS", "1")
    with pytest.raises(InputError, match="cu_seqlens_q must start at 0"):
        attention(q, k, v, cu_seqlens_q=bad, cu_seqlens_k=bad)
