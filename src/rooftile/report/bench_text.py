"""A benchmark in a terminal: one row a provider, with a bar for its part of the copy's speed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from rooftile import units
from rooftile.records.measurement import CEILINGS, NOT_INSTALLED, Environment, Measurement
from rooftile.report.columns import Column, Line, align, width_of, write_lines

_BAR_CELLS = 24  # of 100 %; a bar may be longer
_MOST_CELLS = 30
_DASH = "-"

_TITLES = ("op", "pass", "shape", "dtype", "by", "median", "spread", "GB/s", "TFLOP/s", "of copy",
           "of matmul", "of sheet", "of best peer", "host", "memory", "")  # fmt: skip
_LEFT = {"op", "pass", "shape", "dtype", "by", ""}


def write_measurements(rows: Sequence[Measurement], out: TextIO = sys.stdout) -> None:
    """Write the table of a benchmark, what it stood on above it and what failed below it."""
    write_lines(bench_lines(rows, width_of(out), ascii_only=not _draws_blocks(out)), out)


def bench_lines(
    rows: Sequence[Measurement], width: int | None = None, *, ascii_only: bool = False
) -> list[Line]:
    """The lines of a benchmark.

    Args:
        rows: Measurements, in the order they are to stand.
        width: Characters a line may have; None: no limit.
        ascii_only: Bars of ``#`` instead of blocks.
    """
    timed = [row for row in rows if row.timed]
    cells = [_cells(row, "#" if ascii_only else "█") for row in timed]
    shown = [i for i, title in enumerate(_TITLES) if not title or any(c[i] != _DASH for c in cells)]
    columns = [Column(_TITLES[i], align="left" if _TITLES[i] in _LEFT else "right") for i in shown]
    lines: list[Line] = []
    if rows:
        lines += [((text, ""),) for text in _heading(rows[0].environment, rows)]
    if timed:
        lines += align(columns, [[row[i] for i in shown] for row in cells], width)
    faults = [_fault(row) for row in rows if row.error]
    lines += [((text, ""),) for text in dict.fromkeys(faults)]
    lines += [((text, ""),) for row in rows for text in _checked(row)]
    return lines


def where(row: Measurement) -> str:
    """Which op, pass and shape a row is of, in words."""
    return f"{label(row)} {row.direction} {shape_text(row)} {row.dtype}"


def label(row: Measurement) -> str:
    """The op with its variant."""
    return f"{row.op}[{row.variant}]" if row.variant else row.op


def shape_text(row: Measurement) -> str:
    """``"65536x4096"``."""
    return "x".join(map(str, row.shape.values()))


def _draws_blocks(out: TextIO) -> bool:
    try:
        "█".encode(getattr(out, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _heading(environment: Environment, rows: Sequence[Measurement]) -> list[str]:
    """What the run stood on, in two lines."""
    caches = sorted({row.cache for row in rows if row.timed})
    peers = [f"{name} {version}" for name, version in environment.peers.items()]
    clocks = environment.sm_clock_mhz
    first = [environment.gpu, f"driver {environment.driver}" if environment.driver else ""]
    first += [f"SM clock {clocks:.0f} MHz"] if clocks else []
    first += [f"L2 {cache}" for cache in caches]
    second = [
        f"torch {environment.torch}",
        f"Triton {environment.triton}" * bool(environment.triton),
    ]
    return [
        ", ".join(filter(None, first)),
        ", ".join(filter(None, [*second, *peers, environment.started])),
        "",
    ]


def _cells(row: Measurement, block: str) -> tuple[str, ...]:
    seconds, spread = row.median_s, row.spread_s
    assert seconds is not None  # of timed rows alone
    assert spread is not None
    rate, flops = row.bytes_per_s or 0.0, row.cost.matrix_flops / seconds
    copy, own = row.ratio_to_copy, row.provider not in CEILINGS
    fraction = row.fraction_of_peak if row.cost.matrix_flops else row.fraction_of_bandwidth
    return (
        label(row),
        row.direction,
        shape_text(row),
        row.dtype,
        row.provider,
        f"{seconds * 1e3:.4f} ms" + ("" if row.settled else " *"),
        f"{(spread[0] / seconds - 1) * 100:+.1f}..{(spread[1] / seconds - 1) * 100:+.1f} %",
        f"{rate / 1e9:.0f}",
        f"{flops / 1e12:.1f}" if row.cost.matrix_flops else _DASH,
        _percent(copy),
        _percent(row.ratio_to_matmul if row.cost.matrix_flops and own else None),
        _percent(fraction),
        f"{row.ratio_to_best_peer:.2f}x" if row.ratio_to_best_peer and own else _DASH,
        units.seconds(row.host_s) if row.host_s is not None else _DASH,
        units.capacity(row.peak_bytes) if row.peak_bytes is not None else _DASH,
        _bar(row, block),
    )


def _bar(row: Measurement, block: str) -> str:
    """As long as the row is fast, against the ceiling of its kind of work."""
    ratio = row.ratio_to_matmul if row.cost.matrix_flops else row.ratio_to_copy
    return block * min(round((ratio or 0.0) * _BAR_CELLS), _MOST_CELLS)


def _percent(value: float | None) -> str:
    return _DASH if value is None else f"{value * 100:.1f} %"


def _fault(row: Measurement) -> str:
    """Why a row has no time, or not one to believe; once a peer where it is not installed."""
    if row.error.startswith(NOT_INSTALLED):
        return f"{row.provider} {row.error}"
    return f"{where(row)} by {row.provider}: {row.error}"


def _checked(row: Measurement) -> list[str]:
    """What a check alone came to."""
    if row.seconds or row.error or row.check is None:
        return []
    check = row.check
    words = "right" if check.passed else "wrong"
    return [
        f"{where(row)} by {row.provider}: {words}, error {check.error:.2g} of {check.allowed:.2g}"
        " allowed"
    ]
