"""Draw the percent of copy speed over the columns, ours and every peer's, from committed results.

``python benchmarks/plot.py benchmarks/results/h200-sxm/2026-12-01.jsonl docs/images`` writes one
PNG an op and pass that was run at several widths. It needs matplotlib, the extra ``plot``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from rooftile.errors import InputError, MissingDependencyError, RooftileError
from rooftile.records.io import read_lines
from rooftile.records.measurement import OURS, Measurement
from rooftile.report.bench_html import Group, colour, columns_of, groups, percent, providers_of

_LEAST_ROWS = 2**24  # elements; below, host time and not the kernel is what is seen
_NAMES = {OURS: "Rooftile", "eager": "torch eager", "compile": "torch.compile",
          "liger": "Liger", "quack": "QuACK"}  # fmt: skip


def latest(rows: Sequence[Measurement]) -> list[Measurement]:
    """The last row of each provider at each shape: a file may have several runs."""
    last = {
        (row.op, row.variant, row.direction, row.dtype, *row.shape.items(), row.provider): row
        for row in rows
    }
    return list(last.values())


def sweeps(rows: Sequence[Measurement]) -> dict[Group, list[Measurement]]:
    """Groups of rows by columns, at two widths or more, large enough to be about the kernel."""
    large = [row for row in latest(rows) if row.cost.bytes >= _LEAST_ROWS and len(row.shape) == 2]
    found = groups(large)
    return {group: rows for group, rows in found.items() if len(set(map(columns_of, rows))) > 1}


def draw(group: Group, rows: Sequence[Measurement], axes: Any) -> None:
    """One chart: columns across, percent of a copy upward; no line where a provider fails."""
    widths = sorted({columns_of(row) for row in rows})
    for provider in providers_of(rows):
        mine = {columns_of(row): percent(row) for row in rows if row.provider == provider}
        ours = provider == OURS
        axes.plot(
            widths,
            [mine.get(width, math.nan) for width in widths],
            marker="o",
            markersize=5 if ours else 4,
            linewidth=2.4 if ours else 1.4,
            color=colour(provider),
            label=_NAMES.get(provider, provider),
        )
    axes.axhline(100, color="#888", linewidth=0.8, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xticks([n for n in widths if n & (n - 1) == 0])
    axes.set_xticklabels([f"{n:,}" for n in widths if n & (n - 1) == 0], rotation=35, ha="right")
    axes.set_ylim(0, max(105.0, *(value for row in rows if (value := percent(row)))))
    axes.set_xlabel("columns")
    axes.set_ylabel("% of a copy of the same bytes, same run")
    axes.set_title(f"{group[0]} {group[1].replace('_', ' + ')}, {group[2]}", loc="left")
    axes.grid(axis="y", alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def write(rows: Sequence[Measurement], folder: Path) -> list[Path]:
    """One PNG a sweep; what was written.

    Raises:
        InputError: No op was run at two widths.
        MissingDependencyError: matplotlib is not installed.
    """
    found = sweeps(rows)
    if not found:
        raise InputError("results must hold an op at two widths or more, got none")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("plots need matplotlib: install 'rooftile[plot]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for group, members in found.items():
        figure = Figure(figsize=(8, 4.4), layout="constrained")
        axes = figure.add_subplot()
        draw(group, members, axes)
        figure.legend(frameon=False, ncols=5, loc="outside lower center", fontsize=9)
        gpu, date = members[0].environment.gpu, members[0].environment.started[:10]
        figure.text(0.995, 0.99, f"{gpu}, {date}", ha="right", va="top", fontsize=8, color="#666")
        name = "_".join(group[:2]).replace("[", "_").replace("]", "")
        written.append(folder / f"{name}.png")
        figure.savefig(written[-1], dpi=150, metadata={"Software": None})
    return written


def main(words: Sequence[str]) -> int:
    """Read, draw, say what was written."""
    if len(words) != 2:
        print("usage: python benchmarks/plot.py RESULTS.jsonl FOLDER", file=sys.stderr)
        return 2
    try:
        for path in write(read_lines(words[0], Measurement), Path(words[1])):
            print(path)
    except RooftileError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
