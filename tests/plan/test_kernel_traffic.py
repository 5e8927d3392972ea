"""Binary against formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan.kernels import SOFTMAX, with_load

import rooftile
from rooftile.errors import InputError
from rooftile.records.resources import MemoryAccess

ROWS = 4096
FORMULA = 2 * ROWS * 4096 * 2  # read once, write once, bf16

TWICE = replace(
    SOFTMAX,
    loops=2,
    accesses=(
        MemoryAccess("load", 16, 1, loop=1),
        MemoryAccess("load", 16, 1, loop=2),
        MemoryAccess("store", 16, 1, loop=2),
    ),
)


def test_a_row_read_once_and_written_once():
    """2 loads and 2 stores of 16 bytes of 256 threads are a row of 4096 bf16."""
    found = rooftile.kernel_traffic(SOFTMAX, ROWS, formula_bytes=FORMULA)
    assert (found.loaded_bytes, found.stored_bytes) == (ROWS * 8192, ROWS * 8192)
    assert (found.ratio, found.flags, found.per_iteration) == (1.0, (), {})


def test_a_row_read_twice_is_flagged():
    """Two loops of two rounds each: 1.5 times the formula."""
    found = rooftile.kernel_traffic(TWICE, ROWS, trips={1: 2, 2: 2}, formula_bytes=FORMULA)
    assert found.ratio == 1.5
    assert found.flags[0].startswith("moves 1.50 times the formula's bytes")


def test_loops_without_trip_counts_are_per_iteration():
    """In no total, and without a ratio."""
    found = rooftile.kernel_traffic(TWICE, ROWS, trips={1: 2}, formula_bytes=FORMULA)
    assert found.loaded_bytes == ROWS * 8192
    assert found.per_iteration == {2: (ROWS * 4096, ROWS * 4096)}
    assert found.ratio is None


def test_two_byte_accesses_are_flagged():
    """Loads and stores apart."""
    flags = rooftile.kernel_traffic(with_load(2, 16), ROWS).flags
    assert [flag.split(":")[0] for flag in flags] == ["2-byte loads", "2-byte stores"]


def test_spills_and_bulk_copies_are_said():
    """What the count leaves out; a bulk copy has no size, so there is no ratio."""
    kernel = replace(
        SOFTMAX,
        spill_store_bytes=40,
        spill_load_bytes=48,
        accesses=(*SOFTMAX.accesses, MemoryAccess("copy to shared", 0, 1)),
    )
    found = rooftile.kernel_traffic(kernel, ROWS, formula_bytes=FORMULA)
    assert found.ratio is None
    assert [flag[:12] for flag in found.flags] == ["each thread ", "bulk copies:"]


def test_a_kernel_that_cannot_move_enough_is_flagged():
    """Half the grid: one of the three is wrong."""
    found = rooftile.kernel_traffic(SOFTMAX, ROWS // 2, formula_bytes=FORMULA)
    assert found.flags[0].startswith("can move only 0.50 of the formula's bytes")


def test_atomics_count_as_written():
    """4 bytes of every thread."""
    kernel = replace(SOFTMAX, accesses=(MemoryAccess("atomic", 4, 1),))
    found = rooftile.kernel_traffic(kernel, 10)
    assert (found.loaded_bytes, found.stored_bytes) == (0, 10 * 256 * 4)


@pytest.mark.parametrize(
    ("blocks", "trips", "message"),
    [
        (0, None, "blocks must be 1 or more, got 0"),
        (1, {3: 1}, "a loop of 1 to 2 and how often it runs, got 3=1"),
        (1, {1: -1}, "got 1=-1"),
    ],
)
def test_what_is_no_grid_or_loop_is_refused(blocks, trips, message):
    """With what came."""
    with pytest.raises(InputError, match=message):
        rooftile.kernel_traffic(TWICE, blocks, trips=trips)
