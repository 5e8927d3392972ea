"""GPUs by name: what resolves, what does not, and what a Device says."""

from __future__ import annotations

import pytest

from rooftile.errors import InputError, UnknownDeviceError
from rooftile.records.device import Device, MemoryLevel
from rooftile.spec.devices import device, devices
from rooftile.spec.peaks import peak, peak_figure, peak_key


def _level(gpu: Device, name: str) -> MemoryLevel:
    return next(level for level in gpu.hierarchy if level.name == name)


def test_all_gpus_are_there() -> None:
    """55 GPUs of three vendors, no id twice."""
    known = devices()
    assert len(known) == len({gpu.id for gpu in known}) == 55
    assert {gpu.vendor for gpu in known} == {"NVIDIA", "AMD", "Intel"}


@pytest.mark.parametrize("gpu", devices(), ids=lambda gpu: gpu.id)
def test_a_gpu_answers_to_its_own_names(gpu: Device) -> None:
    """The id, the full name and each alias lead to the GPU and to no other."""
    for name in (gpu.id, gpu.name, *gpu.aliases):
        assert device(name) is gpu


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Intel(R) Data Center GPU Max 1550", "intel-max-1550"),
        ("nvidia_h100_pcie", "h100-pcie"),
        ("  H100 sxm ", "h100-sxm"),
        ("h200", "h200-sxm"),
        ("MI300X", "mi300x"),
        ("Tesla T4", "t4"),
    ],
)
def test_driver_names_resolve(name: str, id_: str) -> None:
    """Names as drivers print them and people type them find the right card."""
    assert device(name).id == id_


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("h100", ["h100-sxm", "h100-pcie", "h100-nvl"]),
        ("a100", ["a100-sxm-80gb", "a100-pcie-40gb"]),
        ("NVIDIA H100 80GB HBM2e", ["h100-sxm"]),
        ("h100-smx", ["h100-sxm"]),
        ("mi300", ["mi300x", "mi300a"]),
        ("NVIDIA L40SX", ["l40s"]),
    ],
)
def test_unknown_name_lists_near_ones(name: str, near: list[str]) -> None:
    """A part of a name or a slip is never taken for a card; near ones are listed."""
    with pytest.raises(UnknownDeviceError, match="gpu must be the name of a known GPU") as caught:
        device(name)
    for id_ in near:
        assert id_ in str(caught.value)


@pytest.mark.parametrize("name", ["", "   ", "---", "quantum abacus"])
def test_hopeless_name_is_an_error_too(name: str) -> None:
    """A name that is like none says how many are known."""
    with pytest.raises(UnknownDeviceError, match="55 GPUs are known"):
        device(name)


def test_device_record_is_filled() -> None:
    """Units of the record's fields: FLOP/s, B/s, B, s."""
    gpu = device("h100-sxm")
    assert gpu.target == "sm_90"
    assert gpu.peaks["bf16"].value == 989.4e12
    assert gpu.bandwidth.value == 3.35e12
    assert gpu.memory_bytes.value == 80 * 2**30
    assert gpu.l2_bytes.value == 50 * 2**20
    assert gpu.units.value == 132
    assert gpu.launch_s.value == 2e-6
    assert "whitepaper" in gpu.peaks["bf16"].source
    assert gpu.peaks["bf16"].confidence == "B"
    assert gpu.peaks["fp4"].value is None
    assert gpu.peaks["fp4"].source == "not supported in hardware"


def test_derived_figures_say_so() -> None:
    """A figure made by formula shows the formula."""
    figure = device("h200-sxm").peaks["fp64"]
    assert device("gb200").target == "sm_100"
    assert device("mi210").bandwidth.source == "derived: 4096 bit x 3.2 Gbit/s"
    derived = device("v100-pcie-16gb").peaks["int8"]
    assert derived.source.startswith("derived: 80 units x 512 FLOP/clk x 1380 MHz; DP4A")
    assert derived.confidence == "C"
    assert figure.source


def test_hierarchy_of_an_h100() -> None:
    """Registers, shared memory, L2 and HBM of the whole device."""
    gpu = device("h100-sxm")
    assert [level.name for level in gpu.hierarchy] == ["registers", "shared memory", "L2", "HBM"]
    registers, shared, l2, memory = gpu.hierarchy
    assert registers.capacity_bytes == 132 * 65536 * 4
    assert registers.bandwidth_bytes_per_s is None
    assert shared.capacity_bytes == 132 * 228 * 1024
    assert shared.bandwidth_bytes_per_s == pytest.approx(132 * 128 * 1.98e9)
    assert "derived: 132 SM x 128 B/clk x 1980 MHz" in shared.source
    assert (l2.capacity_bytes, l2.bandwidth_bytes_per_s) == (50 * 2**20, None)
    assert "not published" in l2.source
    assert (memory.capacity_bytes, memory.bandwidth_bytes_per_s) == (80 * 2**30, 3.35e12)


