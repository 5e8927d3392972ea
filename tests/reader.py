"""What a reader finds on an open report."""

from __future__ import annotations

import json

from browser import Page


def point(page: Page, trace: str) -> tuple[float, float]:
    """Where the first point of a trace of the roofline stands in the window."""
    page.middle("#roofline-plot")
    x, y = page.run(
        "(() => { const plot = document.getElementById('roofline-plot');"
        f"const trace = plot.data.find(t => t.name && t.name.startsWith({json.dumps(trace)}));"
        "const {xaxis, yaxis, _size} = plot._fullLayout; const box = plot.getBoundingClientRect();"
        "return [box.x + _size.l + xaxis.d2p(trace.x[0]), box.y + _size.t + yaxis.d2p(trace.y[0])];"
        "})()"
    )
    return x, y


def status(page: Page) -> str:
    """What the table says it shows."""
    return str(page.run("document.getElementById('status').textContent"))


def column(page: Page, number: int) -> list[str]:
    """The texts of a column of the rows in the document."""
    return page.run(
        f"[...document.querySelectorAll('.tbody .trow')].map(r => r.children[{number}].textContent)"
    )
