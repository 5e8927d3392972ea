"""The kernels that list the tiles of packed sequences compile, whatever they are asked for.

The interpreter takes what the compiler does not: a name that changes its shape within a loop.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from rooftile.compile.build import compile_and_read, plan_build
from rooftile.compile.launch import record_launches
from rooftile.compile.targets import target_of
from rooftile.ops._launch import Planned, planned_for
from rooftile.ops.flash.packed_tiles import Packing, Tiling, packed_tiles, row_blocks
from rooftile.plan.launch_hopper import Band

BANDS = [(Band(), False), (Band(None, 0), False), (Band(None, 0), True), (Band(9, 0), True)]
WAYS = [
    pytest.param(*way, marks=() if way in {(4, BANDS[1], False, True), (100, BANDS[1], True, False)}
                 else pytest.mark.slow)
    for way in itertools.product((4, 100), BANDS, (False, True), (False, True))
]  # fmt: skip


def compiled(function):
    """Names of the kernels that a function launches, each compiled; none spills."""
    sm_90 = target_of("sm_90")
    with planned_for(Planned("sm_90", 132)):
        _, launches = record_launches(function, sm_90)
    for launched in launches:
        build = plan_build(launched.kernel, sm_90, launched.call, {})
        _, resources = compile_and_read(build)
        assert resources.registers * resources.threads <= 65_536
        yield build.kernel.__name__


@pytest.mark.parametrize(("sequences", "band", "of_keys", "dealt"), WAYS, ids=str)
def test_the_table_compiles(sequences, band, of_keys, dealt):
    """Few sequences and many, every mask, tiles of queries and of keys, dealt out or not."""
    cu = torch.zeros(sequences + 1, dtype=torch.int32)
    packing, tiling = Packing(cu, cu, band[1]), Tiling(128, 64, 4, 1, 128, band[0], of_keys, dealt)
    names = list(compiled(lambda: packed_tiles(packing, tiling, 4096, 4096)))
    many = ["order_sequences_kernel"] if sequences > 63 else []
    assert names == [*many, "deal_tiles_kernel"]


def test_the_blocks_of_rows_compile():
    """Those that no two sequences share."""
    cu = torch.zeros(5, dtype=torch.int32)
    assert list(compiled(lambda: row_blocks(Packing(cu, cu), 4096))) == ["row_blocks_kernel"]
