"""Switches, numbers, lengths of attention: a wrong kind is named, a right one is what it says."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from ops.attention_cases import draw

from rooftile.errors import InputError
from rooftile.ops.attention import (
    attention,
    attention_plan,
    attention_ref,
    scaled_dot_product_attention,
)

NO_SWITCH = [None, 0, 1, 1.0, "no", [], torch.tensor(True), torch.tensor([1, 2]), np.bool_(True)]


def call(function, device, **options):
    """A right call but for the options."""
    return function(*draw(device, torch.float32, 2, 4, 4, 5, 6, 16), **options)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("wrong", NO_SWITCH, ids=repr)
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (attention, "is_causal"),
        (attention, "deterministic"),
        (attention, "return_lse"),
        (attention_plan, "is_causal"),
        (attention_plan, "deterministic"),
        (scaled_dot_product_attention, "is_causal"),
        (scaled_dot_product_attention, "enable_gqa"),
    ],
)
def test_what_is_no_switch(function, name, wrong, device):
    """torch's attention refuses them too: ``is_causal="no"`` was causal."""
    with pytest.raises(InputError, match=f"^{name} must be True or False, got "):
        call(function, device, **{name: wrong})


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("function", [attention, attention_plan])
@pytest.mark.parametrize("name", ["layout", "alignment"])
@pytest.mark.parametrize("wrong", [None, 1, "x" * 1000, np.array(["bhsd", "x"])], ids=type)
def test_what_is_no_word(wrong, name, function, device):
    """An array has no truth of its own."""
    with pytest.raises(InputError, match=f"^{name} must be [a-z_]+ or [a-z_]+, got .{{0,110}}$"):
        call(function, device, **{name: wrong})


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("function", [attention, attention_plan])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1e39, -1e39, 10**400], ids=str)
@pytest.mark.parametrize("name", ["scale", "softcap"])
def test_a_number_that_float32_does_not_hold(name, wrong, function, device):
    """1e39 is infinite there: the output was NaN."""
    with pytest.raises(InputError, match=f"^{name} must be finite"):
        call(function, device, **{name: wrong})


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("softcap", [1e-46, 1e-38])
def test_a_softcap_by_which_none_can_divide(softcap, device):
    """1e-46 is 0 in float32: a score of 0 was NaN."""
    with pytest.raises(InputError, match=r"^softcap must be 0 or at least 1.17549"):
        call(attention, device, softcap=softcap)


@pytest.mark.parametrize("number", [np.float32(0.5), Fraction(1, 2)], ids=type)
@pytest.mark.parametrize("name", ["scale", "softcap"])
def test_numbers_of_other_types(name, number, device):
    """NumPy's and rational numbers mean the float that they are equal to."""
    q, k, v = draw(device, torch.float32, 1, 2, 2, 5, 6, 16)
    expected = attention(q, k, v, **{name: 0.5})
    assert torch.equal(attention(q, k, v, **{name: number}), expected)


@pytest.mark.parametrize("side", [2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**40, 2**63 - 1])
@pytest.mark.parametrize("other", [1, -1, None])
def test_a_window_far_wider_than_the_sequence(side, other, device):
    """It is none: 2^31 - 1 keys from a row's own place were a negative number of 32 bits."""
    q, k, v = draw(device, torch.float32, 1, 2, 1, 5, 6, 16)
    wide = side if other is None else other
    for window, same in (((side, wide), (-1, other)), ((wide, side), (other, -1))):
        expected = tuple(-1 if s is None else s for s in same)
        for alignment in ("top_left", "bottom_right"):
            leaves = [t.clone().requires_grad_() for t in (q, k, v)]
            o = attention(*leaves, window_size=window, alignment=alignment)
            truth, _ = attention_ref(
                *(t.double() for t in leaves), window_size=expected, alignment=alignment
            )
            torch.testing.assert_close(o.double(), truth, atol=1e-5, rtol=0)
            found = torch.autograd.grad(o.sum(), leaves)
            right = torch.autograd.grad(truth.sum(), leaves)
            for a, b in zip(found, right, strict=True):
                torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


@pytest.mark.parametrize("longest", [8, 2**20, 2**31 + 3, 2**40, 2**63 - 1])
def test_a_longest_sequence_beyond_the_tokens(longest, device):
    """No sequence is longer than all tokens: no more tiles are launched, or planned, for one."""
    q, k, v = (torch.randn(8, 2, 16, device=device) for _ in range(3))
    starts = torch.tensor([0, 3, 8], dtype=torch.int32, device=device)
    packed = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "is_causal": True}
    expected = attention(q, k, v, **packed)
    given = {"max_seqlen_q": longest, "max_seqlen_k": longest}
    assert torch.equal(attention(q, k, v, **packed, **given), expected)
    assert attention_plan(q, k, v, **packed, **given) == attention_plan(q, k, v, **packed)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_a_seed_that_is_none(dropout_p, device):
    """Refused where it is used and where nothing is dropped."""
    for seed in (3, True, "3"):
        with pytest.raises(InputError, match=r"^seed must be a tensor, got "):
            call(attention, device, dropout_p=dropout_p, seed=seed)
    for value in ([1, 2], [1.0], [True]):
        seed = torch.tensor(value, device=device)
        with pytest.raises(InputError, match=r"^seed must be one int64, got "):
            call(attention, device, dropout_p=dropout_p, seed=seed)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_pages_have_no_gradient(place, device):
    """Of none: that of sinks came from a kernel that cannot read pages."""
    q, k, v = draw(device, torch.float32, 6, 2, 2, 4, 4, 16)
    operands = [q[:1], k, v, torch.rand(2, device=device)]
    operands[place].requires_grad_()
    table = torch.tensor([[0, 1]], dtype=torch.int32, device=device)
    name = ("query", "key", "value", "sinks")[place]
    with pytest.raises(InputError, match=f"^{name} must not require a gradient where keys lie in"):
        attention(*operands[:3], sinks=operands[3], block_table=table)


def test_slopes_that_could_have_a_gradient(device):
    """A parameter is refused where a gradient is recorded, and read where none is."""
    q, k, v = draw(device, torch.float32, 1, 2, 2, 5, 6, 16)
    slopes = torch.rand(2, device=device)
    expected = attention(q, k, v, alibi_slopes=slopes)
    parameter = torch.nn.Parameter(slopes)
    with pytest.raises(InputError, match=r"^alibi_slopes must not require a gradient"):
        attention(q, k, v, alibi_slopes=parameter)
    with torch.no_grad():
        assert torch.equal(attention(q, k, v, alibi_slopes=parameter), expected)


def test_slopes_have_no_tangent(device):
    """It would be left out without a word."""
    q, k, v = draw(device, torch.float32, 1, 2, 2, 5, 6, 16)
    with torch.autograd.forward_ad.dual_level():
        slopes = torch.rand(2, device=device)
        dual = torch.autograd.forward_ad.make_dual(slopes, torch.ones_like(slopes))
        with pytest.raises(InputError, match=r"^alibi_slopes must have no tangent"):
            attention(q, k, v, alibi_slopes=dual)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("enabled", [False, True])
def test_a_mask_that_autocast_would_cast(enabled, device):
    """Looked at before: a float has no dtype."""
    with (
        torch.autocast(device, torch.bfloat16, enabled=enabled),
        pytest.raises(InputError, match=r"^attn_mask must be a tensor, got float"),
    ):
        call(attention, device, attn_mask=1.0)
