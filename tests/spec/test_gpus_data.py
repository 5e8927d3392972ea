"""The packaged figures, derived again from what they are made of."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

import pytest

DATA = resources.files("rooftile.spec") / "data"
TABLE: dict[str, Any] = json.loads((DATA / "gpus.json").read_text("utf-8"))
GPUS: dict[str, dict[str, Any]] = {entry["id"]: entry for entry in TABLE["gpus"]}
RATES: dict[str, dict[str, float]] = TABLE["flop_per_clk_per_unit"]

# Published peaks that units x rate x clock does not give within 1 %, and why. The number is
# computed over published.
OFF = {
    ("h800-sxm", "fp64"): (33.454, "fused down to 1 TFLOP/s; the chip is an H100's"),
    ("h800-sxm", "fp64_tensor"): (66.908, "fused down likewise"),
    ("l40s", "fp16"): (1.0121, "the datasheet's dense figure is not half of its sparse one"),
    ("l40s", "bf16"): (1.0121, "likewise"),
    ("b300", "fp32"): (1.0265, "the vendor's rounding: 75"),
    ("b300", "int8"): (0.9162, "the vendor's 153.5 runs at a higher clock than its bf16 figure"),
    ("gb300", "fp64"): (0.9644, "the vendor's rounding: 1.3"),
    ("gb300", "fp64_tensor"): (0.9644, "likewise"),
    ("gb300", "int8"): (0.9471, "the vendor's 165 runs at a higher clock than its bf16 figure"),
}

# Peaks that nothing can be derived for: the GPU has no rate class, or int4 has no row in it.
UNDERIVED_GPUS = {
    "h20": "cut down from an H100 by unpublished rates",
    "b100": "neither SMs nor clock were published",
    "gb10": "only fp4 is published, at an unpublished clock",
}
UNDERIVED_MATHS = {"int4"}

# Bandwidths without a bus width and pin rate beside them.
NO_BUS = {
    "h200-sxm": "pin rate not published",
    "h200-nvl": "pin rate not published",
    "gh200-144gb": "pin rate not published",
    "b100": "bus not published",
}
# Bandwidths that bus x pin rate does not give within 1 %: computed over published, and why.
BUS_OFF = {
    "gb200": (1.023, "8.18 TB/s, sold as 8"),
    "gb300": (1.023, "8.18 TB/s, sold as 8"),
    "mi325x": (1.024, "6.14 TB/s, sold as 6"),
    "mi350x": (1.024, "8.19 TB/s, sold as 8"),
    "mi355x": (1.024, "8.19 TB/s, sold as 8"),
    "b300": (0.98998, "published per board of eight, as 62 TB/s"),
}

# No document gives the clock of their tensor peaks: it was taken from one peak, so that only the
# ratios between precisions are checked.
BACK_COMPUTED = {
    "h100-nvl",
    "h200-sxm",
    "h200-nvl",
    "h800-sxm",
    "gh200-96gb",
    "gh200-144gb",
    "b200",
    "gb200",
    "b300",
    "gb300",
}


def _clocks(gpu: dict[str, Any]) -> set[float]:
    """The clocks that the entry publishes."""
    fields = ("boost_clock_mhz", "tensor_clock_mhz")
    return {gpu[field]["value"] for field in fields if field in gpu}


PEAKS = [
    (id_, math)
    for id_, gpu in GPUS.items()
    for math, peak in gpu["peak_flops_dense"].items()
    if peak["value"] is not None and id_ not in UNDERIVED_GPUS and math not in UNDERIVED_MATHS
]


@pytest.mark.parametrize(("id_", "math"), PEAKS)
def test_peak_is_units_times_rate_times_clock(id_: str, math: str) -> None:
    """Each dense peak follows from the units, the rate of their class and a published clock."""
    gpu = GPUS[id_]
    peak = gpu["peak_flops_dense"][math]
    clock = peak["check"]["clock_mhz"]
    assert clock in _clocks(gpu)
    rate = RATES[gpu["rate_class"]][math]
    computed = gpu["sm_count"]["value"] * rate * clock * 1e6
    wanted, _why = OFF.get((id_, math), (1.0, ""))
    assert computed / peak["value"] == pytest.approx(wanted, rel=1e-4 if wanted != 1 else 0.01)


def test_few_peaks_are_taken_on_trust() -> None:
    """Of all figures only those listed above, and why, escape the derivation."""
    known = sum(
        peak["value"] is not None
        for gpu in GPUS.values()
        for peak in gpu["peak_flops_dense"].values()
    )
    unknown = known - len(PEAKS)
    listed = sum(
        peak["value"] is not None
        for id_, gpu in GPUS.items()
        for math, peak in gpu["peak_flops_dense"].items()
        if id_ in UNDERIVED_GPUS or math in UNDERIVED_MATHS
    )
    assert unknown == listed == 27
    assert len(PEAKS) == 361
    assert set(OFF) <= set(PEAKS)


def test_circular_derivations_are_known() -> None:
    """257 peaks are derived from published parts; the rest proves ratios only, and where."""
    back = {
        id_
        for id_, gpu in GPUS.items()
        if gpu.get("tensor_clock_mhz", {}).get("source") == "formula"
    }
    assert back == BACK_COMPUTED
    independent = [
        (id_, math)
        for id_, math in PEAKS
        if GPUS[id_]["peak_flops_dense"][math]["source"] != "formula" and not _circular(id_, math)
    ]
    assert len(independent) == 257


def _circular(id_: str, math: str) -> bool:
    """Whether the peak's clock was itself computed from a peak."""
    gpu = GPUS[id_]
    clock = gpu["peak_flops_dense"][math]["check"]["clock_mhz"]
    return id_ in BACK_COMPUTED and clock == gpu["tensor_clock_mhz"]["value"]


