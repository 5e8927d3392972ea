"""GPUs and rooflines as text."""

from __future__ import annotations

import re
from dataclasses import replace

import estimates

from rooftile.records.device import Figure
from rooftile.records.roofline import Achieved, Roofline
from rooftile.report.gpus import gpu_lines, list_lines
from rooftile.report.roofline import roofline_lines

POINT = Roofline(
    flops=12288.0,
    bytes=32768.0,
    gpu="custom",
    gpu_name="My GPU",
    math="",
    peak_flops_per_s=990e12,
    peak_source="given by the user",
    bandwidth_bytes_per_s=3.35e12,
    bandwidth_source="given by the user",
    intensity=0.375,
    ridge=295.5223880597015,
    attainable_flops_per_s=1.25625e12,
    fraction_of_peak=0.00126894,
    bound="memory",
    launch_s=2e-6,
    compute_s=1.2412e-11,
    l2_s=None,
    hbm_s=9.7815e-9,
    least_s=2e-6,
    launch_bound=True,
)


def cells(line) -> list[str]:
    """What stands in the columns of a line."""
    return re.split(r"\s{2,}", "".join(text for text, _ in line).strip())


def test_a_list_has_one_gpu_a_line():
    """Its id first, since that is what one types; a dash where a GPU has no such unit."""
    head, row = list_lines([estimates.GPU])
    assert cells(head)[:5] == ["id", "name", "target", "memory", "bandwidth"]
    assert cells(row)[:2] == ["h100-sxm", "H100 SXM5 80 GB"]
    assert cells(row)[4:] == ["3.35 TB/s", "66.9", "-", "989.4", "-", "-"]


def test_one_gpu_shows_the_source_of_every_figure():
    """Each with its confidence; a figure that does not exist is a dash with its reason."""
    fp4 = Figure(None, "not supported in hardware")
    device = replace(estimates.GPU, peaks={**estimates.GPU.peaks, "fp4": fp4})
    lines = [cells(line) for line in gpu_lines(device)]
    assert ["peak bf16, dense", "989.4 TFLOP/s", "B", "datasheet"] in lines
    assert ["peak fp4, dense", "-", "-", "not supported in hardware"] in lines
    assert ["L2", "50 MiB", "A", "driver"] in lines
    assert ["launch floor", "2 us", "C", "assumed"] in lines


def test_one_gpu_shows_its_memory_hierarchy():
    """Capacity binary, bandwidth decimal, and a dash for what nobody published."""
    lines = [cells(line) for line in gpu_lines(estimates.GPU)]
    assert ["registers", "33 MiB", "-", "256 KiB an SM, derived"] in lines
    assert ["HBM", "74.51 GiB", "3.35 TB/s", "datasheet"] in lines


def test_a_roofline_says_all_of_it():
    """The lesson's softmax row: 0.375 FLOP/byte, ridge 295.5, 1.26 TFLOP/s, 0.13 %, memory."""
    lines = dict(cells(line) for line in roofline_lines(POINT))
    assert lines["intensity"] == "0.375 FLOP/byte"
    assert lines["ridge"] == "295.5 FLOP/byte"
    assert lines["attainable"] == "1.256 TFLOP/s, 0.13 % of the peak"
    assert lines["bound"] == "memory, below the launch floor"
    assert lines["least time"].startswith("2 us (")
    assert "measured" not in lines


def test_a_measured_time_is_set_against_the_roof():
    """Rate, and its part of the peak, of the bandwidth and of the attainable."""
    achieved = Achieved(4e-6, 3.072e9, 8.192e9, 3.1e-6, 0.0024, 0.0024)
    lines = dict(cells(line) for line in roofline_lines(replace(POINT, achieved=achieved)))
    assert lines["measured"] == "4 us"
    assert "8.192 GB/s, 0.24 % of the bandwidth" in lines["achieved"]


def test_work_that_moves_nothing_has_no_intensity():
    """It is infinite, and said in words."""
    lines = dict(cells(line) for line in roofline_lines(replace(POINT, bytes=0.0, intensity=None)))
    assert lines["intensity"] == "none: nothing moves"
