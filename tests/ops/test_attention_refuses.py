"""Bad input of attention, by whichever public function it comes: named before anything runs."""

from __future__ import annotations

import math

import pytest
import torch
from ops.attention_cases import draw

from rooftile.errors import InputError
from rooftile.ops.attention import attention, attention_plan, scaled_dot_product_attention


def shared_heads(*operands):
    """Torch's signature, with heads that may share keys."""
    return scaled_dot_product_attention(*operands, enable_gqa=True)


@pytest.mark.parametrize("function", [attention, attention_plan, shared_heads])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda q, k, v: (q[:, :3], k, v),
            "query must have a multiple of key's heads, got 3 and 2",
        ),
        (lambda q, k, v: (t.repeat(1, 1, 1, 17) for t in (q, k, v)), r"query must have a head dim"),
        (
            lambda q, k, v: (q, k, v.repeat(1, 1, 1, 17)),
            r"value must have a head dim in \[1, 256\]",
        ),
        (
            lambda q, k, v: (q, k.half(), v),
            "key must be torch.float32 like query, got torch.float16",
        ),
        (lambda q, k, v: (q, k, v.bfloat16()), "value must be torch.float32 like query"),
        (lambda q, k, v: (t.double() for t in (q, k, v)), "query must be float32, float16"),
    ],
)
def test_operands(change, message, function, device):
    """Heads that do not divide, a head dim above 256, dtypes that differ, float64."""
    q, k, v = draw(device, torch.float32, 2, 4, 2, 5, 6, 16)
    with pytest.raises(InputError, match=message):
        function(*change(q, k, v))


@pytest.mark.parametrize("function", [attention, attention_plan])
@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([0, 5, 3, 8], "cu_seqlens_k must start at 0, never fall and end at 8 at most"),
        ([0, 5, 7, 9], "cu_seqlens_k must start at 0, never fall and end at 8 at most"),
        ([1, 5, 7, 8], "cu_seqlens_k must start at 0, never fall and end at 8 at most"),
    ],
)
def test_starts(starts, message, function, device, monkeypatch):
    """Starts that fall, that end after the tokens, that leave out the first."""
    monkeypatch.setenv("ROOFTILE_CHECK_SEQLENS", "1")
    q, k, v = (torch.randn(8, 2, 16, device=device) for _ in range(3))
    right = torch.tensor([0, 5, 7, 8], dtype=torch.int32, device=device)
    wrong = torch.tensor(starts, dtype=torch.int32, device=device)
    with pytest.raises(InputError, match=message):
        function(q, k, v, cu_seqlens_q=right, cu_seqlens_k=wrong)


@pytest.mark.parametrize("function", [attention, attention_plan])
@pytest.mark.parametrize("page", [6, -1])
def test_pages(page, function, device, monkeypatch):
    """A page that is not there, where it is looked up; past a sequence's keys it is not."""
    monkeypatch.setenv("ROOFTILE_CHECK_SEQLENS", "1")
    q, k, v = draw(device, torch.float32, 6, 2, 1, 4, 4, 16)
    table = torch.tensor([[0, page]], dtype=torch.int32, device=device)
    with pytest.raises(InputError, match=rf"block_table must hold pages in \[0, 5\], got {page}"):
        function(q[:1], k, v, block_table=table)
    used = torch.tensor([4], dtype=torch.int32, device=device)
    function(q[:1], k, v, block_table=table, seqused_k=used)


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
