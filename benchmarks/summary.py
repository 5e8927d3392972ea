"""A sweep in few lines: each shape as it is done, and the whole file as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rooftile.bench.cases import cases_of
from rooftile.records.measurement import CEILINGS, Measurement


def one_line(rows: list[Measurement]) -> str:
    """One shape in a line: ours and the peers in percent of the ceiling of the same rounds."""
    first = rows[0]
    shape = "x".join(map(str, first.shape.values()))
    name = f"{first.op}[{first.variant}]" if first.variant else first.op
    parts = [f"{name} {first.direction} {shape}:"]
    for row in rows:
        if row.provider in CEILINGS:
            continue
        ratio = row.ratio_to_matmul if row.cost.matrix_flops else row.ratio_to_copy
        good = row.timed and ratio is not None
        host = f"/{row.host_s * 1e6:.0f}us" if row.host_s is not None else ""
        parts.append(f"{row.provider} {ratio:.1%}{host}" if good else f"{row.provider} FAILED")
    faults = [f"\n   {row.provider}: {row.error[:160]}" for row in rows if row.error]
    return " ".join(parts) + "".join(faults)


def table(out: str) -> str:
    """What the file has, one line a shape: ours, the best peer, and the ratio of the two."""
    path = Path(out)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.strip()]
    words = [f"{'op':34} {'pass':8} {'shape':>14} {'ours':>7} {'best peer':>16} {'ratio':>6}"]
    for row in rows:
        if row["provider"] != "rooftile":
            continue
        name = f"{row['op']}[{row['variant']}]" if row["variant"] else row["op"]
        shape = "x".join(str(n) for n in _in_order(row))
        if row["error"] or not row["seconds"]:
            words.append(f"{name:34} {row['direction'][:8]:8} {shape:>14} {row['error'][:60]}")
            continue
        took_s = sorted(row["seconds"])[len(row["seconds"]) // 2]
        ours, best = _part(row, took_s), _part(row, row["best_peer_s"])
        ratio = row["best_peer_s"] / took_s if row["best_peer_s"] else 0.0
        words.append(
            f"{name:34} {row['direction'][:8]:8} {shape:>14} {ours:>7} "
            f"{row['best_peer'] + ' ' + best:>16} {ratio:6.2f}"
        )
    return "\n".join(words)


def _in_order(row: dict[str, Any]) -> Iterable[int]:
    """Lengths in the case's order: the line has its names sorted."""
    dims = cases_of(row["op"])[0].dims
    return [row["shape"][name] for name in dims]


def _part(row: dict[str, Any], took_s: float | None) -> str:
    """Percent of the ceiling: of a matmul where the work is one, else of a copy."""
    if not took_s:
        return "-"
    flops, rate = row["cost"]["matrix_flops"], row["matmul_flops_per_s"]
    if flops and rate:
        return f"{flops / took_s / rate:.1%}"
    return f"{row['copy_s'] / took_s:.1%}" if row["copy_s"] else "-"
