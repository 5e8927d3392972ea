"""Which configuration is picked, and why."""

from __future__ import annotations

import pytest
from plan.kernels import SOFTMAX, with_load

from rooftile.errors import InputError
from rooftile.plan.sweep import LATENCY_S, needed_bytes, sweep, tile_elements
from rooftile.spec.custom import custom_device
from rooftile.spec.devices import device

H100 = device("h100-sxm")


def run(outcomes, **options):
    """A sweep over BLOCK in steps of 1024, one an outcome."""
    configs = [{"BLOCK": 1024 * (i + 1)} for i in range(len(outcomes))]
    return sweep("k", "sm_90", H100, configs, outcomes, **options)


def test_the_need_is_little_s_law():
    """3.35 TB/s times 1.3 us by 132 SMs; the H200's memory wants more."""
    assert needed_bytes(H100) == 32993
    assert needed_bytes(device("h200-sxm")) == 47273
    assert needed_bytes(H100, 2 * LATENCY_S) == 65985


@pytest.mark.parametrize(("name", "tuned_kib"), [("h100-sxm", 32), ("h200-sxm", 48), ("b200", 64)])
def test_the_need_is_what_nvidia_tunes_for(name, tuned_kib):
    """CCCL's tuned bytes in flight of these GPUs, to 6 %: where the latency comes from."""
    assert needed_bytes(device(name)) == pytest.approx(tuned_kib * 1024, rel=0.06)


def test_the_largest_tile_that_meets_all_wishes():
    """Not the largest that spills, nor the one with narrow loads, nor the one below the floor."""
    result = run(
        [
            SOFTMAX,
            with_load(16, 4, registers=60),
            with_load(8, 4),
            with_load(16, 4, registers=100),
            with_load(16, 8, spill_store_bytes=8, spill_load_bytes=8),
        ]
    )
    assert result.pick == 1
    assert [row.unfit for row in result.rows] == [
        (), (), ("8-byte loads",), ("occupancy 25.0 % below 50 %",), ("spills 16 B",)
    ]  # fmt: skip
    assert "largest tile with occupancy of 50 % or more" in result.reason
    assert "65,536 B in flight, enough for the 32,993 B" in result.reason


def test_the_floor_decides():
    """At 20 % the tile with 25 % is in."""
    assert run([SOFTMAX, with_load(16, 4, registers=100)], floor=0.2).pick == 1


def test_of_equal_tiles_the_one_that_keeps_the_memory_busy():
    """Options are no part of a tile: 4 and 8 warps of one block are equals."""
    configs = [{"BLOCK": 4096, "num_warps": 4}, {"BLOCK": 4096, "num_warps": 8}]
    outcomes = [with_load(16, 1, threads=128), with_load(16, 2, threads=256)]
    assert sweep("k", "sm_90", H100, configs, outcomes).pick == 1
    assert {tile_elements(config) for config in configs} == {4096}


def test_where_none_is_right_the_least_wrong_is_taken():
    """And the reason says so."""
    result = run([with_load(2, 8), with_load(2, 8, spill_store_bytes=4)])
    assert result.pick == 0
    assert result.reason == "none meets all wishes; this one fails least (2-byte loads)"


def test_a_configuration_that_fails_is_a_row():
    """One that does not compile, one that cannot launch; with nothing else there is no pick."""
    result = run(
        ["arange's range must be a power of 2", with_load(16, 2, registers=100, threads=1024)]
    )
    first, second = result.rows
    assert (first.resources, first.error) == (None, "arange's range must be a power of 2")
    assert second.error.startswith("cannot launch: 1024 threads of 104 registers")
    assert (result.pick, result.reason) == (
        None, "none of the configurations compiles and launches"
    )  # fmt: skip


def test_bytes_in_flight_are_of_all_resident_threads():
    """8 blocks of 256 threads with 32 B each."""
    (row,) = run([SOFTMAX]).rows
    assert (row.blocks, row.warps, row.occupancy) == (8, 64, 1.0)
    assert row.in_flight_bytes == 8 * 256 * 32


@pytest.mark.parametrize("floor", [-0.1, 1.1])
def test_a_floor_is_a_share(floor):
    """0 to 1."""
    with pytest.raises(InputError, match="floor must be 0 to 1"):
        run([SOFTMAX], floor=floor)


def test_a_gpu_without_units_has_no_need():
    """Figures of one's own name no SMs."""
    with pytest.raises(InputError, match="known bandwidth and number of SMs"):
        needed_bytes(custom_device(100, 1000))


def test_a_kernel_that_loads_nothing_is_not_praised_for_its_loads():
    """No 16-byte loads, no bytes in flight: neither stands in the reason."""
    result = run([with_load(0, 0)])
    assert result.reason == (
        "the largest tile with occupancy of 50 % or more and no spills; it loads nothing"
    )


def with_matrix(**changes):
    """A kernel on the tensor cores: 255 registers of 8 warps, one block an SM, 12.5 %."""
    return with_load(16, 4, registers=255, tensor_core={"HGMMA": 8}, **changes)


def test_a_kernel_on_the_tensor_cores_has_no_floor():
    """The larger tile is picked at 12.5 %, and the reason says why."""
    result = run([with_load(16, 4, tensor_core={"HGMMA": 4}), with_matrix()])
    assert (result.pick, result.floor) == (1, 0.0)
    assert [row.unfit for row in result.rows] == [(), ()]
    assert result.reason.startswith("the largest tile without spills and with 16-byte loads")
    assert "no floor of occupancy (--floor sets one): HGMMA are tensor-core" in result.reason


def test_a_floor_that_is_given_holds_on_the_tensor_cores_too():
    """What the user asks for is what is judged by."""
    result = run([with_load(16, 4, tensor_core={"HGMMA": 4}), with_matrix()], floor=0.5)
    assert (result.pick, result.floor) == (0, 0.5)
    assert "occupancy of 50 % or more" in result.reason
    assert "tensor-core" not in result.reason


def test_the_output_tile_goes_before_the_depth_on_the_tensor_cores():
    """128 x 128 by 32 moves less than 64 x 64 by 256, however large their product."""
    configs = [
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 256, "GROUP_M": 8},
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 1},
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 1},
    ]
    outcomes = [with_matrix()] * 3
    assert sweep("k", "sm_90", H100, configs, outcomes).pick == 2
    assert tile_elements(configs[0]) == 64 * 64 * 256
    assert tile_elements(configs[0], depth=False) == 64 * 64


def test_bulk_loads_are_told_as_such():
    """A TMA kernel has no load width; it is not one that loads nothing."""
    bulk = with_load(0, 2, tensor_core={"HGMMA": 4})
    assert run([bulk]).reason.startswith("the largest tile without spills; it loads by bulk copies")
