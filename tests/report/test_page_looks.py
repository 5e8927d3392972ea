"""The page in a real browser: dark, narrow, printed, empty, large, and with hostile names."""

from __future__ import annotations

from dataclasses import replace

import estimates
import plans
import pytest
from reader import point, status

from rooftile.records.plan import Plan

EVIL = "<img src=x onerror=\"document.title='hacked'\">"
LONG = "layer_" + "w" * 500


def test_light_and_dark_follow_the_system_and_the_button(show):
    """The system's wish at first; the button turns page and charts over; both are painted."""
    page = show(plans.plan(), scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('roofline-plot').layout.font.color"
    dark, dark_ink = page.run(background), page.run(ink)
    assert dark == "rgb(15, 18, 21)"
    dark_picture = page.screenshot()
    page.click_on("#theme")
    assert page.run(background) == "rgb(246, 246, 243)"
    assert page.run(ink) != dark_ink
    assert page.run("document.getElementById('theme').textContent") == "Dark"
    light_picture = page.screenshot()
    assert light_picture[:8] == dark_picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert light_picture != dark_picture
    page.prefer("light")
    page.click_on("#theme")
    assert page.run(background) == dark  # the reader's choice stands before the system's


def hostile() -> Plan:
    """Names that are HTML, and of 500 characters."""
    plan = plans.plan()
    ops = plan.estimate.ops
    named = (
        replace(ops[0], name=EVIL, module=f"model.{EVIL}", line=f"{EVIL}.py:3", shapes=EVIL),
        replace(ops[1], name=LONG, module=f"model.{LONG}", line=f"{LONG}.py:9", shapes=LONG),
        *ops[2:],
    )
    graph = replace(plan.estimate.graph, target=LONG, assumptions=(EVIL, LONG))
    first = replace(plan.verdicts[0], reason=EVIL, cover=LONG, rooftile_op=LONG)
    verdicts = (first, *plan.verdicts[1:])
    groups = (replace(plan.groups[0], module=EVIL, rooftile_ops=(LONG, EVIL)),)
    estimate = replace(plan.estimate, ops=named, graph=graph)
    return replace(plan, estimate=estimate, verdicts=verdicts, groups=groups)


@pytest.mark.parametrize("width", [1360, 400])
def test_names_with_html_and_of_500_characters(width, show):
    """Shown as text everywhere, wrapped, and nothing of them runs or widens the page."""
    page = show(hostile(), width=width)
    x, y = point(page, "compute")
    page.move(x - 2, y)
    page.move(x, y)
    page.wait("!document.getElementById('tooltip').hidden")
    assert EVIL in page.run("document.getElementById('tooltip').textContent")
    for row in (0, 1):
        page.run(f"document.getElementById('op-{row}').click()")
        assert (EVIL, LONG)[row] in page.run("document.getElementById('details').textContent")
    for by in ("name", "module", "line"):
        page.run(f"document.querySelector('#bars-by [data-by={by}]').click()")
    assert page.run("document.title").startswith("Rooftile: layer_www")
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("record", [plans.plan(), estimates.estimate()], ids=["plan", "estimate"])
def test_it_is_readable_at_400_px(record, show):
    """Nothing wider than the window, the table has its chief columns, the text is not cut off."""
    page = show(record, width=400, height=800)
    assert page.run("document.documentElement.scrollWidth") == 400
    assert page.run("document.querySelectorAll('.thead [role=columnheader]').length") == 3
    spill = page.run(
        "[...document.querySelectorAll('main p, main li, main dd, .tile, .card, .finding')]"
        ".filter(e => e.getBoundingClientRect().right > 401).length"
    )
    assert spill == 0


def test_it_prints(show):
    """Paper gets light colours, charts as shapes within its width, a table of plain rows."""
    page = show(plans.many(300), scheme="dark")
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run("document.querySelectorAll('#print-table tbody tr').length") == 40
    kinds = "[...new Set(document.getElementById('roofline-plot').data.map(t => t.type))]"
    assert page.run(kinds) == ["scatter"]
    assert page.run("document.getElementById('roofline-plot').layout.width") == 680
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert "scattergl" in page.run(kinds)
    assert page.pdf()[:5] == b"%PDF-"
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(15, 18, 21)"


def test_an_estimate_alone_is_drawn(show):
    """Without verdicts: no such column, no such colour, no such filter."""
    page = show(estimates.estimate())
    assert page.run("[...document.querySelectorAll('.chip')].map(c => c.dataset.word)") == [
        "compute", "memory", "unpriced", "forward", "backward",
    ]  # fmt: skip
    assert page.run("document.querySelector('[data-key=action]')") is None
    assert status(page).startswith("4 of 4 ops")


def test_a_step_without_kernels_is_drawn(show):
    """An empty table, and words where the charts would be."""
    estimate = estimates.estimate()
    totals = replace(estimate.totals, ops=0, least_s=0.0, bytes=0, bound_s={})
    page = show(replace(estimate, ops=estimate.ops[4:], totals=totals))
    assert status(page) == "0 of 0 ops, 0 s (0.00 %), 0 B"
    assert "No op to place" in page.run("document.getElementById('roofline-plot').textContent")


def test_20_000_ops_are_smooth(show):
    """Drawn within seconds; 60 rows at most in the document; search, sort and scroll answer soon.

    The times are bounds for a loaded machine without a GPU; a desktop takes a tenth.
    """
    page = show(plans.many(20_000))
    load_ms = page.run("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    assert load_ms < 60_000
    points = "document.getElementById('roofline-plot').data.filter(t => t.name)"
    assert page.run(f"{points}.reduce((n, t) => n + t.x.length, 0)") == 20_000
    assert status(page).startswith("20,000 of 20,000 ops")
    took = page.run(
        "(async () => { const grid = document.getElementById('grid');"
        "const frame = () => new Promise(done => requestAnimationFrame(done));"
        "const start = performance.now();"
        "for (let i = 1; i <= 20; i += 1) { grid.scrollTop = i * 34000; await frame(); }"
        "return (performance.now() - start) / 20; })()"
    )
    assert took < 500  # ms a frame, far jumps
    assert page.run("document.querySelectorAll('.tbody .trow').length") <= 60
    took = page.run(
        "(() => { const start = performance.now(); const box = document.getElementById('search');"
        "box.value = 'layers.7.'; box.dispatchEvent(new Event('input'));"
        "return performance.now() - start; })()"
    )
    assert took < 5_000
    assert status(page).startswith("100 of 20,000 ops")
