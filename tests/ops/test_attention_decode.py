"""Attention of few queries: split keys, caches with lengths, pages, and the plan."""

from __future__ import annotations

import math

import pytest
import torch
from ops.attention_cases import assert_near, compare, draw, small_tiles

from rooftile.errors import InputError
from rooftile.ops.attention import attention, attention_plan, attention_ref
from rooftile.ops.flash import decode
from rooftile.ops.flash.arrivals import arrivals
from rooftile.plan.launch_attention import split_count


@pytest.fixture(autouse=True)
def _tiles(device):
    with small_tiles(device):
        yield


EXTRAS = [
    {},
    {"is_causal": True},
    {"is_causal": True, "alignment": "top_left"},
    {"window_size": (20, 0)},
    {"softcap": 2.0, "scale": 1.0},
    {"scale": -0.5},
]


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("options", EXTRAS, ids=str)
def test_any_number_of_splits(options, splits, device):
    """Parts of the keys merge to the whole."""
    q, k, v = draw(device, torch.float32, 1, 4, 2, 2, 50, 24, 40)
    compare(q, k, v, num_splits=splits, **options)


def test_more_splits_than_tiles(device):
    """Parts without a key weigh nothing."""
    q, k, v = draw(device, torch.float32, 1, 2, 1, 1, 50, 16)
    compare(q, k, v, num_splits=20, window_size=(30, 0))


@pytest.mark.parametrize("splits", [1, 3])
def test_extras(splits, device):
    """Masks, slopes and sinks by head and query, though heads are packed into one tile."""
    q, k, v = draw(device, torch.float32, 2, 4, 2, 3, 40, 16)
    compare(
        q, k, v, num_splits=splits, attn_mask=torch.randn(2, 4, 3, 40, device=device),
        alibi_slopes=torch.rand(2, 4, device=device), sinks=torch.randn(4, device=device),
    )  # fmt: skip
    seen = torch.rand(4, 1, 40, device=device) > 0.5
    compare(q, k, v, num_splits=splits, attn_mask=seen)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_more_rows_than_a_tile(dtype, device):
    """A group of 5 heads and 13 queries: 65 rows in two tiles, neither full."""
    q, k, v = draw(device, dtype, 1, 5, 1, 13, 60, 32)
    compare(q, k, v, num_splits=2, is_causal=True)


@pytest.mark.parametrize("splits", [1, 4])
def test_lengths_in_a_cache(splits, device):
    """Each sequence uses its own number of keys, 0 among them; what lies after is never read."""
    q, k, v = draw(device, torch.float32, 3, 4, 2, 2, 40, 16)
    lengths = torch.tensor([0, 23, 40], dtype=torch.int32, device=device)
    k[1, :, 23:], v[1, :, 23:], k[0], v[0] = (math.nan,) * 4
    o, lse = attention(
        q, k, v, seqused_k=lengths, is_causal=True, num_splits=splits, return_lse=True
    )
    assert o[0].eq(0).all()
    assert lse[0].eq(-math.inf).all()
    for i, n in ((1, 23), (2, 40)):
        one = (t[i : i + 1].double() for t in (q, k[:, :, :n], v[:, :, :n]))
        right, right_lse = attention_ref(*one, is_causal=True)
        assert_near("output", o[i : i + 1], right)
        assert_near("log-sum-exp", lse[i : i + 1], right_lse)


def test_gradients_with_lengths(device):
    """Keys after a sequence's length have a gradient of 0, those before it the right one."""
    q, k, v = (t.requires_grad_() for t in draw(device, torch.float32, 2, 2, 1, 20, 40, 16))
    lengths = torch.tensor([0, 23], dtype=torch.int32, device=device)
    o = attention(q, k, v, seqused_k=lengths)
    do = torch.randn_like(o)
    found = torch.autograd.grad(o, (q, k, v), do)
    assert all(g[0].eq(0).all() for g in found)
    assert found[1][1, :, 23:].eq(0).all()
    assert found[2][1, :, 23:].eq(0).all()
    cut = [t[1:].detach().double()[:, :, :23].requires_grad_() for t in (q, k, v)]
    right = torch.autograd.grad(attention_ref(*cut)[0], cut, do[1:].double())
    for actual, expected in zip(found, right, strict=True):
        assert_near("gradient", actual[1:, :, :23], expected)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("splits", [0, 1, 3])
