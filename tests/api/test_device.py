"""Which GPU the arguments mean."""

from __future__ import annotations

import json

import pytest

import rooftile
from rooftile.api.device import choose_device
from rooftile.errors import FileFormatError, InputError, UnknownDeviceError
from rooftile.records.io import write_record
from rooftile.spec.peaks import peak


def test_a_name_is_a_known_gpu():
    """By id or by its driver's name."""
    assert choose_device("NVIDIA H200").id == "h200-sxm"


def test_a_record_is_itself():
    """What rooftile.gpu gave is taken as it is."""
    device = rooftile.gpu("a30")
    assert choose_device(device) is device


def test_two_figures_are_a_gpu_of_ones_own():
    """One roof for all work, matrix and vector, and no default stands behind it."""
    device = choose_device(None, peak_tflops=990, bandwidth_gbs=3350, default="h100-sxm")
    assert (device.id, device.bandwidth.value) == ("custom", 3.35e12)
    assert peak(device, "bf16") == peak(device, "fp32", vector=True) == 990e12


def test_nothing_is_the_default_or_an_error():
    """An audit has a default, other verbs have none."""
    assert choose_device(None, default="h100-sxm").id == "h100-sxm"
    with pytest.raises(InputError, match="gpu must be given"):
        choose_device(None)
    with pytest.raises(InputError, match="gpu must be given"):
        choose_device(None, peak_tflops=990)


def test_a_figure_takes_the_place_of_the_gpus_own():
    """The bandwidth alone; the peak of the dtype alone, no other peak."""
    slower = choose_device("h100-sxm", bandwidth_gbs=3000)
    assert (slower.bandwidth.value, slower.bandwidth.confidence) == (3e12, "user")
    assert peak(slower, "bf16") == 989.4e12
    capped = choose_device("h100-sxm", peak_tflops=800, dtype="bfloat16")
    assert peak(capped, "bf16") == 800e12
    assert peak(capped, "fp32", vector=True) == 66.9e12


def test_a_peak_needs_its_dtype():
    """A GPU has one peak a dtype: which is meant must be said."""
    with pytest.raises(InputError, match="dtype must say which peak of h100-sxm"):
        choose_device("h100-sxm", peak_tflops=800)


def test_a_dtype_that_the_gpu_lacks_is_refused():
    """bf16 on Volta."""
    with pytest.raises(InputError, match="bf16"):
        choose_device("v100-sxm2-16gb", dtype="bf16")


def test_a_file_of_figures_and_a_record_both_serve(tmp_path):
    """Written by hand, or by ``rooftile gpus NAME --json``."""
    by_hand, record = tmp_path / "hand.json", tmp_path / "record.json"
    by_hand.write_text(
        json.dumps({"name": "Mine", "peaks_tflops": {"bf16": 100}, "bandwidth_gbs": 500})
    )
    write_record(record, rooftile.gpu("mi300x"))
    assert choose_device(str(by_hand)).name == "Mine"
    assert choose_device(str(record)) == rooftile.gpu("mi300x")


def test_bad_names_and_files_are_refused(tmp_path):
    """An unknown name, no such file, a truncated one."""
    cut = tmp_path / "cut.json"
    cut.write_text('{"kind": "rooftile.device"')
    with pytest.raises(UnknownDeviceError):
        choose_device("h300")
    with pytest.raises(InputError, match=r"absent\.json"):
        choose_device(str(tmp_path / "absent.json"))
    with pytest.raises(FileFormatError, match=r"cut\.json"):
        choose_device(str(cut))
