"""Print committed results as tables for docs/measured.md: ours / the best peer of the same rounds.

``python benchmarks/tables.py RESULTS.jsonl...``; of two rows of one shape the later one counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from plot import latest

from rooftile.errors import RooftileError
from rooftile.records.io import read_lines
from rooftile.records.measurement import OURS, Measurement
from rooftile.report.bench_html import percent
from rooftile.report.bench_text import shape_text

_LARGE = 2**24  # bytes; below, host time and not the kernel is what is seen
_SHORT = {"flash-attn-4": "FA4", "cudnn": "cuDNN", "flex": "Flex", "flash2": "FA2",
          "compile": "torch.compile", "quack": "QuACK", "liger": "Liger", "eager": "eager",
          "cuda": "CUDA C++"}  # fmt: skip

Cell = Callable[[Measurement], str]
Name = Callable[[Measurement], str]


def ours(rows: Iterable[Measurement]) -> list[Measurement]:
    """Our rows, each with the best peer's time in it."""
    return [row for row in rows if row.provider == OURS]


def of_copy(row: Measurement) -> str:
    """``"98.1 / 99.3"``: ours and the best peer in percent of a copy."""
    mine = percent(row)
    if mine is None:
        return "failed"
    best = row.ratio_to_best_peer
    return f"{mine:.1f} / {mine / best:.1f}" if best else f"{mine:.1f} /"


def rate(row: Measurement) -> str:
    """``"648 (1.01 cuDNN)"``: TFLOP/s, the ratio to the best peer, and who that is."""
    if not row.timed:
        return "failed"
    peer = _SHORT.get(row.best_peer, row.best_peer)
    ratio = f" ({row.ratio_to_best_peer:.2f} {peer})" if row.ratio_to_best_peer else ""
    return f"{(row.flops_per_s or 0) / 1e12:.0f}{ratio}"


def grid(
    rows: Sequence[Measurement], line: Name, column: Name, cell: Cell, order: Sequence[str] = ()
) -> str:
    """A table in Markdown: a line for each name, a column for each, in the order they come."""
    lines = list(dict.fromkeys(map(line, rows)))
    columns = [name for name in order if any(column(row) == name for row in rows)]
    columns = columns or list(dict.fromkeys(map(column, rows)))
    cells = {(line(row), column(row)): cell(row) for row in rows}
    words = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in lines:
        words.append(f"| {name} | " + " | ".join(cells.get((name, c), "") for c in columns) + " |")
    return "\n".join(words)


def op_and_pass(row: Measurement) -> str:
    """``"softmax forward"``."""
    name = f"{row.op}[{row.variant}]" if row.variant else row.op
    return f"{name} {row.direction.replace('_', ' + ')}"


def form_and_pass(row: Measurement) -> str:
    """``"causal forward"``, of attention."""
    return f"{row.variant or 'full'} {row.direction}"


def tables(rows: Sequence[Measurement]) -> str:
    """Row ops by columns, other ops by shape, attention by form and pass, host times."""
    mine = ours(latest(rows))
    large = [row for row in mine if row.cost.bytes >= _LARGE]
    sweep = [row for row in large if tuple(row.shape) == ("M", "N") and row.op != "cross_entropy"]
    sweep = [row for row in sweep if sum(op_and_pass(row) == op_and_pass(r) for r in sweep) > 1]
    rest = [row for row in large if row not in sweep and row.op != "attention"]
    heads = [row for row in large if row.op == "attention"]
    small = [row for row in mine if row.cost.bytes < _LARGE]
    widths = [f"{n:,}" for n in sorted({row.shape["N"] for row in sweep})]
    found = []
    if sweep:
        found.append(grid(sweep, op_and_pass, lambda r: f"{r.shape['N']:,}", of_copy, widths))
    if rest:
        found.append(grid(rest, op_and_pass, shape_text, of_copy))
    if heads:
        found.append(grid(heads, shape_text, form_and_pass, rate))
    if small:
        times = [f"{row.op} {(row.host_s or 0) * 1e6:.1f}" for row in small]
        found.append("Host time a call, microseconds: " + ", ".join(times))
    return "\n\n".join(found)


def main(words: Sequence[str]) -> int:
    """Read and print."""
    if not words:
        print("usage: python benchmarks/tables.py RESULTS.jsonl...", file=sys.stderr)
        return 2
    try:
        print(tables([row for path in words for row in read_lines(path, Measurement)]))
    except RooftileError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