@pytest.mark.parametrize(
    ("id_", "level", "rate"),
    [
        ("a100-sxm-80gb", "L2", 5120 * 1.41e9),
        ("v100-sxm2-16gb", "L2", 2048 * 1.53e9),
        ("mi300x", "L2", 8 * 16 * 128 * 2.1e9),
        ("mi300x", "Infinity Cache", 17.2e12),
        ("mi300a", "L2", 6 * 16 * 128 * 2.1e9),
        ("a30", "L2", None),
        ("mi355x", "shared memory", None),
        ("mi355x", "Infinity Cache", None),
    ],
)
def test_cache_bandwidth_only_where_the_vendor_gives_it(
    id_: str, level: str, rate: float | None
) -> None:
    """A cache's bandwidth is the vendor's rate, or unknown."""
    found = _level(device(id_), level).bandwidth_bytes_per_s
    assert found == (None if rate is None else pytest.approx(rate))


def test_hierarchy_of_amd() -> None:
    """CUs hold 512 KiB of registers; RDNA shares its LDS between two; the last cache is the L3."""
    gpu = device("mi300x")
    assert _level(gpu, "registers").capacity_bytes == 304 * 512 * 1024
    assert _level(gpu, "shared memory").capacity_bytes == 304 * 64 * 1024
    assert gpu.l2_bytes.value == _level(gpu, "Infinity Cache").capacity_bytes == 256 * 2**20
    radeon = device("rx-7900-xtx")
    assert _level(radeon, "registers").capacity_bytes == 96 * 384 * 1024
    assert _level(radeon, "shared memory").capacity_bytes == 48 * 128 * 1024


@pytest.mark.parametrize("gpu", devices(), ids=lambda gpu: gpu.id)
def test_hierarchy_is_ordered_and_sourced(gpu: Device) -> None:
    """Each level has a source; rates fall and device memory ends the row, its rate known."""
    rates = [level.bandwidth_bytes_per_s for level in gpu.hierarchy]
    known = [rate for rate in rates if rate is not None]
    assert known == sorted(known, reverse=True)
    assert rates[-1] == gpu.bandwidth.value
    assert gpu.hierarchy[-1].name in ("HBM", "GDDR", "LPDDR")
    assert all(level.source for level in gpu.hierarchy)


def test_unknown_levels_stay_unknown() -> None:
    """No number is made up where the units or their limits are not known."""
    assert _level(device("b100"), "registers").capacity_bytes is None
    assert "not published" in _level(device("b100"), "shared memory").source
    assert _level(device("arc-b580"), "shared memory").capacity_bytes is None
    assert "was not found" in _level(device("mi100"), "registers").source


@pytest.mark.parametrize(
    ("id_", "math", "key"),
    [
        ("h100-sxm", "bf16", "bf16"),
        ("h100-sxm", "fp64", "fp64_tensor"),
        ("v100-sxm2-16gb", "fp64", "fp64"),
        ("t4", "tf32", "fp32"),
        ("mi210", "tf32", "fp32_matrix"),
        ("mi210", "fp32", "fp32_matrix"),
        ("mi355x", "tf32", "fp32"),
        ("h100-sxm", "tf32", "tf32"),
        ("mi355x", "fp6", "fp6"),
    ],
)
def test_matrix_work_finds_its_roof(id_: str, math: str, key: str) -> None:
    """Products run on the tensor units where there are any; tf32 falls back to fp32."""
    gpu = device(id_)
    assert peak_key(gpu, math) == key
    assert peak(gpu, math) == peak_figure(gpu, math).value == gpu.peaks[key].value


def test_vector_work_has_the_vector_roof() -> None:
    """Pointwise doubles do not run on tensor cores, nor pointwise floats on matrix units."""
    assert peak(device("h100-sxm"), "fp64", vector=True) == 33.5e12
    assert peak(device("mi210"), "fp32", vector=True) == 22.6e12
    with pytest.raises(InputError, match="vector work must be fp32 or fp64, got 'bf16'"):
        peak(device("h100-sxm"), "bf16", vector=True)


@pytest.mark.parametrize(
    ("id_", "math", "why"),
    [
        ("v100-sxm2-16gb", "bf16", "Tesla V100 SXM2 16 GB has no bf16: no BF16 tensor cores"),
        ("t4", "bf16", "Tesla T4 has no bf16"),
        ("a100-sxm-80gb", "fp8", "A100 SXM4 80 GB has no fp8: not supported in hardware"),
        ("gb10", "bf16", "not published"),
        ("gb10", "tf32", "not published"),
        ("jetson-t5000", "int8", "not confirmed"),
        ("h100-sxm", "fp6", "there is no fp6 figure for H100 SXM5 80 GB"),
        ("h100-sxm", "", "there is no  figure"),
    ],
)
def test_missing_arithmetic_is_an_error(id_: str, math: str, why: str) -> None:
    """No other dtype stands in for one a GPU lacks; the message names dtype, GPU and reason."""
    with pytest.raises(InputError) as caught:
        peak(device(id_), math)
    message = str(caught.value)
    assert f"dtype {math!r} has no peak on {id_}" in message
    assert why in message
    assert "known peaks: fp" in message
