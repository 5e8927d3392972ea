"""The GPUs that Rooftile knows, each figure with its source.

Source: ``data/gpus.json``. All peaks are dense and of one device as sold; tensor peaks accumulate
in FP32 (INT32). A name is matched whole, never by a part of it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from rooftile.errors import UnknownDeviceError
from rooftile.records.device import Device, Figure
from rooftile.spec.hierarchy import hierarchy

LAUNCH_S = 2e-6
"""Least time of one kernel [s] until a GPU is calibrated."""

_LAUNCH = Figure(LAUNCH_S, "assumed until calibrated: 2 us a kernel", "C")


def devices() -> tuple[Device, ...]:
    """All known GPUs, oldest NVIDIA first, then AMD and Intel."""
    return tuple(_device(id_) for id_ in _entries())


def device(name: str) -> Device:
    """Look a GPU up.

    Args:
        name: Its id (``"h100-sxm"``), full name, or the name its driver gives (``"NVIDIA H100 80GB
            HBM3"``), with or without the vendor. Case and punctuation do not matter.

    Returns:
        The GPU.

    Raises:
        UnknownDeviceError: No GPU has exactly that name. The message lists near ones.
    """
    found = _names().get(_plain(name))
    if found is None:
        raise _unknown(name)
    return _device(found)


def compiler_target(entry: Mapping[str, Any]) -> str:
    """``"sm_90"`` for compute capability 9.0, else the target the entry names."""
    if "compute_capability" in entry:
        return "sm_" + str(entry["compute_capability"]).replace(".", "")
    return str(entry["target"])


@cache
def _data() -> dict[str, Any]:
    text = resources.files("rooftile.spec").joinpath("data/gpus.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def _entries() -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for entry in _data()["gpus"]}


@cache
def _device(id_: str) -> Device:
    entry = _in_words(_entries()[id_])
    target = compiler_target(entry)
    last_cache = entry.get("l3_bytes", entry["l2_bytes"])
    gib = entry["memory_gb"]
    return Device(
        id=entry["id"],
        name=entry["name"],
        vendor=entry["vendor"],
        target=target,
        peaks={math: _figure(peak) for math, peak in entry["peak_flops_dense"].items()},
        bandwidth=_figure(entry["memory_bandwidth_bytes_per_s"]),
        # sold in GB, built of chips in powers of two: an "80 GB" card holds 80 GiB
        memory_bytes=Figure(gib["value"] * 2**30, f"{gib['source']}; GiB", gib["confidence"]),
        l2_bytes=_figure(last_cache),
        units=_figure(entry["sm_count"]),
        launch_s=_LAUNCH,
        hierarchy=hierarchy(entry, target),
        aliases=tuple(entry["aliases"]),
        notes=tuple(entry["notes"]),
    )


def _figure(entry: Mapping[str, Any]) -> Figure:
    return Figure(entry["value"], entry["source"], entry.get("confidence", ""))


def _in_words(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with each source spelled out and each figure's note behind its source."""
    words = dict(entry)
    for field, value in entry.items():
        if isinstance(value, dict):
            words[field] = _in_words(value)
    if "source" in entry:
        words["source"] = _source(entry)
    return words


def _source(figure: Mapping[str, Any]) -> str:
    key = figure["source"]
    check = figure.get("check")
    if key == "formula" and check:
        text = (
            f"derived: {check['units']} units x {check['flop_per_clk_per_unit']} FLOP/clk"
            f" x {check['clock_mhz']} MHz"
        )
    elif key == "bw" and check:
        text = f"derived: {check['bus_bits']} bit x {check['gbit_per_pin']} Gbit/s"
    else:
        text = _data()["sources"].get(key, {}).get("name", key)
    return f"{text}; {figure['note']}" if "note" in figure else text


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _spellings(entry: Mapping[str, Any]) -> Iterator[str]:
    vendor = _plain(entry["vendor"])
    for name in (entry["id"], entry["name"], *entry["aliases"]):
        plain = _plain(re.sub(r"\((?:R|TM)\)", "", name))
        yield plain
        yield _plain(name)
        bare = plain.removeprefix(vendor)
        yield bare
        yield vendor + bare


@cache
def _names() -> dict[str, str]:
    """Every spelling to its GPU's id. One name for two GPUs would be a fault of the table."""
    found: dict[str, str] = {}
    for id_, entry in _entries().items():
        for spelling in _spellings(entry):
            assert found.setdefault(spelling, id_) == id_, f"{spelling}: {found[spelling]}, {id_}"
    return found


def near_names(name: str, most: int = 5) -> tuple[str, ...]:
    """Ids of GPUs whose names look like the given one, nearest first."""
    plain = _plain(name)
    starts = [id_ for id_ in _entries() if plain and _plain(id_).startswith(plain)]
    close = difflib.get_close_matches(plain, _names(), n=4 * most, cutoff=0.55)
    return tuple(dict.fromkeys([*starts, *(_names()[spelling] for spelling in close)]))[:most]


def _unknown(name: str) -> UnknownDeviceError:
    near = near_names(name)
    hint = f"near names: {', '.join(near)}" if near else f"{len(_entries())} GPUs are known"
    return UnknownDeviceError(
        f"gpu must be the name of a known GPU, got {name!r}; {hint}. For another GPU give its peak"
        " and bandwidth, or a JSON file of its figures"
    )
