"""The table of tiles of packed sequences that a kernel writes, against what the host would say."""

from __future__ import annotations

import itertools

import pytest
import torch

from rooftile.ops.flash import packed_tiles
from rooftile.ops.flash.packed_tiles import Packing, Tiling
from rooftile.plan.launch_hopper import Band
from rooftile.plan.launch_packed import sorted_rounds

BLOCKS = 4
EMPTY = (0,) * 6


@pytest.fixture(autouse=True)
def _blocks(monkeypatch):
    """So few that a little table has several rounds."""
    monkeypatch.setattr(packed_tiles, "sm_count", lambda _: BLOCKS)


def starts(lengths, device):
    """Starts of packed sequences, and the end of the last."""
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)


def sequences(q_lens, k_lens, after, of_keys):
    """What a record says of each sequence; rows after the last are one that sees nothing."""
    cu_q, cu_k = [0, *itertools.accumulate(q_lens)], [0, *itertools.accumulate(k_lens)]
    found = [
        (cu_q[i], q_lens[i], cu_k[i], k_lens[i], cu_q[i] // 64 + i) for i in range(len(q_lens))
    ]
    q_rest, k_rest = (0, after) if of_keys else (after, 0)
    return [*found, (cu_q[-1], q_rest, cu_k[-1], k_rest, cu_q[-1] // 64 + len(q_lens))]


def work(record, tiling, bottom):
    """Blocks of the other side that a tile sees."""
    code, _, q_len, _, k_len, _ = record
    shift, row = (k_len - q_len if bottom else 0), (code & 0xFFFF) * 64
    left, right = tiling.band.left, tiling.band.right
    band = Band(None if left is None else left - shift, None if right is None else right + shift)
    see, other = (band.queries, q_len) if tiling.of_keys else (band.keys, k_len)
    first, end = see(row, tiling.rows, other)
    return max(0, -(-end // tiling.step) - first // tiling.step)


LENGTHS = [
    ([700, 5, 0, 64, 130, 333], [130, 0, 5, 700, 64, 333]),
    ([512] * 3, [512] * 3),
    ([0], [70]),
    ([], []),
    ([1, 64, 5, 0, 130, 3] * 14, [5, 130, 64, 0, 1, 700] * 14),  # more than one program takes
]


@pytest.mark.parametrize("of_keys", [False, True])
@pytest.mark.parametrize("dealt", [False, True])
@pytest.mark.parametrize(
    ("band", "bottom"),
    [(Band(), False), (Band(None, 0), False), (Band(None, 0), True), (Band(100, 33), True)],
    ids=str,
)
@pytest.mark.parametrize(("q_lens", "k_lens"), LENGTHS, ids=lambda x: str(len(x)))
def test_every_tile_once(q_lens, k_lens, band, bottom, dealt, of_keys, device):
    """Each tile of each head has one record; the others are empty, and no block has one."""
    packing = Packing(starts(q_lens, device), starts(k_lens, device), bottom)
    tiling = Tiling(128, 64, 3, 1, 64, band, of_keys, dealt)
    after = 200
    table, count = packed_tiles.packed_tiles(
        packing, tiling, sum(q_lens) + after, sum(k_lens) + after
    )
    records = [tuple(record[:6]) for record in table.tolist()]
    wanted = {
        (head << 16 | row // 64, *which)
        for which in sequences(q_lens, k_lens, after, of_keys)
        for head in range(tiling.heads)
        for row in range(0, which[3 if of_keys else 1], tiling.rows)
    }
    tiles = [record for record in records if record != EMPTY]
    assert len(tiles) == len(wanted)
    assert set(tiles) == wanted
    if dealt:
        mine = [[records[t * BLOCKS + i] for t in range(count[i])] for i in range(BLOCKS)]
        assert {record for row in mine for record in row} - {EMPTY} == wanted
        assert all(row == [EMPTY] or EMPTY not in row for row in mine)
        assert max(map(len, mine)) - min(map(len, mine)) <= 1


def test_blocks_have_as_much_to_do(device):
    """Under a causal mask, where tiles in their own order would give a block a quarter more."""
    lengths = [1100, 900, 700, 500, 300]
    packing = Packing(starts(lengths, device), starts(lengths, device))
    tiling = Tiling(128, 128, 3, 1, 128, Band(None, 0))
    table, count = packed_tiles.packed_tiles(packing, tiling, sum(lengths), sum(lengths))
    records = [tuple(record[:6]) for record in table.tolist()]
    loads = [
        sum(work(records[t * BLOCKS + i], tiling, False) for t in range(count[i]))
        for i in range(BLOCKS)
    ]
    assert max(loads) <= 1.02 * sum(loads) / BLOCKS


@pytest.mark.parametrize("lengths", [[5, 64, 0, 130], [0, 0], [64, 64, 1], []], ids=str)
@pytest.mark.parametrize("after", [0, 70])
def test_no_sequences_share_a_block_of_rows(lengths, after, device):
    """Blocks of 64 rows start anew with each sequence, and with the rows after the last."""
    found = packed_tiles.row_blocks(
        Packing(starts(lengths, device), starts(lengths, device)), sum(lengths) + after
    ).tolist()
    wanted = {
        first // 64 + i + j: [first + 64 * j, min(64, length - 64 * j)]
        for i, (first, length) in enumerate(
            zip([0, *itertools.accumulate(lengths)], [*lengths, after], strict=True)
        )
        for j in range(-(-length // 64))
    }
    assert {i: rows for i, rows in enumerate(found) if rows[1] > 0} == wanted


@pytest.mark.parametrize(
    ("rows", "width", "group", "of_keys", "dealt", "rounds"),
    [
        (192, 64, 1, False, True, 4), (128, 128, 1, False, True, 3), (128, 256, 1, False, True, 2),
        (128, 128, 8, False, True, 4), (128, 64, 1, True, True, 3), (128, 128, 1, True, True, 1),
        (128, 64, 1, True, False, 1), (128, 256, 1, False, False, 1),
    ],
)  # fmt: skip
def test_rounds_sorted_together_fit_the_cache(rows, width, group, of_keys, dealt, rounds):
    """26 MB of K and V, 30 MB of Q, dO and sums; one where each block takes one tile."""
    assert sorted_rounds(rows, width, group, 132, of_keys, dealt) == rounds
