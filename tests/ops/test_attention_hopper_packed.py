"""Packed sequences on the Hopper kernels: each as if it were alone; on such a GPU alone."""

from __future__ import annotations

import math

import pytest
import torch
from ops.test_attention_hopper import on_hopper

from rooftile.ops import attention_plan
from rooftile.ops.attention import attention, attention_ref

CAUSAL, TOP = {"is_causal": True}, {"is_causal": True, "alignment": "top_left"}
WINDOW = {"window_size": (100, 33)}
SELF = [700, 1, 64, 0, 129, 512, 333]  # none, one, a tile, one more, no multiple of one
QUERIES, KEYS = [200, 0, 77, 1, 300, 64, 5], [333, 50, 0, 9, 128, 700, 1]
MANY = [1, 900, 17, 0, 256, 3] * 12
# queries, keys, heads, key heads, columns, options; keys None: packed as the queries are
CASES = [
    (SELF, None, 4, 4, 128, {}),
    (SELF, None, 4, 2, 128, CAUSAL),
    (SELF, None, 4, 4, 128, WINDOW),
    (SELF, None, 4, 1, 64, {}),
    (SELF, None, 4, 4, 64, CAUSAL),
    (SELF, None, 4, 2, 64, WINDOW),
    (SELF, None, 2, 2, 256, {}),
    (SELF, None, 4, 2, 256, CAUSAL),
    (QUERIES, KEYS, 4, 2, 128, {}),
    (QUERIES, KEYS, 4, 2, 128, CAUSAL),
    (QUERIES, KEYS, 4, 4, 128, TOP),
    (QUERIES, KEYS, 4, 4, 128, WINDOW),
    (QUERIES, KEYS, 4, 4, 64, {}),
    (QUERIES, KEYS, 4, 2, 64, CAUSAL),
    (QUERIES, KEYS, 4, 2, 64, WINDOW),
    (QUERIES, KEYS, 4, 2, 256, CAUSAL),
    (QUERIES, KEYS, 4, 2, 256, WINDOW),
    (SELF, None, 4, 2, 96, CAUSAL),
    (QUERIES, KEYS, 4, 2, 40, {}),
    (MANY, None, 16, 4, 128, CAUSAL),
    (MANY, MANY[::-1], 16, 16, 64, CAUSAL),
    (MANY, MANY[::-1], 8, 8, 256, {}),
    ([0, 0], [0, 5], 2, 2, 128, CAUSAL),
]


def starts(lengths):
    """Starts of packed sequences, and the end of the last."""
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device="cuda")


def operands(case, dtype, after=0, value_columns=None):
    """Packed queries, keys, values and a gradient of the output, with rows after the last."""
    q_lens, k_lens, heads, kv_heads, columns, _ = case
    n_q, n_k = sum(q_lens) + after, sum(k_lens or q_lens) + after
    wide = value_columns or columns
    shapes = [(n_q, heads, columns), (n_k, kv_heads, columns), (n_k, kv_heads, wide),
              (n_q, heads, wide)]  # fmt: skip
    return [torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes]


def packings(case):
    """The arguments that say where the sequences lie."""
    cu_q = starts(case[0])
    return {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_q if case[1] is None else starts(case[1])}


def computed(case, q, k, v, do, deterministic=False):
    """Output, log-sum-exp and gradients by the Hopper kernels."""
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    options = case[-1] | packings(case) | {"deterministic": deterministic}
    plan = attention_plan(*leaves, **options)
    assert (plan.forward, plan.backward) == ("hopper", "hopper")
    o, lse = attention(*leaves, return_lse=True, **options)
    return o.detach(), lse.detach(), *torch.autograd.grad(o, leaves, do)


def definition(case, q, k, v, do):
    """The same in float64, sequence by sequence; rows after the last sequence see nothing."""
    q_lens, k_lens = case[0], case[1] or case[0]
    o, dq, dk, dv = (
        torch.zeros(t.shape, dtype=torch.float64, device="cuda") for t in (do, q, k, v)
    )
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf, dtype=torch.float64, device="cuda")
    at_q = at_k = 0
    for n_q, n_k in zip(q_lens, k_lens, strict=True):
        a, b = slice(at_q, at_q + n_q), slice(at_k, at_k + n_k)
        one = [t[rows].double().transpose(0, 1)[None].requires_grad_()
               for t, rows in ((q, a), (k, b), (v, b))]  # fmt: skip
        out, sums = attention_ref(*one, **case[-1])
        found = torch.autograd.grad(out, one, do[a].double().transpose(0, 1)[None])
        o[a], lse[:, a] = out[0].transpose(0, 1).detach(), sums[0].detach()
        for whole, rows, part in zip((dq, dk, dv), (a, b, b), found, strict=True):
            whole[rows] = part[0].transpose(0, 1)
        at_q, at_k = at_q + n_q, at_k + n_k
    return o, lse, dq, dk, dv


