"""The roofline: the lesson's numbers and the field's traps."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

import rooftile
from rooftile.cost.roofline import ridge, roofline
from rooftile.errors import InputError, UnknownDeviceError
from rooftile.records.device import Device, MemoryLevel
from rooftile.records.io import from_json, to_json
from rooftile.records.roofline import Roofline
from rooftile.spec.custom import custom_device
from rooftile.spec.devices import device, devices
from rooftile.units import bandwidth as rate_text

H100 = device("h100-sxm")
LESSON = custom_device(990, 3350)


def test_lesson_ridge() -> None:
    """990 TFLOP/s over 3.35 TB/s."""
    assert ridge(LESSON, "bf16") == pytest.approx(295.5, abs=0.05)


def test_lesson_softmax_row() -> None:
    """A row of 4096 floats at 3 FLOP each, read and written once."""
    result = rooftile.roofline(3 * 4096, 2 * 4096 * 4, peak_tflops=990, bandwidth_gbs=3350)
    assert result.intensity == 0.375
    assert result.ridge == pytest.approx(295.522, abs=1e-3)
    assert result.attainable_flops_per_s == pytest.approx(1.25625e12)
    assert result.fraction_of_peak == pytest.approx(0.0013, abs=0.00005)
    assert result.bound == "memory"
    assert result.launch_bound


@pytest.mark.parametrize(("itemsize", "intensity"), [(4, 682.7), (2, 1365.3)])
def test_lesson_matmul(itemsize: int, intensity: float) -> None:
    """4096 cubed, each matrix moved once: 682.7 in fp32, 1365.3 with elements of two bytes."""
    result = rooftile.roofline(
        2 * 4096**3, 3 * 4096**2 * itemsize, peak_tflops=990, bandwidth_gbs=3350, dtype="fp32"
    )
    assert result.intensity == pytest.approx(intensity, abs=0.05)
    assert result.bound == "compute"
    assert result.fraction_of_peak == 1.0
    assert result.attainable_flops_per_s == 990e12
    assert result.least_s == result.compute_s == pytest.approx(2 * 4096**3 / 990e12)


@pytest.mark.parametrize(
    ("gpu", "dtype", "tflops"),
    [
        ("h100-sxm", "bf16", 989.4),
        ("h100-sxm", "fp8", 1978.9),
        ("h100-sxm", "tf32", 494.7),
        ("h100-sxm", "fp32", 66.9),
        ("h100-pcie", "bf16", 756),
        ("h100-nvl", "bf16", 835.5),
        ("a100-sxm-80gb", "bf16", 312),
    ],
)
def test_roof_01_peaks_are_dense(gpu: str, dtype: str, tflops: float) -> None:
    """The peak is the dense one of the card and the dtype."""
    result = rooftile.roofline(1e12, 1e9, gpu=gpu, dtype=dtype)
    assert result.peak_flops_per_s == pytest.approx(tflops * 1e12)


def test_roof_01_utilisation_of_the_dense_peak() -> None:
    """480 TFLOP/s of bf16 on an H100 SXM are 48.5 %, neither 24.3 nor 154."""
    result = rooftile.roofline(480e12, 1e9, gpu="h100-sxm", dtype="bf16", time_s=1.0)
    assert result.achieved is not None
    assert result.achieved.flops_per_s == 480e12
    assert 100 * result.achieved.fraction_of_peak == pytest.approx(48.5, abs=0.05)


@pytest.mark.parametrize(("dtype", "micros"), [("bfloat16", 1010.7), ("tf32", 2021.4)])
def test_roof_02_least_time_of_a_tera_flop(dtype: str, micros: float) -> None:
    """1e12 FLOP on an H100 SXM take 1,010.7 us in bf16 and 2,021 us in tf32."""
    result = rooftile.roofline(1e12, 0, gpu="h100-sxm", dtype=dtype)
    assert 1e6 * result.least_s == pytest.approx(micros, abs=0.05)


def test_roof_02_factors_of_two_do_not_cancel() -> None:
    """Peak and FLOP are right apart: a matmul counts 2 per multiply-add, the peak does too."""
    assert H100.peaks["bf16"].value == pytest.approx(132 * 4096 * 1.83e9, rel=0.001)
    result = roofline(2 * 1024**3, 1, H100, "bf16")
    assert result.flops == 2147483648
    assert result.compute_s == 2147483648 / 989.4e12


@pytest.mark.parametrize(
    ("name", "tflops"),
    [("NVIDIA H100 PCIe", 756), ("NVIDIA H100 NVL", 835.5), ("NVIDIA H100 80GB HBM3", 989.4)],
)
def test_roof_04_each_h100_has_its_own_peak(name: str, tflops: float) -> None:
    """PCIe, NVL and SXM are told apart by the driver's name."""
    result = rooftile.roofline(1e12, 1e9, gpu=name, dtype="bfloat16")
    assert result.peak_flops_per_s == pytest.approx(tflops * 1e12)


