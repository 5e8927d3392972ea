"""attention against its definition for whatever shapes, masks and layouts are drawn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ops.attention_cases import compare, small_tiles

from rooftile.ops.attention import attention

# On a GPU a draw may compile four kernels; under the interpreter it takes a second.
DRAWS = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
lengths = st.integers(1, 40)


@st.composite
def calls(draw, dtypes=(torch.float32,)):
    """Operands, their layout, and options of attention."""
    batch, kv_heads, group = (
        draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
        draw(st.integers(1, 3)),
    )
    q_len, k_len, heads = draw(lengths), draw(lengths), kv_heads * group
    dim, v_dim = (draw(st.sampled_from([1, 8, 16, 20, 33])) for _ in range(2))
    layout = draw(st.sampled_from(["bhsd", "bshd"]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype = draw(st.sampled_from(dtypes))

    def tensor(*shape):
        return torch.randn(shape, generator=generator)

    def operand(h, s, d):
        gap = draw(st.sampled_from([1, 2]))  # elements side by side, or every second of a row
        t = tensor(batch, h, s, d * gap) if layout == "bhsd" else tensor(batch, s, h, d * gap)
        return t.to(dtype)[..., ::gap]

    options = {"layout": layout, "is_causal": draw(st.booleans())}
    options["alignment"] = draw(st.sampled_from(["top_left", "bottom_right"]))
    options["window_size"] = draw(st.sampled_from([(-1, -1), (0, 5), (7, -1), (3, 3), (50, 0)]))
    options["softcap"] = draw(st.sampled_from([0.0, 0.0, 4.0]))
    options["num_splits"] = draw(st.sampled_from([0, 0, 1, 2]))
    if draw(st.booleans()):
        options["alibi_slopes"] = tensor(heads).abs()
    if draw(st.booleans()):
        options["sinks"] = tensor(heads)
    mask = draw(st.sampled_from(["", "boolean", "additive"]))
    if mask:
        sizes = zip(
            (batch, heads, q_len, k_len), draw(st.tuples(*[st.booleans()] * 4)), strict=True
        )
        options["attn_mask"] = tensor(*(1 if one else n for n, one in sizes))
    if mask == "boolean":
        options["attn_mask"] = options["attn_mask"] > -0.5
    operands = (operand(heads, q_len, dim), operand(kv_heads, k_len, dim))
    return (*operands, operand(kv_heads, k_len, v_dim)), options


def placed(operands, options, device):
    """The same on the device."""
    moved = {n: t.to(device) if isinstance(t, torch.Tensor) else t for n, t in options.items()}
    return [t.to(device) for t in operands], moved


@pytest.mark.slow
@DRAWS
@given(calls())
def test_any_call(device, call):
    """Outputs, log-sum-exps and all gradients, in float32."""
    operands, options = placed(*call, device)
    with small_tiles(device):
        compare(*operands, **options)


@pytest.mark.slow
@DRAWS
@given(calls(dtypes=(torch.float16, torch.bfloat16)))
def test_any_call_of_16_bits(device, call):
    """The same in both dtypes of 16 bits."""
    operands, options = placed(*call, device)
    with small_tiles(device):
        compare(*operands, **options)


@DRAWS
@given(calls())
def test_nothing_depends_on_the_layout(device, call):
    """Operands with their heads inside give what copies with their heads outside give."""
    operands, options = placed(*call, device)
    swap = options.pop("layout") == "bshd"
    outside = [t.transpose(1, 2).contiguous() if swap else t.contiguous() for t in operands]
    inside = [t.transpose(1, 2) for t in outside]
    with small_tiles(device):
        o = attention(*outside, **options)
        same = attention(*inside, layout="bshd", **options).transpose(1, 2)
    torch.testing.assert_close(o, same, rtol=1e-5, atol=1e-6)
