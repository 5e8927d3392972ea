"""An audit as one HTML page that needs no network: charts, findings, a table of every op, sources.

The words and totals are written here; everything about single ops is drawn in the page from the
columns of :mod:`rooftile.report.store`. A content security policy forbids the page to load
anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import jinja2

import rooftile
from rooftile import units
from rooftile.records.device import Device, Figure
from rooftile.records.estimate import Estimate
from rooftile.records.plan import Plan
from rooftile.report.insights import Insight, estimate_of, insights
from rooftile.report.store import store_json
from rooftile.report.text import total_pairs

_SCRIPTS = (
    "format.js",
    "store.js",
    "theme.js",
    "tooltip.js",
    "selection.js",
    "details.js",
    "table.js",
    "roofline.js",
    "treemap.js",
    "bars.js",
    "fusion.js",
    "print.js",
    "page.js",
)
_TOP_FINDINGS = 6
_BOUNDS = ("compute", "memory", "launch", "unpriced")
_CONFIDENCE = {
    "A": "read off a device or a vendor's file",
    "B": "quoted from the vendor",
    "C": "derived or recalled",
    "D": "unofficial",
    "user": "given by you",
}


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of the bar of least time."""

    name: str
    text: str
    percent: str
    width: float  # of 100


@dataclass(frozen=True, slots=True)
class _Level:
    """One level of the memory hierarchy; the width of its bandwidth's bar of 100, 0 for unknown."""

    name: str
    capacity: str
    bandwidth: str
    source: str
    bandwidth_width: float


def html_report(record: Estimate | Plan) -> bytes:
    """The whole page, UTF-8.

    Args:
        record: A plan, or an estimate alone: then the page has no verdicts and no fusion groups.
    """
    estimate = estimate_of(record)
    plan = record if isinstance(record, Plan) else None
    found = insights(record)
    page = (
        _environment()
        .get_template("report.html")
        .render(
            estimate=estimate,
            plan=plan,
            graph=estimate.graph,
            device=estimate.device,
            totals=estimate.totals,
            tiles=_tiles(estimate, plan),
            bound_parts=_bound_parts(estimate),
            total_pairs=_totals(estimate),
            findings=found[:_TOP_FINDINGS],
            more_findings=found[_TOP_FINDINGS:],
            levels=_levels(estimate.device),
            figures=_figures(estimate.device),
            refusals=_refusals(plan),
            confidence=_CONFIDENCE,
            version=rooftile.__version__,
            style=_asset("report.css"),
            script="\n".join(_asset(name) for name in _SCRIPTS),
            plotly=_plotly(),
            store=store_json(record),
        )
    )
    return page.encode()


def _environment() -> jinja2.Environment:
    """Templates whose every text is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rooftile.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": units.count,
        "percent": units.percent,
        "saved": _saved,
        "micro": _micro,
    }
    return environment


@cache
def _plotly() -> str:
    """plotly.js as its Python package ships it: the full bundle is the only one it has."""
    return resources.files("plotly").joinpath("package_data", "plotly.min.js").read_text("utf-8")


def _asset(name: str) -> str:
    """A file of ours that goes into the page as it stands."""
    return resources.files("rooftile.report").joinpath("templates", name).read_text("utf-8")


def _tiles(estimate: Estimate, plan: Plan | None) -> list[tuple[str, str, str]]:
    """The figures to see first: name, figure, and a word more."""
    totals = estimate.totals
    launch_s = sum(op.times.launch_s for op in estimate.ops)
    ops = f"{units.count(totals.ops - totals.unpriced_ops)} priced"
    tiles = [
        ("Least time", _seconds(totals.least_s), f"{_seconds(launch_s)} of launches alone"),
        ("HBM traffic", units.traffic(totals.bytes), f"{units.count(totals.bytes)} B"),
        ("Matrix work", units.flop(totals.matrix_flops), _dense(estimate)),
        ("Vector work", units.flop(totals.vector_flops), f"{units.count(totals.vector_flops)}"),
        ("Ops", units.count(totals.ops), ops if totals.unpriced_ops else "every op priced"),
    ]
    if plan is not None:
        saved_s = sum(group.saved_s for group in plan.groups)
        saved = sum(group.saved_bytes for group in plan.groups)
        word = f"{units.traffic(saved)}, {units.percent(saved_s, totals.least_s)} of the step"
        tiles.insert(1, ("Fusion saves", _seconds(saved_s), word))
    return tiles


def _dense(estimate: Estimate) -> str:
    """The count without a mask's savings, where it differs."""
    totals = estimate.totals
    if totals.dense_matrix_flops == totals.matrix_flops:
        return units.count(totals.matrix_flops)
    return f"{units.flop(totals.dense_matrix_flops)} without the mask's savings"