@pytest.mark.parametrize("page_size", [1, 5, 16])
def test_pages(page_size, splits, layout, device):
    """Pages of any size in any order; a sequence of 0 keys, and a last page that is not full."""
    lengths = [0, 23, 31]
    columns = -(-40 // page_size)
    table = torch.randperm(3 * columns, device=device).view(3, columns).int()
    pages = [torch.randn(3 * columns, page_size, 2, 16, device=device) for _ in range(2)]
    q = torch.randn(3, 2, 4, 16, device=device)
    used = torch.tensor(lengths, dtype=torch.int32, device=device)
    given = (q, *pages) if layout == "bshd" else (t.transpose(1, 2) for t in (q, *pages))
    o, lse = attention(
        *given, layout=layout, block_table=table, seqused_k=used, is_causal=True,
        num_splits=splits, return_lse=True,
    )  # fmt: skip
    o = o.transpose(1, 2) if layout == "bshd" else o
    for i, n in enumerate(lengths):
        k, v = (t[table[i].long()].flatten(0, 1)[:n].transpose(0, 1)[None] for t in pages)
        one = q[i : i + 1].transpose(1, 2)
        right, right_lse = attention_ref(one.double(), k.double(), v.double(), is_causal=True)
        assert_near("output", o[i : i + 1], right)
        assert_near("log-sum-exp", lse[i : i + 1], right_lse)


def test_many_queries_in_pages(device):
    """A prompt of 40 queries over pages: several tiles of rows, causal at the bottom right."""
    table = torch.randperm(12, device=device).view(1, 12).int()
    pages = [torch.randn(12, 2, 4, 16, device=device) for _ in range(2)]
    q = torch.randn(1, 4, 40, 16, device=device)
    o = attention(q, *pages, block_table=table, is_causal=True)
    k, v = (t[table[0].long()].transpose(0, 1).flatten(1, 2)[None].double() for t in pages)
    assert_near("output", o, attention_ref(q.double(), k, v, is_causal=True)[0])


@pytest.mark.parametrize("width", [1, 16, 96, 256])
@pytest.mark.parametrize("splits", [2, 17, 40])
def test_the_last_program_merges(splits, width, device):
    """Any number of parts, more than a merge reads at a time among them, of any width of values."""
    q, k, v = draw(device, torch.float32, 1, 6, 2, 5, 130, 16, width)
    sinks = torch.randn(6, device=device)
    o, lse = attention(q, k, v, sinks=sinks, num_splits=splits, return_lse=True)
    right, right_lse = attention_ref(*(t.double() for t in (q, k, v)), sinks=sinks)
    assert_near("output", o, right)
    assert_near("log-sum-exp", lse, right_lse)


def test_a_split_decode_gives_the_same_bits(device):
    """Whoever arrives last merges the parts in their order: 50 times on a GPU."""
    q, k, v = draw(device, torch.float16, 2, 8, 2, 2, 400, 32)
    first = attention(q, k, v, num_splits=9)
    for _ in range(2 if device == "cpu" else 50):
        assert torch.equal(attention(q, k, v, num_splits=9), first)


def test_counters_are_as_before(device, monkeypatch):
    """A launch leaves 0 in what it counted in, so that the next finds 0."""
    handed = []

    def arrivals_of(count, where):
        handed.append(arrivals(count, where))
        return handed[-1]

    monkeypatch.setattr(decode, "arrivals", arrivals_of)
    q, k, v = draw(device, torch.float32, 2, 4, 2, 1, 90, 16)
    attention(q, k, v, num_splits=4)
    assert len(handed) == 1
    assert handed[0].numel() >= 4
    assert handed[0].eq(0).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: CUDA graphs and streams")
def test_counters_are_not_shared_by_what_runs_at_once():
    """Calls in graphs have their own, streams have theirs; a graph replays right."""
    device = torch.device("cuda", torch.cuda.current_device())
    here = arrivals(8, device)
    assert arrivals(8, device).data_ptr() == here.data_ptr()
    with torch.cuda.stream(torch.cuda.Stream()):
        assert arrivals(8, device).data_ptr() != here.data_ptr()
    q, k, v = draw("cuda", torch.float16, 1, 8, 2, 1, 700, 64)
    expected = attention(q, k, v, num_splits=6)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [attention(q, k, v, num_splits=6) for _ in range(3)]
        inside = [arrivals(8, device).data_ptr() for _ in range(2)]
    assert len({here.data_ptr(), *inside}) == 3
    for _ in range(3):
        for o in outputs:
            o.zero_()
        graph.replay()
        assert all(torch.equal(o, expected) for o in outputs)


def test_number_of_splits_fills_the_multiprocessors():
    """12 heads of batch 1: 9 parts on 108, 11 on 132, 9 on 114 multiprocessors (tile-07)."""
    assert [split_count(12, 1000, units) for units in (108, 132, 114)] == [9, 11, 9]
    assert split_count(256, 32, 132) == 1
    assert split_count(1, 4, 132) == 4  # no part without a key
    assert split_count(0, 4, 132) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_table": [[0, 6]]}, r"block_table must hold pages in \[0, 5\], got 6"),
        ({"block_table": [[0, -1]]}, r"block_table must hold pages in \[0, 5\], got -1"),
        ({"block_table": [[0, 1], [2, 3]]}, r"block_table must be int32 of shape \[1, 'any'\]"),
        ({"seqused_k": [9]}, r"seqused_k must be in \[0, 8\], got 9"),
        ({"seqused_k": [-1]}, r"seqused_k must be in \[0, 8\], got -1"),
        ({"dropout_p": 0.5}, "dropout_p must be 0 where keys lie in pages"),
        ({"attn_mask": True}, "attn_mask must be None where sequences are packed or paged"),
    ],
)
def test_refuses(changes, message, device, monkeypatch):
    """Pages that are not there, lengths that no cache holds, and what pages have not."""
    monkeypatch.setenv("ROOFTILE_CHECK_SEQLENS", "1")
    q, k, v = draw(device, torch.float32, 6, 2, 1, 4, 4, 16)
    given = {"block_table": [[0, 5]]} | changes
    placed = {
        n: torch.tensor(t, dtype=torch.int32, device=device) if isinstance(t, list) else t
        for n, t in given.items()
    }
    if "attn_mask" in placed:
        placed["attn_mask"] = torch.ones(8, dtype=torch.bool, device=device)
    with pytest.raises(InputError, match=message):
        attention(q[:1], k, v, **placed)