@pytest.mark.parametrize("id_", [id_ for id_ in GPUS if id_ not in NO_BUS])
def test_bandwidth_is_bus_times_pin_rate(id_: str) -> None:
    """Each bandwidth follows from the bus width and the data rate of a pin."""
    bandwidth = GPUS[id_]["memory_bandwidth_bytes_per_s"]
    check = bandwidth["check"]
    computed = check["bus_bits"] / 8 * check["gbit_per_pin"] * 1e9
    wanted, _why = BUS_OFF.get(id_, (1.0, ""))
    ratio = computed / bandwidth["value"]
    assert ratio == pytest.approx(wanted, rel=5e-4 if id_ in BUS_OFF else 0.01)


def test_bandwidths_without_a_bus_are_listed() -> None:
    """A bandwidth that nothing can be derived for is in the list above."""
    lacking = {
        id_ for id_, gpu in GPUS.items() if "check" not in gpu["memory_bandwidth_bytes_per_s"]
    }
    assert lacking == set(NO_BUS)


@pytest.mark.parametrize("math", ["fp16", "bf16", "fp8", "int8"])
def test_no_peak_is_a_sparse_one(math: str) -> None:
    """No tensor peak is twice what units, dense rate and clock give."""
    for id_, gpu in GPUS.items():
        peak = gpu["peak_flops_dense"].get(math, {})
        if peak.get("value") and "check" in peak and (id_, math) not in OFF:
            assert peak["value"] < 1.05 * peak["check"]["computed"], id_


def test_every_figure_has_a_source_and_a_confidence() -> None:
    """Known figures say where they stand and how far to trust them; unknown ones say why."""
    for gpu in GPUS.values():
        figures = [value for value in gpu.values() if isinstance(value, dict) and "value" in value]
        for figure in (*figures, *gpu["peak_flops_dense"].values()):
            assert figure["source"]
            if figure["value"] is not None:
                assert figure["confidence"] in "ABCD"


@pytest.mark.parametrize("name", ["gpus.json", "arch.json"])
def test_data_names_no_machine(name: str) -> None:
    """The packaged data holds no path of a machine and no address of a package registry."""
    text = (DATA / name).read_text("utf-8")
    assert not re.search(r"/(work|root|tmp|home)/|pypi|simple/|files\.pythonhosted", text)
