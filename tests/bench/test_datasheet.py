"""Rows beside what the datasheet allows: faster than the memory is an error."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from jobs import job

from rooftile.bench.run import run
from rooftile.records.measurement import Environment

H200 = Environment(
    "NVIDIA H200", "h200-sxm", "", "", "", "", "", "", {}, 132, 0, 0, None, None, None, "2026-01-01"
)


def test_faster_than_the_memory_is_an_error(case, clock, quick):
    """120 bytes in 10 ps are 12 TB/s, 2.5 times what an H200 has: never a fast kernel."""
    own = run(job(case()), clock(1e-11), H200, quick)[0]
    assert own.seconds
    assert not own.timed
    assert own.error == (
        "12000 GB/s is above the theoretical 4800 GB/s of NVIDIA H200: bytes or time are wrong"
    )


def test_a_warm_cache_may_be_faster_than_the_memory(case, clock, quick):
    """ben-01: the row says that it was warm."""
    warm = clock(1e-11)
    warm.cache = "warm"
    own = run(job(case()), warm, H200, quick)[0]
    assert (own.cache, own.error) == ("warm", "")


def test_within_the_datasheet_the_fraction_is_given(case, clock, quick):
    """120 bytes in 50 ps are 2.4 TB/s, half an H200's 4.8."""
    own = run(job(case()), clock(5e-11), H200, quick)[0]
    assert own.fraction_of_bandwidth == pytest.approx(0.5)


@pytest.mark.parametrize(("cache", "stands"), [("cold", False), ("clean", False), ("warm", True)])
def test_a_problem_within_the_cache_is_not_faster_than_the_memory(
    cache, stands, case, clock, quick
):
    """ben-01: 4 MiB in 0.5 us are 8.4 TB/s, out of a warm L2 alone; every row says which it was."""
    small = case(small=((1024, 1024),))
    ticking = clock(0.5e-6)
    ticking.cache = cache
    own = run(replace(job(small, against=()), dtype=torch.float16), ticking, H200, quick)[0]
    assert own.cost.bytes == 4 * 2**20
    assert own.cache == cache
    assert own.timed is stands
    assert ("8389 GB/s is above the theoretical 4800 GB/s" in own.error) is not stands
