"""Draw one shape of one op as bars: time, percent of a matmul, peak memory, a bar a provider.

``python benchmarks/plot_bars.py RESULTS.jsonl attention 16x32x4096x128 docs/images`` writes one PNG
a pass and form that was run at that shape. It needs matplotlib, the extra ``plot``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from plot import latest

from rooftile.errors import InputError, MissingDependencyError, RooftileError
from rooftile.records.io import read_lines
from rooftile.records.measurement import OURS, Measurement
from rooftile.report.bench_html import Group, colour, groups, percent
from rooftile.report.bench_text import shape_text

_NAMES = {
    OURS: "Rooftile",
    "eager": "PyTorch, unfused",
    "compile": "torch.compile",
    "cuda": "CUDA C++ by hand",
    "flash2": "FlashAttention-2",
    "flash-attn-4": "FlashAttention-4",
    "cudnn": "cuDNN",
    "flex": "FlexAttention",
}
_PANELS: tuple[tuple[str, str, Callable[[Measurement], float | None]], ...] = (
    ("time, ms", "{:.2f}", lambda row: row.median_s and row.median_s * 1e3),
    ("% of a matmul's speed, same run", "{:.0f}", percent),
    ("peak memory above the inputs, GiB", "{:.2f}", lambda row: (row.peak_bytes or 0) / 2**30),
)


def at_shape(rows: Sequence[Measurement], op: str, shape: str) -> dict[Group, list[Measurement]]:
    """Each pass and form of the op at that shape, the fastest provider first.

    Raises:
        InputError: There is none.
    """
    mine = [row for row in latest(rows) if row.op == op and shape_text(row) == shape]
    found = groups(mine)
    if not found:
        raise InputError(f"results must hold {op} at {shape}, got none")
    return {group: sorted(rows, key=lambda row: row.median_s or 0) for group, rows in found.items()}


def draw(rows: Sequence[Measurement], panels: Sequence[Any]) -> None:
    """Three panels beside each other, their bars in one order."""
    names = [_NAMES.get(row.provider, row.provider) for row in rows]
    for (title, form, value), axes in zip(_PANELS, panels, strict=True):
        values = [value(row) or 0.0 for row in rows]
        bars = axes.barh(names, values, color=[colour(row.provider) for row in rows])
        axes.bar_label(bars, [form.format(one) for one in values], padding=3, fontsize=8)
        axes.invert_yaxis()
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlim(0, 1.18 * max(values) or 1)
        axes.tick_params(labelsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)


def write(rows: Sequence[Measurement], op: str, shape: str, folder: Path) -> list[Path]:
    """One PNG a pass and form; what was written.

    Raises:
        InputError: The op was not run at that shape.
        MissingDependencyError: matplotlib is not installed.
    """
    found = at_shape(rows, op, shape)
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("plots need matplotlib: install 'rooftile[plot]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for (label, direction, dtype), members in found.items():
        figure = Figure(figsize=(11, 0.36 * len(members) + 1.1), layout="constrained")
        draw(members, figure.subplots(1, len(_PANELS), sharey=True))
        environment = members[0].environment
        figure.suptitle(
            f"{label} {direction}, {shape}, {dtype} on {environment.gpu}, "
            f"{environment.started[:10]}", x=0.01, ha="left", fontsize=10,
        )  # fmt: skip
        name = f"{label}_{direction}_{shape}".replace("[", "_").replace("]", "")
        written.append(folder / f"{name}.png")
        figure.savefig(written[-1], dpi=150, metadata={"Software": None})
    return written


def main(words: Sequence[str]) -> int:
    """Read, draw, say what was written."""
    if len(words) != 4:
        print(
            "usage: python benchmarks/plot_bars.py RESULTS.jsonl OP SHAPE FOLDER", file=sys.stderr
        )
        return 2
    try:
        for path in write(read_lines(words[0], Measurement), *words[1:3], Path(words[3])):
            print(path)
    except RooftileError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
