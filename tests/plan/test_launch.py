"""Launch parameters: what is planned for a row, and how it is overridden."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from rooftile.errors import InputError
from rooftile.plan.launch import FAMILIES, override, power_of_two, row_launch


@pytest.mark.parametrize(("n", "expected"), [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128)])
def test_power_of_two(n, expected):
    """The least that is at least n."""
    assert power_of_two(n) == expected


@pytest.mark.parametrize(
    ("n_cols", "kind", "rows", "block_n", "num_warps"),
    [
        (1, "tile", 4096, 1, 4),
        (256, "tile", 16, 256, 4),
        (4096, "tile", 1, 4096, 4),
        (5000, "tile", 1, 8192, 8),
        (32768, "tile", 1, 32768, 16),
        (32769, "loop", 1, 8192, 8),
    ],
)
def test_softmax_rows(n_cols, kind, rows, block_n, num_warps):
    """Short rows share a program, long ones have more warps, the longest are read in chunks."""
    plan = row_launch("softmax_fwd", n_cols, 2)
    assert (plan.kind, plan.rows, plan.block_n, plan.num_warps) == (kind, rows, block_n, num_warps)


@pytest.mark.parametrize(
    ("n_cols", "itemsize", "rows", "block_n", "num_warps"),
    [
        (1, 2, 1024, 1, 4),
        (256, 2, 4, 256, 4),
        (2048, 2, 1, 2048, 4),
        (2049, 2, 1, 4096, 8),
        (32000, 2, 1, 4096, 8),
        (128256, 2, 1, 4096, 8),
        (32000, 4, 1, 2048, 8),
    ],
)
def test_streamed_logits(n_cols, itemsize, rows, block_n, num_warps):
    """Chunks of 8 KiB have eight warps, so that a thread has two accesses of 16 bytes in flight."""
    plan = row_launch("cross_entropy_fwd", n_cols, itemsize)
    got = (plan.kind, plan.rows, plan.block_n, plan.num_warps, plan.num_stages)
    assert got == ("loop", rows, block_n, num_warps, 1)


@pytest.mark.parametrize("n_cols", [50257, 65536, 131072, 262144])
def test_clusters_share_long_rows(n_cols):
    """Where there are clusters, their programs together hold the row."""
    plan = row_launch("softmax_fwd", n_cols, 2, clusters=8)
    assert plan.kind == "cluster"
    assert plan.cluster in (2, 4, 8)
    assert plan.cluster * plan.block_n == power_of_two(n_cols)


@pytest.mark.parametrize(
    ("family", "n_cols", "cluster", "block_n"),
    [
        ("layer_norm_fwd", 32768, 2, 16384),
        ("layer_norm_fwd", 262144, 16, 16384),
        ("layer_norm_fwd", 50257, 8, 8192),
        ("norm_fwd", 65536, 4, 16384),
        ("add_norm_fwd", 262144, 16, 16384),
        ("norm_bwd", 131072, 16, 8192),
        ("add_norm_bwd", 131072, 16, 8192),
    ],
)
def test_norms_of_long_rows_stay_on_the_sms(family, n_cols, cluster, block_n):
    """Parts are 16 or 32 KiB; where the grid must follow the rows alone, nothing stays."""
    plan = row_launch(family, n_cols, 2, clusters=16, stay=True)
    assert (plan.kind, plan.cluster, plan.block_n) == ("resident", cluster, block_n)
    assert plan.num_stages != 1 <= plan.programs_per_sm
    assert row_launch(family, n_cols, 2, clusters=16).kind != "resident"


@pytest.mark.parametrize(
    ("family", "n_cols", "cluster", "num_warps"),
    [
        ("layer_norm_fwd", 8192, 1, 8),
        ("norm_fwd", 16384, 1, 16),
        ("norm_fwd", 32768, 4, 8),
        ("norm_fwd", 30001, 4, 4),
        ("add_norm_fwd", 50257, 4, 16),
        ("softmax_fwd", 12345, 2, 4),
        ("softmax_bwd", 12345, 4, 4),
    ],
)
def test_rows_whose_warps_exchange_sums(family, n_cols, cluster, num_warps):
    """Where warps can, they share a row without a barrier, within one program too."""
    plan = row_launch(family, n_cols, 2, clusters=16, stay=True)
    assert (plan.kind, plan.cluster, plan.num_warps) == ("cluster", cluster, num_warps)


@pytest.mark.parametrize(
    ("family", "n_cols", "cluster", "num_warps", "programs_per_sm"),
    [
        ("norm_bwd", 8192, 4, 4, 4), ("norm_bwd", 12345, 8, 4, 4), ("norm_bwd", 32768, 8, 4, 2),
        ("norm_bwd", 65536, 16, 4, 2), ("add_norm_bwd", 12345, 4, 8, 2),
        ("add_norm_bwd", 65536, 16, 8, 2),
    ],
)  # fmt: skip
def test_norms_backward_keeps_columns_in_registers(
    family, n_cols, cluster, num_warps, programs_per_sm
):
    """16-bit rows from 16 KiB on; the programs of an SM have all of its registers."""
    plan = row_launch(family, n_cols, 2, clusters=16, stay=True)
    assert plan.kind == "cluster"
    assert (plan.cluster, plan.num_warps) == (cluster, num_warps)
    assert (plan.programs_per_sm, plan.num_stages) == (programs_per_sm, 2)
    assert plan.max_registers == min(255, 65536 // (32 * num_warps * programs_per_sm))
    assert plan.block_n // num_warps // 32 in (16, 32)


def test_norms_backward_without_room_for_a_cluster():
    """Clusters of 8 hold half of 65,536 columns in registers; float32 is read through memory."""
    assert row_launch("norm_bwd", 65536, 2, clusters=8, stay=True).kind == "resident"
    assert row_launch("norm_bwd", 16384, 4, clusters=16, stay=True).kind == "resident"
    assert row_launch("norm_bwd", 16384, 2, clusters=16).kind == "loop"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize(
    ("clusters", "stay"), [(0, False), (8, False), (8, True), (16, False), (16, True)]
)
def test_every_plan_can_be_launched(family, itemsize, clusters, stay):
    """Blocks, warps and clusters are powers of two, a tile holds the row, nothing is too large."""
    for n_cols in (1, 3, 64, 1000, 4096, 16384, 50257, 262144, 10**6):
        plan = row_launch(family, n_cols, itemsize, clusters=clusters, stay=stay)
        for size in (plan.rows, plan.block_n, plan.num_warps, plan.cluster):
            assert size == power_of_two(size) >= 1
        assert plan.num_warps <= 32
        assert plan.cluster <= max(1, clusters)
        assert plan.rows * plan.block_n * plan.cluster <= 2**20
        if plan.kind in ("tile", "cluster", "resident"):
            assert plan.block_n * plan.cluster >= n_cols
        assert clusters or plan.kind != "cluster"
        assert stay or plan.kind != "resident"


def test_override_holds_while_it_lasts():
    """Fields are replaced inside the context; the plan is back afterwards, after an error too."""
    before = row_launch("norm_fwd", 1024, 2)
    with override("norm_fwd", num_warps=2):
        with override("norm_fwd", rows=1):
            assert row_launch("norm_fwd", 1024, 2).rows == 1
        assert row_launch("norm_fwd", 1024, 2).num_warps == 2
        assert astuple(row_launch("softmax_fwd", 1024, 2))[3] == 4
    assert row_launch("norm_fwd", 1024, 2) == before
    with pytest.raises(ZeroDivisionError), override("norm_fwd", num_warps=2):
        raise ZeroDivisionError
    assert row_launch("norm_fwd", 1024, 2) == before


def test_override_refuses_unknown_names():
    """A family or a parameter that does not exist is named."""
    with pytest.raises(InputError, match=r"family must be one of softmax_fwd.*got 'softmax'"):
        override("softmax").__enter__()
    with pytest.raises(InputError, match="'warps' is no launch parameter; there are block_n"):
        override("softmax_fwd", warps=4).__enter__()