def _bound_parts(estimate: Estimate) -> list[_Part]:
    """The least time by the wall it is spent at."""
    totals = estimate.totals
    return [
        _Part(
            name, _seconds(time), units.percent(time, totals.least_s), 100 * time / totals.least_s
        )
        for name in _BOUNDS
        if (time := totals.bound_s.get(name, 0.0)) > 0
    ]


def _totals(estimate: Estimate) -> list[tuple[str, str]]:
    """The totals of the text report, less what the bar beside them shows."""
    return [
        (name, text)
        for name, text in total_pairs(estimate)
        if not name.startswith(" ") and name != "assumed"
    ]


def _levels(device: Device) -> list[_Level]:
    """The memory hierarchy with widths to draw."""
    bandwidths = [float(level.bandwidth_bytes_per_s or 0) for level in device.hierarchy]
    return [
        _Level(
            name=level.name,
            capacity=units.capacity(level.capacity_bytes) if level.capacity_bytes else "unknown",
            bandwidth=units.bandwidth(level.bandwidth_bytes_per_s)
            if level.bandwidth_bytes_per_s
            else "not published",
            source=level.source,
            bandwidth_width=width,
        )
        for level, width in zip(device.hierarchy, _widths(bandwidths), strict=True)
    ]


def _widths(values: list[float]) -> list[float]:
    """Widths of 100 in proportion; what is known is at least a line."""
    greatest = max(values, default=0.0)
    return [max(0.5, 100 * value / greatest) if value else 0.0 for value in values]


def _figures(device: Device) -> list[tuple[str, str, str, str]]:
    """Every figure of the GPU that has a value: name, value, confidence, source."""
    figures: list[tuple[str, Figure, Any]] = [
        *((f"peak {math}, dense", peak, units.flop_rate) for math, peak in device.peaks.items()),
        ("bandwidth", device.bandwidth, units.bandwidth),
        ("memory", device.memory_bytes, units.capacity),
        ("L2", device.l2_bytes, units.capacity),
        ("SMs or CUs", device.units, lambda value: units.count(int(value))),
        ("launch floor", device.launch_s, _seconds),
    ]
    return [
        (name, write(figure.value), figure.confidence or "-", figure.source or "-")
        for name, figure, write in figures
        if figure.value is not None
    ]


def _refusals(plan: Plan | None) -> list[tuple[str, int, str]]:
    """Named reasons against fusing, the most frequent first: reason, pairs, one detail."""
    counted: dict[str, tuple[int, str]] = {}
    for refusal in plan.refusals if plan else ():
        number, detail = counted.get(refusal.reason, (0, refusal.detail))
        counted[refusal.reason] = (number + 1, detail)
    rows = [(reason, number, detail) for reason, (number, detail) in counted.items()]
    return sorted(rows, key=lambda row: -row[1])


def _saved(finding: Insight) -> str:
    """A finding's saving for the margin: ``"3.4 ms"``, or a dash."""
    return _seconds(finding.saved_s) if finding.saved_s else "-"


def _seconds(value: float) -> str:
    """Seconds with the micro sign."""
    return _micro(units.seconds(value))


def _micro(text: str) -> str:
    """Text with the micro sign, which a page can show, where a figure has ``us``."""
    return re.sub(r"(?<=\d )us\b", "\N{MICRO SIGN}s", text)
