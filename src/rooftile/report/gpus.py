"""GPUs as text: a list, or one with the source of every figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rooftile import units
from rooftile.records.device import Device, Figure
from rooftile.report.columns import Column, Line, align, pairs

_LISTED_PEAKS = ("fp32", "tf32", "bf16", "fp16", "fp8")
_BLANK: Line = (("", ""),)


def list_lines(devices: Sequence[Device], width: int | None = None) -> list[Line]:
    """One GPU a line: the name to give, memory, bandwidth, dense peaks."""
    columns = [
        Column("id"),
        Column("name", cut="end"),
        Column("target"),
        Column("memory", "right"),
        Column("bandwidth", "right"),
        *(Column(f"{math} TFLOP/s", "right") for math in _LISTED_PEAKS),
    ]
    rows = [
        [
            device.id,
            device.name,
            device.target or "-",
            _value(device.memory_bytes, units.capacity),
            _value(device.bandwidth, units.bandwidth),
            *(_tera(device.peaks.get(math)) for math in _LISTED_PEAKS),
        ]
        for device in devices
    ]
    return align(columns, rows, width)


def gpu_lines(device: Device, width: int | None = None) -> list[Line]:
    """One GPU: every figure with its source and confidence, its memory hierarchy, its notes."""
    about = [("id", device.id), ("name", device.name), ("vendor", device.vendor)]
    about += [("target", device.target)] if device.target else []
    about += [("also known as", ", ".join(device.aliases))] if device.aliases else []
    about += [("note", note) for note in device.notes]
    return [
        *pairs(about),
        _BLANK,
        *_figures(device, width),
        _BLANK,
        *_hierarchy(device, width),
        _BLANK,
        *pairs(
            [
                ("confidence A", "read off a device or a vendor's file"),
                ("confidence B", "quoted from the vendor"),
                ("confidence C", "derived or recalled"),
                ("confidence D", "unofficial"),
                ("confidence user", "given by you"),
            ]
        ),
    ]


def _figures(device: Device, width: int | None) -> list[Line]:
    """Every figure with its source."""
    figures: list[tuple[str, Figure, Callable[[float], str]]] = [
        *((f"peak {math}, dense", peak, units.flop_rate) for math, peak in device.peaks.items()),
        ("bandwidth", device.bandwidth, units.bandwidth),
        ("memory", device.memory_bytes, units.capacity),
        ("L2", device.l2_bytes, units.capacity),
        ("SMs or CUs", device.units, lambda value: units.count(int(value))),
        ("launch floor", device.launch_s, units.seconds),
    ]
    columns = (
        Column("figure"),
        Column("value", "right"),
        Column("confidence"),
        Column("source", cut="end"),
    )
    rows = [
        [name, _value(figure, write), figure.confidence or "-", figure.source or "-"]
        for name, figure, write in figures
    ]
    return align(columns, rows, width)


def _hierarchy(device: Device, width: int | None) -> list[Line]:
    """The memory levels from the registers outward, the whole device's."""
    columns = (
        Column("memory level"),
        Column("capacity", "right"),
        Column("bandwidth", "right"),
        Column("source", cut="end"),
    )
    rows = [
        [
            level.name,
            "-" if level.capacity_bytes is None else units.capacity(level.capacity_bytes),
            "-"
            if level.bandwidth_bytes_per_s is None
            else units.bandwidth(level.bandwidth_bytes_per_s),
            level.source or "-",
        ]
        for level in device.hierarchy
    ]
    return align(columns, rows, width)


def _value(figure: Figure, write: Callable[[float], str]) -> str:
    """A figure in words; a dash where there is none."""
    return "-" if figure.value is None else write(figure.value)


def _tera(figure: Figure | None) -> str:
    """FLOP/s in tera, the unit being in the header; a dash where there is none."""
    if figure is None or figure.value is None:
        return "-"
    return f"{figure.value / 1e12:,.1f}"
