"""A benchmark as one HTML page: bars at each shape, and lines over the columns where they vary."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from rooftile import units
from rooftile.records.claim import ClaimTable
from rooftile.records.measurement import CEILINGS, OURS, Measurement
from rooftile.report.bench_text import bench_lines, label, shape_text
from rooftile.report.claim import claim_lines
from rooftile.report.columns import Line

Group = tuple[str, str, str]  # op, direction, dtype

# one colour a provider in every chart: told apart in print and by the colour-blind
COLOURS = {
    OURS: "#d1495b",
    "eager": "#8d99ae",
    "compile": "#00798c",
    "liger": "#edae49",
    "quack": "#30638e",
    "cudnn": "#5c4d7d",
    "flash2": "#c9a227",
    "flash-attn-4": "#bc6c25",
    "flex": "#2a9d8f",
    "cuda": "#3a5a40",
}
_OTHER_COLOURS = ("#7f5539", "#a26769", "#4f6d7a", "#6a994e")
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 92rem }}
pre {{ font-size: 12px; overflow-x: auto; background: #f6f6f4; padding: 1rem }}
</style>
<h1>{title}</h1>
{body}
<h2>All rows</h2>
<pre>{table}</pre>
</html>
"""


def bench_html(
    rows: Sequence[Measurement], title: str = "Benchmark", claims: ClaimTable | None = None
) -> str:
    """The page: charts that can be hovered and zoomed, and the table. It needs no network.

    Args:
        rows: Measurements; those with an error are in the table alone.
        title: Its heading.
        claims: What physics says of figures that others printed of these shapes.
    """
    import plotly.io

    parts: list[str] = []
    for group, members in groups(rows).items():
        figure = _figure(group, members)
        parts.append(
            plotly.io.to_html(
                figure, full_html=False, include_plotlyjs=not parts, config={"displaylogo": False}
            )
        )
    table = _plain(bench_lines(rows))
    if claims is not None and claims.reports:
        table += "\n\n" + _plain(claim_lines(claims))
    return _PAGE.format(title=escape(title), body="\n".join(parts), table=escape(table))


def groups(rows: Sequence[Measurement]) -> dict[Group, list[Measurement]]:
    """Timed rows that belong in one chart, ceilings left out: they are its 100 %."""
    found: dict[Group, list[Measurement]] = {}
    for row in rows:
        if row.timed and row.provider not in CEILINGS and percent(row) is not None:
            found.setdefault((label(row), row.direction, row.dtype), []).append(row)
    return found


def percent(row: Measurement) -> float | None:
    """Speed in percent of the ceiling of its kind of work, in the same rounds."""
    ratio = row.ratio_to_matmul if row.cost.matrix_flops else row.ratio_to_copy
    return None if ratio is None else 100 * ratio


def columns_of(row: Measurement) -> int:
    """The length that varies in a sweep: the last dimension."""
    return list(row.shape.values())[-1]


def colour(provider: str) -> str:
    """The colour of a provider, the same in every chart."""
    return COLOURS.get(provider) or _OTHER_COLOURS[sum(provider.encode()) % len(_OTHER_COLOURS)]


def providers_of(rows: Sequence[Measurement]) -> list[str]:
    """Ours last, so that it is drawn over the others."""
    names = list(dict.fromkeys(row.provider for row in rows))
    return sorted(names, key=lambda name: name == OURS)


def _plain(lines: Sequence[Line]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def is_sweep(rows: Sequence[Measurement]) -> bool:
    """Whether the columns alone tell the shapes apart: then lines are drawn over them, else bars.

    Rows and columns vary together, as many elements at each width.
    """
    return len(rows[0].shape) <= 2 and len({columns_of(row) for row in rows}) > 1


def _figure(group: Group, rows: Sequence[Measurement]) -> Any:
    import plotly.graph_objects as go

    sweep = is_sweep(rows)
    figure = go.Figure()
    for provider in providers_of(rows):
        mine = [row for row in rows if row.provider == provider]
        mine = sorted(mine, key=columns_of) if sweep else mine
        style: dict[str, Any] = {"name": provider, "marker_color": colour(provider)}
        y = [percent(row) for row in mine]
        hover = [_hover(row) for row in mine]
        if sweep:
            x: list[Any] = [columns_of(row) for row in mine]
            figure.add_trace(go.Scatter(x=x, y=y, text=hover, mode="lines+markers", **style))
        else:
            figure.add_trace(go.Bar(x=[shape_text(row) for row in mine], y=y, text=hover, **style))
    ceiling = "a matmul" if rows[0].cost.matrix_flops else "a copy"
    figure.update_layout(
        title=f"{group[0]}, {group[1]}, {group[2]}: percent of {ceiling} in the same run",
        yaxis={"title": "%", "rangemode": "tozero"},
        height=420,
        template="plotly_white",
    )
    figure.add_hline(y=100, line_dash="dot", line_color="#888")
    if sweep:
        ticks = _ticks(rows)
        words = [f"{n:,}" for n in ticks]
        figure.update_xaxes(type="log", title="columns", tickvals=ticks, ticktext=words)
    return figure


def _hover(row: Measurement) -> str:
    """Time, FLOP/s where there are matrix units at work, and memory where it was measured."""
    seconds = row.median_s or 0.0
    words = [f"{seconds * 1e3:.4f} ms"]
    if row.cost.matrix_flops and seconds:
        words.append(f"{row.cost.matrix_flops / seconds / 1e12:.0f} TFLOP/s")
    if row.peak_bytes is not None:
        words.append(units.capacity(row.peak_bytes))
    return ", ".join(words)


def _ticks(rows: Sequence[Measurement]) -> list[int]:
    """A mark at each length that is a power of two."""
    return sorted({n for row in rows if (n := columns_of(row)) & (n - 1) == 0})
