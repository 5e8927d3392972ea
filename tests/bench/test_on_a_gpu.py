"""The clock on a real device: what the L2 does to a small problem."""

from __future__ import annotations

import pytest
import torch

import rooftile

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def fastest(cache):
    """Our softmax of 1,024 x 1,024 float16, 2 MiB in and 2 MiB out, beside torch's."""
    rows = rooftile.benchmark(
        "softmax", shapes=[(1024, 1024)], dtype="float16", directions=("forward",),
        against=("eager",), cache=cache,
    )  # fmt: skip
    return {row.provider: row for row in rows}


def test_a_cold_cache_is_slower_than_a_warm_one_and_than_the_memory():
    """Flushed, 4 MiB come from memory, below its bandwidth; each row says which it was (ben-01)."""
    cold, warm = fastest("cold"), fastest("warm")
    for name in ("rooftile", "eager", "copy"):
        assert (cold[name].cache, warm[name].cache) == ("cold", "warm")
        assert cold[name].error == warm[name].error == ""
        fraction = cold[name].fraction_of_bandwidth
        assert fraction is None or fraction < 1
    assert cold["rooftile"].median_s > 1.1 * warm["rooftile"].median_s


def test_the_flush_is_in_no_time():
    """It writes 240 MB, tens of microseconds; an op of nothing takes less than that, cold."""
    from rooftile.bench.clock import CudaClock

    clock, one = CudaClock("cuda", "cold"), torch.zeros(1, device="cuda")
    assert min(clock.seconds(lambda: one.add_(1)) for _ in range(20)) < 20e-6