def test_roof_04_unknown_card_gets_no_other_cards_peak() -> None:
    """An unknown name is an error that asks for numbers."""
    with pytest.raises(UnknownDeviceError, match="For another GPU give its peak and bandwidth"):
        rooftile.roofline(1e12, 1e9, gpu="NVIDIA H100 64GB HBM9", dtype="bf16")


def test_roof_04_peak_is_that_of_the_dtype() -> None:
    """A bf16 run is not held against the tf32 peak."""
    peaks = {
        rooftile.roofline(1e12, 1e9, gpu="a100-sxm-80gb", dtype=dtype).peak_flops_per_s
        for dtype in ("bf16", "tf32", "fp32")
    }
    assert peaks == {312e12, 156e12, 19.5e12}


def test_roof_05_achieved_bandwidth_scales_every_term() -> None:
    """A 1024 cubed fp16 GEMM with fp32 output in 1 ms moves 8.388608 decimal GB/s."""
    m = n = k = 1024
    moved = 2 * (m * k + k * n) + 4 * m * n
    result = rooftile.roofline(2 * m * n * k, moved, gpu="h100-sxm", dtype="fp16", time_s=1e-3)
    assert result.achieved is not None
    assert result.achieved.bytes_per_s == pytest.approx(8.388608e9)
    assert rate_text(result.achieved.bytes_per_s) == "8.389 GB/s"


def test_achieved_is_measured_against_the_roof_that_binds() -> None:
    """A copy at 3.0 of 3.35 TB/s attains 90 %; it has no FLOP to count by."""
    result = roofline(0, 3.0e12, H100, "fp32", vector=True, time_s=1.0)
    assert result.achieved is not None
    assert result.achieved.fraction_of_bandwidth == pytest.approx(3.0 / 3.35)
    assert result.achieved.fraction_of_attainable == pytest.approx(3.0 / 3.35)
    assert (result.intensity, result.bound, result.attainable_flops_per_s) == (0, "memory", 0)


def test_nothing_moves() -> None:
    """FLOP without bytes are compute-bound; the infinite intensity is None, also in JSON."""
    result = roofline(1e12, 0, H100, "bf16")
    assert (result.intensity, result.bound, result.fraction_of_peak) == (None, "compute", 1.0)
    assert result.hbm_s == 0
    assert json.loads(to_json(result))["intensity"] is None


def test_json_round_trip() -> None:
    """The record reads back as it was written."""
    result = roofline(1e12, 1e9, H100, "bf16", time_s=2e-3)
    assert from_json(to_json(result), Roofline) == result


def test_at_the_ridge_the_peak_is_reached() -> None:
    """From the ridge on work is compute-bound, just below it memory-bound."""
    gpu = custom_device(1, 1)  # ridge 1000
    at, below = roofline(1000, 1, gpu, "bf16"), roofline(999, 1, gpu, "bf16")
    assert (at.bound, at.fraction_of_peak) == ("compute", 1.0)
    assert below.bound == "memory"
    assert below.fraction_of_peak == pytest.approx(0.999)


@pytest.mark.parametrize("gpu", devices(), ids=lambda gpu: gpu.id)
def test_every_gpu_has_a_roofline(gpu: Device) -> None:
    """The ridge parts memory-bound from compute-bound work on each GPU and each of its peaks."""
    for key, figure in gpu.peaks.items():
        if figure.value is None:
            continue
        top = roofline(1e15, 0, gpu, key).peak_flops_per_s
        edge = ridge(gpu, key)
        assert edge == pytest.approx(top / (gpu.bandwidth.value or 0))
        low, high = (roofline(edge * 1e9 * factor, 1e9, gpu, key) for factor in (0.5, 2))
        assert (low.bound, high.bound) == ("memory", "compute")
        assert low.fraction_of_peak == pytest.approx(0.5)
        assert low.least_s == max(low.launch_s, low.hbm_s)


def test_interval_of_time() -> None:
    """Launch floor, cache-resident and cold: in that order where the cache's rate is known."""
    a100 = device("a100-sxm-80gb")
    result = roofline(1e6, 30e6, a100, "bf16")
    assert result.launch_s == 2e-6
    assert result.l2_s == pytest.approx(30e6 / (5120 * 1.41e9))
    assert result.hbm_s == pytest.approx(30e6 / 2.039e12)
    assert result.launch_s < (result.l2_s or 0) < result.hbm_s == result.least_s
    assert not result.launch_bound
    assert roofline(1e6, 50e6, a100, "bf16").l2_s is None, "50 MB do not fit 40 MiB"
    assert roofline(1e6, 30e6, H100, "bf16").l2_s is None, "no rate is known"