def assert_same(found, right, dtype):
    """As near as the dtype's rounding of weights, output and gradients allows."""
    bound = 5e-3 if dtype == torch.bfloat16 else 7e-4
    torch.testing.assert_close(found[1].double(), right[1], atol=1e-5, rtol=1e-5)
    for name, factor, x, y in zip(
        ("output", "dq", "dk", "dv"), (1, 2, 2, 2), (found[0], *found[2:]), (right[0], *right[2:]),
        strict=True,
    ):  # fmt: skip
        assert x.isfinite().all(), name
        error = float((x.double() - y).norm() / y.norm().clamp_min(1e-2))
        assert error < factor * bound, f"{name}: {error}"


@on_hopper
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{len(c[0])}-{c[1] is None}-{c[2:]}")
def test_each_sequence_as_if_alone(case, deterministic):
    """Output, log-sum-exp and gradients, with 37 rows after the last sequence."""
    given = operands(case, torch.bfloat16, after=37)
    assert_same(computed(case, *given, deterministic), definition(case, *given), torch.bfloat16)


@on_hopper
@pytest.mark.parametrize("columns", [(128, 64), (64, 128), (192, 128)], ids=str)
def test_values_of_another_width(columns):
    """In float16 for once."""
    case = (QUERIES, KEYS, 4, 2, columns[0], CAUSAL)
    given = operands(case, torch.float16, value_columns=columns[1])
    assert_same(computed(case, *given), definition(case, *given), torch.float16)


@on_hopper
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("columns", [64, 128, 256])
def test_nothing_leaks_from_a_neighbour(columns, poison, deterministic):
    """Every other sequence, and the rows after the last, hold NaN or infinity."""
    lengths = [33, 100, 65, 1, 70, 190, 3, 64]
    for options in ({}, CAUSAL):
        case = (lengths, None, 4, 2, columns, options)
        given = operands(case, torch.bfloat16, after=21)
        right = definition(case, *given)
        sound = torch.zeros(sum(lengths) + 21, dtype=torch.bool, device="cuda")
        at = 0
        for i, length in enumerate(lengths):
            sound[at : at + length] = i % 2 == 1
            at += length
        for t in given:
            t[~sound] = poison
        found = computed(case, *given, deterministic)
        rows = [[x[sound], y[sound]] for x, y in zip(found[:1], right[:1], strict=True)]
        rows.append([found[1][:, sound], right[1][:, sound]])
        rows += [[x[sound], y[sound]] for x, y in zip(found[2:], right[2:], strict=True)]
        assert_same(*zip(*rows, strict=True), torch.bfloat16)


@on_hopper
@pytest.mark.parametrize("columns", [64, 128, 256])
def test_fifty_times_the_same_bits(columns):
    """With ``deterministic``, whatever block takes a tile."""
    case = (SELF, None, 8, 4, columns, CAUSAL)
    given = operands(case, torch.bfloat16)
    first = computed(case, *given, deterministic=True)
    for _ in range(49):
        again = computed(case, *given, deterministic=True)
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


@on_hopper
def test_the_host_waits_for_nothing():
    """Lengths stay on the device, and a replayed graph reads those that are there then."""
    case = ([300, 20, 200, 0], None, 4, 2, 128, CAUSAL)
    q, k, v, do = operands(case, torch.bfloat16)
    where = packings(case)
    leaves = [t.requires_grad_() for t in (q, k, v)]

    def call():
        o = attention(*leaves, **CAUSAL, **where)
        return o, *torch.autograd.grad(o, leaves, do)

    call()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, *gradients = call()
    other = ([10, 250, 4, 256], None, 4, 2, 128, CAUSAL)
    where["cu_seqlens_q"].copy_(starts(other[0]))
    graph.replay()
    right = definition(other, q.detach(), k.detach(), v.detach(), do)
    lse = right[1]
    assert_same((o.detach(), lse, *gradients), right, torch.bfloat16)