def test_pages_have_no_gradient(device):
    """A gradient that cannot come is refused before the forward."""
    q, k, v = draw(device, torch.float32, 1, 1, 1, 4, 4, 16)
    table = torch.zeros(1, 1, dtype=torch.int32, device=device)
    with pytest.raises(InputError, match="key must not require a gradient"):
        attention(q, k.requires_grad_(), v, block_table=table)


def plan(q_len, k_len, **options):
    """The plan of a call on an H200, without one."""
    arch = {"arch": "sm_90", "multiprocessors": 132}
    q, k = (torch.empty(1, h, s, 128, dtype=torch.bfloat16, device="meta")
            for h, s in ((32, q_len), (8, k_len)))  # fmt: skip
    return attention_plan(q, k, k, **arch, **options)


def test_plan_of_a_decode():
    """One query of 32 heads over 8: 16 parts, 128 programs of 132 multiprocessors."""
    found = plan(1, 16_384)
    assert (found.forward, found.num_splits, found.tile.block_m) == ("decode", 16, 16)
    assert found.backward == "hopper"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"softcap": 1.0}, "no softcap"),
        ({"scale": -1.0}, "scale -1.0 is not above 0"),
        ({"window_size": (3, 0), "alignment": "bottom_right"}, "the window ends before"),
    ],
)
def test_plan_says_why_not_the_hopper_kernels(options, reason):
    """What they lack goes to the portable kernel by a rule with a name."""
    found = plan(100, 200, **options)
    assert found.forward == found.backward == "portable"
    assert found.reasons["hopper"].startswith(reason)


def test_plan_on_hopper_and_elsewhere():
    """Plain and causal calls run there, deterministic gradients too; other GPUs do not."""
    for options in ({}, {"is_causal": True}, {"window_size": (300, 5)}):
        found = plan(100, 200, **options)
        assert (found.forward, found.backward, found.tile) == ("hopper", "hopper", None)
    ordered = plan(100, 200, deterministic=True)
    assert (ordered.forward, ordered.backward) == ("hopper", "hopper")
    q, k, v = (
        torch.empty(1, 2, 100, d, dtype=torch.bfloat16, device="meta") for d in (192, 192, 128)
    )
    other_width = attention_plan(q, k, v, arch="sm_90", multiprocessors=132)
    assert (other_width.forward, other_width.backward) == ("hopper", "hopper")
    q = torch.empty(1, 2, 100, 64, dtype=torch.bfloat16, device="meta")
    elsewhere = attention_plan(q, q, q, arch="gfx942", multiprocessors=304)
    assert elsewhere.reasons["hopper"] == "gfx942 is not sm_90"


def test_plan_says_why_keys_are_not_split():
    """Many queries, and few keys."""
    assert plan(4096, 4096).reasons["decode"] == "16384 queries in a group of heads, above 64"
    assert plan(16, 16).reasons["decode"] == "16 keys are under 4 for each of 16 queries"


def test_plan_refuses_what_attention_refuses():
    """And an option that is none."""
    with pytest.raises(InputError, match="'causal' is no option; there are"):
        plan(1, 1, causal=True)
    with pytest.raises(InputError, match="softcap must be finite"):
        plan(1, 1, softcap=-1.0)