def test_the_last_cache_of_an_mi300x_is_the_infinity_cache() -> None:
    """100 MB fit its 256 MiB, though not the L2 below."""
    result = roofline(1e6, 100e6, device("mi300x"), "bf16")
    assert result.l2_s == pytest.approx(100e6 / 17.2e12)


def test_vector_work_has_the_vector_roof() -> None:
    """Pointwise bf16 work is computed in fp32 on the vector units, doubles in fp64."""
    half = rooftile.roofline(1e12, 1e6, gpu="h100-sxm", dtype="bf16", vector=True)
    double = rooftile.roofline(1e12, 1e6, gpu="h100-sxm", dtype="fp64", vector=True)
    assert (half.math, half.peak_flops_per_s) == ("fp32", 66.9e12)
    assert (double.math, double.peak_flops_per_s) == ("fp64", 33.5e12)
    product = rooftile.roofline(1e12, 1e6, gpu="h100-sxm", dtype="fp64")
    assert (product.math, product.peak_flops_per_s) == ("fp64_tensor", 66.9e12)


def test_numbers_may_be_text() -> None:
    """What a person types is read as on the command line."""
    typed = rooftile.roofline("12_288", "32 KiB", gpu="h100-sxm", dtype="fp32")
    assert typed == rooftile.roofline(12288, 32768, gpu=H100, dtype="float32")


def test_figures_of_ones_own_over_a_known_gpu() -> None:
    """A given peak replaces that of the dtype, a given bandwidth the bandwidth."""
    result = rooftile.roofline(
        1e12, 1e9, gpu="h100-sxm", dtype="bf16", peak_tflops=700, bandwidth_gbs=3000
    )
    assert (result.gpu, result.math) == ("h100-sxm", "bf16")
    assert (result.peak_flops_per_s, result.bandwidth_bytes_per_s) == (700e12, 3e12)
    assert result.peak_source == result.bandwidth_source == "given by the user"


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), -1e-9, 10**400])
@pytest.mark.parametrize("name", ["flops", "bytes"])
def test_impossible_work_is_refused(name: str, value: Any) -> None:
    """FLOP and bytes are finite and not negative."""
    work = {"flops": 1, "bytes": 1, name: value}
    with pytest.raises(InputError, match=f"{name} must be a finite number of at least 0, got"):
        roofline(**work, device=H100, math="bf16")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"flops": 0, "bytes": 0}, "flops and bytes must not both be 0"),
        ({"flops": "many"}, "flops must be a number such as"),
        ({"bytes": "1 parsec"}, "bytes must be a number such as"),
        ({"dtype": None}, "dtype must be given"),
        ({"dtype": "bf61"}, "dtype must be a torch dtype, got 'bf61'"),
        ({"dtype": "int64"}, "dtype must be one that matrix units take, got 'int64'"),
        ({"gpu": "t4"}, "dtype 'bf16' has no peak on t4: Tesla T4 has no bf16"),
        ({"gpu": None}, "gpu must be given, or both peak_tflops and bandwidth_gbs"),
        ({"gpu": None, "peak_tflops": 1}, "bandwidth_gbs"),
        ({"peak_tflops": -5}, "peak_tflops must be a positive number, got -5"),
        ({"time_s": 0}, "time_s must be a positive time in seconds, got 0"),
        ({"time_s": float("nan")}, "time_s must be a positive time in seconds, got nan"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    """Each error names the argument, what was wanted and what came."""
    good: dict[str, Any] = {"flops": 1, "bytes": 1, "gpu": "h100-sxm", "dtype": "bf16"}
    with pytest.raises(InputError, match=message):
        rooftile.roofline(**{**good, **arguments})


def test_a_cache_without_capacity_holds_nothing() -> None:
    """An L2 whose size is unknown gives no warm floor."""
    level = MemoryLevel("L2", None, 1e13, "")
    gpu = dataclasses.replace(H100, hierarchy=(level, H100.hierarchy[-1]))
    assert roofline(1, 1, gpu, "bf16").l2_s is None


def test_roofline_is_never_above_the_peak() -> None:
    """Attainable FLOP/s never pass the peak nor what the bandwidth feeds."""
    for exponent in range(-3, 7):
        result = roofline(10.0**exponent * 1e6, 1e6, H100, "bf16")
        assert result.attainable_flops_per_s <= 989.4e12
        fed = (result.intensity or math.inf) * 3.35e12
        assert result.attainable_flops_per_s <= fed * (1 + 1e-12)
