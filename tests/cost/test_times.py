"""The floors under an op's time, and which of them is its wall."""

from __future__ import annotations

import dataclasses

import pytest

from rooftile.cost.roofline import bound, times
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.estimate import Times
from rooftile.spec.devices import device

H100 = device("h100-sxm")

MATMUL = Cost(
    matrix_flops=2 * 4096**3,
    vector_flops=4096**2,
    read_bytes=2 * 2 * 4096**2,
    write_bytes=2 * 4096**2,
    math="bf16",
)


def test_times_keep_matrix_and_vector_work_apart() -> None:
    """Each kind of work stands under its own roof; the least time is the highest floor."""
    floors = times(MATMUL, H100)
    assert floors.launch_s == 2e-6
    assert floors.matrix_s == pytest.approx(2 * 4096**3 / 989.4e12)
    assert floors.vector_s == pytest.approx(4096**2 / 66.9e12)
    assert floors.hbm_s == pytest.approx(6 * 4096**2 / 3.35e12)
    assert floors.l2_s == floors.hbm_s, "100 MB do not fit the L2"
    assert floors.least_s == floors.matrix_s
    assert bound(MATMUL, floors) == "compute"


def test_times_of_doubles() -> None:
    """A double product with a pointwise tail has the tensor roof and the vector roof."""
    cost = Cost(matrix_flops=10**12, vector_flops=10**12, math="fp64", vector_math="fp64")
    floors = times(cost, H100)
    assert floors.matrix_s == pytest.approx(1e12 / 66.9e12)
    assert floors.vector_s == pytest.approx(1e12 / 33.5e12)
    assert bound(cost, floors) == "compute"


def test_times_with_a_cache_whose_rate_is_known() -> None:
    """Traffic that fits the L2 has a warm floor below the cold one."""
    cost = Cost(vector_flops=10**6, read_bytes=16 * 10**6, write_bytes=16 * 10**6)
    floors = times(cost, device("a100-sxm-80gb"))
    assert floors.l2_s == pytest.approx(32e6 / 7.2192e12)
    assert floors.warm_s == floors.l2_s < floors.hbm_s == floors.least_s


@pytest.mark.parametrize(
    ("cost", "wall"),
    [
        (Cost(vector_flops=10**6, read_bytes=10**8, write_bytes=10**8), "memory"),
        (Cost(read_bytes=10**8), "memory"),
        (Cost(vector_flops=10**12, read_bytes=10**6), "compute"),
        (Cost(vector_flops=10, read_bytes=10**6), "launch"),
        (Cost(read_bytes=10**7, kernels=2), "launch"),
        (Cost(read_bytes=10**7, kernels=1), "memory"),
        (Cost(kernels=0), "free"),
        (Cost(), "launch"),
    ],
)
def test_bound_of_an_op(cost: Cost, wall: str) -> None:
    """The highest floor names the wall; an op without a kernel is free."""
    assert bound(cost, times(cost, H100)) == wall


def test_free_op_takes_no_time() -> None:
    """A view has no floor at all."""
    assert times(Cost(kernels=0), H100) == Times(0, 0, 0, 0, 0)


def test_launch_floor_grows_with_kernels() -> None:
    """Two microseconds a kernel until calibrated, the GPU's own figure where it has one."""
    assert times(Cost(kernels=3), H100).launch_s == pytest.approx(6e-6)
    slow = dataclasses.replace(H100, launch_s=dataclasses.replace(H100.launch_s, value=5e-6))
    assert times(Cost(kernels=3), slow).launch_s == pytest.approx(15e-6)


@pytest.mark.parametrize("field", ["matrix_flops", "vector_flops", "read_bytes", "write_bytes"])
def test_negative_cost_is_refused(field: str) -> None:
    """A fault of a formula does not turn into a fast kernel."""
    with pytest.raises(InputError, match=f"{field} must not be negative, got -1"):
        times(dataclasses.replace(MATMUL, **{field: -1}), H100)  # type: ignore[arg-type]


def test_op_in_a_dtype_the_gpu_lacks() -> None:
    """A bf16 product on a V100 is an error, its pointwise bf16 work is not."""
    v100 = device("v100-sxm2-16gb")
    with pytest.raises(InputError, match="no peak on v100-sxm2-16gb"):
        times(MATMUL, v100)
    assert times(dataclasses.replace(MATMUL, matrix_flops=0, math=""), v100).vector_s > 0


def test_unknown_bandwidth_is_an_error() -> None:
    """No time is made up for a GPU whose bandwidth is not known."""
    blank = dataclasses.replace(H100.bandwidth, value=None, source="not published")
    gpu = dataclasses.replace(H100, bandwidth=blank)
    with pytest.raises(InputError, match="bandwidth of H100 SXM5 80 GB must be known"):
        times(MATMUL, gpu)
