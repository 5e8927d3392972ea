"""attention for whatever the fast paths take: the Hopper kernels, packed sequences, pages.

The shapes are larger on a GPU than the interpreter has time for.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ops.attention_cases import assert_near, compare, small_tiles

from rooftile.bench.attention_rounding import gradient_rounding, output_rounding
from rooftile.ops.attention import attention, attention_ref

DRAWS = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
LONGEST = 700 if torch.cuda.is_available() else 40


@st.composite
def plain_calls(draw):
    """What the Hopper kernels take: 16 bits, rows of 16 bytes, causal or a window at most."""
    batch, kv_heads, group = (draw(st.integers(1, n)) for n in (2, 2, 3))
    q_len, k_len = (draw(st.integers(1, LONGEST)) for _ in range(2))
    dim = draw(st.sampled_from([64, 96, 128, 256]))
    dtype = draw(st.sampled_from([torch.float16, torch.bfloat16]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    layout = draw(st.sampled_from(["bhsd", "bshd"]))

    def operand(heads, length):
        shape = (batch, heads, length) if layout == "bhsd" else (batch, length, heads)
        return torch.randn(*shape, dim, generator=generator).to(dtype)

    options = {"layout": layout, "is_causal": draw(st.booleans())}
    options["alignment"] = draw(st.sampled_from(["top_left", "bottom_right"]))
    options["window_size"] = draw(st.sampled_from([(-1, -1), (-1, -1), (100, 30), (30, -1)]))
    options["scale"] = draw(st.sampled_from([None, 0.3]))
    operands = [operand(kv_heads * group, q_len), *(operand(kv_heads, k_len) for _ in range(2))]
    return operands, options


@pytest.mark.slow
@DRAWS
@given(plain_calls())
def test_any_plain_call(device, call):
    """Outputs, log-sum-exps and all gradients against float64, in both layouts."""
    operands, options = call
    with small_tiles(device):
        compare(*(t.to(device) for t in operands), **options)


lengths = st.lists(st.integers(0, LONGEST // 2), min_size=1, max_size=4)


@st.composite
def packings(draw):
    """Lengths of packed sequences, none or some of them empty, and rows after the last."""
    q_lens = draw(lengths)
    k_lens = draw(
        st.lists(st.integers(0, LONGEST // 2), min_size=len(q_lens), max_size=len(q_lens))
    )
    return q_lens, k_lens, draw(st.integers(0, 3)), draw(st.booleans()), draw(st.integers(0, 2**31))


def starts(lens, device):
    """Starts of packed sequences, and the end of the last."""
    return torch.tensor([0, *torch.tensor(lens).cumsum(0)], dtype=torch.int32, device=device)


@pytest.mark.slow
@DRAWS
@given(packings())
def test_any_packing(device, packing):
    """Each sequence and its gradients are as if it were alone; rows after the last are 0."""
    q_lens, k_lens, more, causal, seed = packing
    generator = torch.Generator().manual_seed(seed)
    tokens_q, tokens_k = sum(q_lens) + more, sum(k_lens) + more
    leaves = [
        torch.randn(n, heads, 16, generator=generator).to(device).requires_grad_()
        for n, heads in ((tokens_q, 4), (tokens_k, 2), (tokens_k, 2))
    ]
    do = torch.randn(tokens_q, 4, 16, generator=generator).to(device)
    with small_tiles(device):
        o = attention(
            *leaves, cu_seqlens_q=starts(q_lens, device), cu_seqlens_k=starts(k_lens, device),
            is_causal=causal,
        )  # fmt: skip
        found = torch.autograd.grad(o, leaves, do)
    truths = [t.detach().double().requires_grad_() for t in leaves]
    q, k, v = (
        t.split([*lens, more]) for t, lens in zip(truths, (q_lens, k_lens, k_lens), strict=True)
    )
    right = [
        attention_ref(*(t.transpose(0, 1)[None] for t in one), is_causal=causal)[0][0]
        for one in zip(q[:-1], k[:-1], v[:-1], strict=True)
    ]
    whole = torch.cat([*(t.transpose(0, 1) for t in right), torch.zeros_like(q[-1])])
    gradients = torch.autograd.grad(whole, truths, do.double(), materialize_grads=True)
    bounds = rounding((q_lens, k_lens), more, causal, truths, do.double())
    for name, actual, truth, bound in zip(
        ("output", "dq", "dk", "dv"), (o, *found), (whole, *gradients), bounds, strict=True
    ):
        error = (actual.double() - truth).abs().detach()
        assert (error <= bound).all(), f"{name}: {(error - bound).max():.3e} above the bound"


def rounding(lengths, more, causal, operands, do):
    """What a float32 error may be: of packed sequences, for output and gradients; 0 after them."""
    q_lens, k_lens = lengths
    split = [
        t.detach().split([*lens, more])[:-1]
        for t, lens in zip((*operands, do), (q_lens, k_lens, k_lens, q_lens), strict=True)
    ]
    found = []
    for one in zip(*split, strict=True):
        q, k, v, g = (t.transpose(0, 1) for t in one)
        group = q.shape[0] // k.shape[0]
        k, v = (t.repeat_interleave(group, 0) for t in (k, v))
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device)
        seen = seen.tril(k.shape[1] - q.shape[1]) if causal else seen
        dq, dk, dv = gradient_rounding(q, k, v, g, seen)
        dk, dv = (t.unflatten(0, (-1, group)).sum(1) for t in (dk, dv))
        bounds = (output_rounding(q, k, v, seen), dq, dk, dv)
        found.append([t.transpose(0, 1) for t in bounds])
    after = [t.new_zeros(more, *t.shape[1:]) for t in (operands[0], *operands)]
    return [torch.cat(parts) for parts in zip(*found, after, strict=True)]


@st.composite
def caches(draw):
    """Sequences of their own lengths in pages of any size, few or many queries, parts or none."""
    page = draw(st.sampled_from([1, 3, 16, 64]))
    columns = draw(st.integers(1, max(1, LONGEST // page)))
    used = draw(st.lists(st.integers(0, columns * page), min_size=1, max_size=3))
    queries, group = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    return page, columns, used, queries, group, draw(st.integers(0, 5)), draw(st.integers(0, 2**31))


@pytest.mark.slow
@DRAWS
@given(caches())
def test_any_cache_in_pages(device, cache):
    """Each sequence is as if its pages were one block; one of no key gives 0."""
    page, columns, used, queries, group, splits, seed = cache
    generator = torch.Generator().manual_seed(seed)
    table = torch.randperm(len(used) * columns, generator=generator).view(len(used), columns)
    k, v = (torch.randn(table.numel(), 2, page, 32, generator=generator) for _ in range(2))
    q = torch.randn(len(used), 2 * group, queries, 32, generator=generator)
    with small_tiles(device):
        o = attention(
            *(t.to(device) for t in (q, k, v)), block_table=table.int().to(device),
            seqused_k=torch.tensor(used, dtype=torch.int32, device=device), is_causal=True,
            num_splits=splits,
        )  # fmt: skip
    for i, n in enumerate(used):
        one = (t[table[i]].transpose(0, 1).flatten(1, 2)[None, :, :n].double() for t in (k, v))
        right, _ = attention_ref(q[i : i + 1].double(), *one, is_causal=True)
        assert_near("output", o[i : i + 1].cpu(), right)
