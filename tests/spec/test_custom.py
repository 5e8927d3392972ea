"""One's own GPU: from two numbers and from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rooftile.errors import FileFormatError, InputError, UnknownDeviceError
from rooftile.spec.custom import MATH_KEYS, custom_device, device_from_file
from rooftile.spec.devices import device, devices
from rooftile.spec.peaks import peak

FULL = {
    "name": "My accelerator",
    "peaks_tflops": {"bf16": 990, "fp32": 67},
    "bandwidth_gbs": 3350,
    "memory_gib": 80,
    "l2_mib": 50,
    "l2_bandwidth_gbs": 5500,
    "units": 132,
    "target": "sm_90",
    "launch_us": 3,
}


def _write(folder: Path, content: Any) -> Path:
    path = folder / "gpu.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def test_two_numbers_make_a_gpu() -> None:
    """One peak is the roof of all work, matrix and vector, in every dtype."""
    gpu = custom_device(990, 3350)
    assert (gpu.id, gpu.vendor, gpu.target) == ("custom", "user", "")
    assert peak(gpu, "bf16") == peak(gpu, "fp64") == peak(gpu, "fp32", vector=True) == 990e12
    assert gpu.bandwidth.value == 3.35e12
    assert gpu.bandwidth.confidence == gpu.peaks["bf16"].confidence == "user"
    assert gpu.launch_s.value == 2e-6
    assert [level.name for level in gpu.hierarchy] == ["device memory"]


def test_math_keys_are_those_of_the_table() -> None:
    """Every key that a known GPU has can be given, and no other."""
    assert {key for gpu in devices() for key in gpu.peaks} == set(MATH_KEYS)


def test_a_known_gpu_with_a_figure_replaced() -> None:
    """Over a known GPU only what was given changes, and a note says so."""
    known = device("h100-sxm")
    gpu = custom_device(bandwidth_gbs=2000, base=known)
    assert gpu.bandwidth.value == gpu.hierarchy[-1].bandwidth_bytes_per_s == 2e12
    assert gpu.peaks == known.peaks
    assert gpu.hierarchy[:-1] == known.hierarchy[:-1]
    assert gpu.notes == (*known.notes, "given by the user: bandwidth_gbs")
    faster = custom_device(500, base=known, math_key="bf16")
    assert (peak(faster, "bf16"), peak(faster, "fp16")) == (500e12, 989.4e12)
    doubles = custom_device(40, base=known, math_key="fp64")
    assert peak(doubles, "fp64") == peak(doubles, "fp64", vector=True) == 40e12
    all_of_it = custom_device(500, base=known)
    assert all_of_it.peaks["int8"].value == 500e12
    assert all_of_it.peaks["fp4"].value is None


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "990", None])
def test_figures_must_be_positive_numbers(value: Any) -> None:
    """Nothing else passes for a peak or a bandwidth."""
    with pytest.raises(InputError, match="peak_tflops must be"):
        custom_device(value, 3350)
    with pytest.raises(InputError, match="bandwidth_gbs must be"):
        custom_device(990, value)


def test_a_file_makes_a_gpu(tmp_path: Path) -> None:
    """Every field lands in the record in its unit."""
    gpu = device_from_file(_write(tmp_path, FULL))
    assert (gpu.id, gpu.name, gpu.target) == ("custom", "My accelerator", "sm_90")
    assert {key: figure.value for key, figure in gpu.peaks.items()} == {
        "bf16": 990e12,
        "fp32": 67e12,
    }
    assert gpu.bandwidth.value == 3.35e12
    assert gpu.memory_bytes.value == 80 * 2**30
    assert gpu.l2_bytes.value == 50 * 2**20
    assert gpu.units.value == 132
    assert gpu.launch_s.value == pytest.approx(3e-6)
    l2, memory = gpu.hierarchy
    assert (l2.name, l2.capacity_bytes, l2.bandwidth_bytes_per_s) == ("L2", 50 * 2**20, 5.5e12)
    assert (memory.capacity_bytes, memory.bandwidth_bytes_per_s) == (80 * 2**30, 3.35e12)
    assert gpu.bandwidth.source == "given in gpu.json"
    with pytest.raises(InputError, match="there is no fp8 figure for My accelerator"):
        peak(gpu, "fp8")


def test_a_file_over_a_known_gpu(tmp_path: Path) -> None:
    """A base stands for all that the file leaves out."""
    path = _write(
        tmp_path, {"base": "NVIDIA H200", "bandwidth_gbs": 4500, "l2_bandwidth_gbs": 9000}
    )
    gpu = device_from_file(path)
    known = device("h200-sxm")
    assert (gpu.id, gpu.name, gpu.peaks) == (known.id, known.name, known.peaks)
    assert gpu.bandwidth.value == 4.5e12
    l2 = gpu.hierarchy[-2]
    assert (l2.capacity_bytes, l2.bandwidth_bytes_per_s) == (60 * 2**20, 9e12)


def _without(field: str) -> dict[str, Any]:
    return {key: value for key, value in FULL.items() if key != field}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(FULL)[:40], "must be a JSON file"),
        ("", "must be a JSON file"),
        ("[1, 2]", "must hold a JSON object, got list"),
        (_without("name"), "'name' must be given"),
        (_without("peaks_tflops"), "'peaks_tflops' must be given"),
        (_without("bandwidth_gbs"), "'bandwidth_gbs' must be given"),
        ({**FULL, "bandwith": 1}, "field must be one of name, .*got 'bandwith'"),
        ({**FULL, "bandwidth_gbs": "fast"}, "bandwidth_gbs must be a positive number, got 'fast'"),
        ({**FULL, "bandwidth_gbs": -1}, "bandwidth_gbs must be a positive number, got -1"),
        ({**FULL, "units": None}, "units must be a positive number, got None"),
        ({**FULL, "peaks_tflops": 990}, "peaks_tflops must be an object"),
        ({**FULL, "peaks_tflops": {}}, "peaks_tflops must be an object"),
        ({**FULL, "peaks_tflops": {"bf17": 1}}, "key of peaks_tflops must be .*got 'bf17'"),
        ({**FULL, "peaks_tflops": {"bf16": "1"}}, "bf16 must be a positive number, got '1'"),
        ({**FULL, "name": 7}, "name must be text, got 7"),
        ({**FULL, "target": ""}, "target must be text, got ''"),
    ],
)
def test_a_wrong_file_is_named_with_its_fault(tmp_path: Path, content: Any, message: str) -> None:
    """A truncated or mistaken file is an error that names the file and the field."""
    with pytest.raises(FileFormatError, match=message) as caught:
        device_from_file(_write(tmp_path, content))
    assert "gpu.json: " in str(caught.value)


def test_a_missing_or_binary_file(tmp_path: Path) -> None:
    """What cannot be read is said so."""
    with pytest.raises(FileFormatError, match=r"none\.json: cannot be read: No such file"):
        device_from_file(tmp_path / "none.json")
    binary = tmp_path / "gpu.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="must be a JSON file"):
        device_from_file(binary)


def test_an_unknown_base(tmp_path: Path) -> None:
    """A base is looked up as any GPU is."""
    with pytest.raises(UnknownDeviceError, match="h100-sxm"):
        device_from_file(_write(tmp_path, {"base": "h100", "bandwidth_gbs": 1}))
