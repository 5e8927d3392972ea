"""A sweep as a page of its own: occupancy and registers by configuration, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rooftile.records.resources import Sweep
from rooftile.report.occupancy import sweep_lines

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
  color: #1f2430; background: #fff }
pre { font: 13px/1.45 ui-monospace, monospace; overflow-x: auto; padding: 1rem;
  background: #f5f6f8; border-radius: 6px }
@media (prefers-color-scheme: dark) {
  body { color: #e4e6eb; background: #15171c } pre { background: #1e2128 } }
"""

_PICK, _OTHER = "#2a6fdb", "#b6c4d8"


def sweep_page(sweeps: Sequence[Sweep]) -> str:
    """A page that needs nothing else, not even a network.

    Args:
        sweeps: Of one kernel, one a target.
    """
    from plotly.io import to_html

    charts = [
        to_html(
            _figure(sweep), full_html=False, include_plotlyjs=i == 0, config={"responsive": True}
        )
        for i, sweep in enumerate(sweeps)
    ]
    table = "\n".join(
        "".join(text for text, _ in line).rstrip() for line in sweep_lines(sweeps, None)
    )
    title = f"Occupancy of {escape(sweeps[0].kernel)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{''.join(charts)}"
        f"<pre>{escape(table)}</pre></body></html>\n"
    )


def _figure(sweep: Sweep) -> object:
    """Occupancy as bars, registers as a line, one place a configuration."""
    from plotly.graph_objects import Bar, Figure, Scatter

    names = [_label(row.config) for row in sweep.rows]
    kernels = [row.resources for row in sweep.rows]
    figure = Figure(
        [
            Bar(
                x=names,
                y=[100 * row.occupancy for row in sweep.rows],
                marker_color=[_PICK if i == sweep.pick else _OTHER for i in range(len(names))],
                name="occupancy [%]",
                hovertext=[row.error or ", ".join(row.unfit) for row in sweep.rows],
            ),
            Scatter(
                x=names,
                y=[kernel and kernel.registers for kernel in kernels],
                name="registers a thread",
                mode="lines+markers",
                line_color="#d9822b",
                yaxis="y2",
            ),
            Scatter(
                x=names,
                y=[kernel and kernel.spills for kernel in kernels],
                name="spilled [B a thread]",
                mode="markers",
                marker={"symbol": "x", "color": "#c23030", "size": 9},
                yaxis="y2",
            ),
        ]
    )
    figure.add_hline(y=100 * sweep.floor, line_dash="dot", annotation_text="floor")
    figure.update_layout(
        title=f"{sweep.kernel} on {sweep.target}",
        template="plotly_white",
        height=420,
        legend={"orientation": "h", "y": -0.3},
        yaxis={"title": "occupancy [%]", "range": [0, 105]},
        yaxis2={
            "title": "registers, bytes",
            "overlaying": "y",
            "side": "right",
            "rangemode": "tozero",
        },
    )
    return figure


def _label(config: dict[str, bool | int | float | str | None]) -> str:
    """One place of the axis."""
    return "<br>".join(f"{name}={value}" for name, value in config.items()) or "as it is"
