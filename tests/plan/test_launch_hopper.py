"""Tile schedules of the Hopper attention kernels."""

from __future__ import annotations

import pytest

from rooftile.errors import InputError
from rooftile.plan.launch_hopper import (
    Band,
    backward_apart,
    flash_backward,
    flash_forward,
    sums_queries,
)
from rooftile.plan.schedule_hopper import backward_schedule, forward_schedule


@pytest.mark.parametrize("band", [Band(), Band(None, 0), Band(100, 0), Band(None, -297)])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_every_tile_is_handed_out_once(head_dim, band):
    """Each query tile of each head goes to exactly one block."""
    plan = flash_forward(head_dim)
    lists = forward_schedule(plan, 6, 2, 511, 700, band, 132)
    codes = sorted(code for tiles in lists for code in tiles)
    starts = range(0, 511, plan.rows)
    assert codes == sorted(head << 16 | row // 64 for head in range(6) for row in starts)


@pytest.mark.parametrize(
    ("columns", "queries", "keys", "band", "groups"),
    [
        (64, 512, 512, Band(), 2), (64, 1024, 1024, Band(), 3), (64, 1024, 1024, Band(None, 0), 2),
        (64, 4096, 4096, Band(None, 0), 3), (64, 4096, 4096, Band(255, 0), 2),
        (64, 4096, 4096, Band(1023, 0), 2), (64, 4096, 4096, Band(2047, 0), 3),
        (64, 100, 4096, Band(None, 3996), 3), (128, 512, 512, Band(), 2),
    ],
)  # fmt: skip
def test_queries_of_a_tile(columns, queries, keys, band, groups):
    """Of 64 columns 128 where a query sees few keys, else 192."""
    plan = flash_forward(columns, band.seen(queries, keys), band.left is not None)
    assert plan.rows == 64 * groups


def test_causal_blocks_get_equal_work():
    """Heavy tiles first keep the longest block within 3 % of the mean, 32 heads of 4096."""
    plan = flash_forward(128)
    lists = forward_schedule(plan, 512, 1, 4096, 4096, Band(None, 0), 132)
    loads = [sum((code & 0xFFFF) // 2 + 2 for code in tiles) for tiles in lists]
    assert max(loads) <= 1.03 * sum(loads) / len(loads)


@pytest.mark.parametrize("band", [Band(), Band(None, 0), Band(200, 0)])
def test_tiles_of_a_head_follow_the_order_of_its_keys(band):
    """Where masks make tiles unequal too, those of one head keep the order of their keys."""
    plan = flash_backward(128)
    lists = backward_schedule(plan, 4, 2048, 2048, band, 1)
    for head in range(4):
        keys = [code & 0xFFFF for code in lists[0] if code >> 16 == head]
        assert keys == sorted(keys)
        assert len(keys) == 16


def test_few_heads_at_a_time_add_to_sums():
    """A causal backward begins a head's tiles while few other heads are under way: L2 holds 30 MB.

    Q, dO and sums of 512 queries and 128 columns take 0.5 MB a head: 57 heads fit.
    """
    plan = flash_backward(128)
    (order,) = backward_schedule(plan, 1024, 512, 512, Band(None, 0), 1)
    begun = [code >> 16 for code in order if code & 0xFFFF == 0]
    ended = [order.index(head << 16 | 6) for head in range(1024)]
    for head in range(0, 1024, 100):
        behind = [other for other in begun if order.index(other << 16) < ended[head]]
        assert len(behind) <= head + 2 * 57


def test_long_tiles_of_128_columns_get_a_block_each():
    """From 32 steps on; short ones, and those of 64 columns, share persistent blocks."""
    assert not flash_backward(128, 32).persistent
    assert flash_backward(128, 31).persistent
    assert flash_backward(128).persistent
    assert flash_backward(64, 64).persistent


@pytest.mark.parametrize("head_dim", [40, 64, 128, 256])
def test_ordered_gradients_never_sum_queries_in_memory(head_dim):
    """Nor do heads of more than 128 columns: dQ has a kernel of its own."""
    assert not sums_queries(head_dim, deterministic=True)
    assert sums_queries(head_dim, deterministic=False) == (head_dim <= 128)
    keys, queries = backward_apart(head_dim)
    assert keys.width == queries.width >= head_dim


def test_a_wide_head_has_another_backward():
    """Above 128 columns this plan refuses, naming the argument."""
    with pytest.raises(InputError, match="head_dim must be at most 128"):
        flash_backward(256)
