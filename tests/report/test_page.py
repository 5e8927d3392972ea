"""The page in a real browser: what a reader sees, points at, clicks and types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import estimates
import plans
import pytest
from browser import Page, browser, find_chromium

from rooftile.records.plan import Plan
from rooftile.report.html import html_report

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium on the path (chromium, google-chrome; or CHROMIUM=/path): page not opened",
)
EVIL = "<img src=x onerror=\"document.title='hacked'\">"
LONG = "layer_" + "w" * 500
WIDTH, HEIGHT = 1360, 900


@pytest.fixture(scope="module")
def chromium() -> Iterator[Page]:
    """One browser for all tests."""
    assert CHROMIUM is not None
    with browser(CHROMIUM) as page:
        yield page


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the pages lie."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def show(chromium, folder):
    """Open a record's page at a fresh start; at the end it must have made no error."""

    def call(record, width: int = WIDTH, height: int = HEIGHT, scheme: str = "light") -> Page:
        file = folder / "report.html"
        file.write_bytes(html_report(record))
        chromium.errors.clear()
        chromium.requests.clear()
        chromium.size(width, height)
        chromium.prefer(scheme)
        chromium.open(file)
        return chromium

    yield call
    assert chromium.errors == []
    assert [
        url for url in chromium.requests if not url.startswith(("file:", "data:", "blob:"))
    ] == []


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


def test_everything_is_drawn(show):
    """Every op a point, roofs and ridges named, treemap, bars, groups and table."""
    page = show(plans.plan())
    drawn = page.run(
        "document.getElementById('roofline-plot').data.filter(t => t.name)"
        ".map(t => [t.type, t.name, t.x.length])"
    )
    assert [(name, n) for _, name, n in drawn] == [
        ("compute (1)", 1), ("memory (2)", 2), ("unpriced (1)", 1),
    ]  # fmt: skip
    assert {kind for kind, _, _ in drawn} == {"scattergl"}
    text = page.run("document.getElementById('roofline-plot').textContent")
    assert "bf16 matrix 989.4 TFLOP/s, ridge 295.3 FLOP/B" in text
    assert "fp32 vector 66.9 TFLOP/s, ridge 19.97 FLOP/B" in text
    assert page.run("document.querySelectorAll('#treemap-plot .slice').length") >= 3
    assert page.run("document.querySelectorAll('.barrow').length") == 4
    assert page.run("document.querySelectorAll('.fuse').length") == 1
    assert status(page) == "4 of 4 ops, 1 ms (100.0 %), 800 MB"


def test_pointing_at_an_op_shows_its_details(show):
    """Name, module, FLOP, bytes, intensity, bound, verdict and line; gone when the mouse leaves."""
    page = show(plans.plan())
    x, y = point(page, "compute")
    page.move(x - 2, y)
    page.move(x, y)
    page.wait("!document.getElementById('tooltip').hidden")
    text = page.run("document.getElementById('tooltip').innerText")
    for words in ("#0 matmul", "model.q", "600 MFLOP", "400 MB", "1.5", "compute", "USE LIBRARY",
                  "m.py:3", "600 µs, 60.0 % of the step"):  # fmt: skip
        assert words in text, words
    page.move(5, 5)
    page.wait("document.getElementById('tooltip').hidden")


def test_a_click_on_a_point_filters_the_table(show):
    """To the ops of that shape; one more click shows all again."""
    page = show(plans.plan())
    page.click(*point(page, "compute"))
    page.wait("document.getElementById('status').textContent.startsWith('1 of 4')")
    assert column(page, 1) == ["matmul"]
    assert "like #0 matmul" in page.run("document.getElementById('roofline-picked').textContent")
    page.click_on("#clear")
    assert status(page).startswith("4 of 4 ops")


def test_colours_switch_between_bound_verdict_and_phase(show):
    """The traces take the names of what colours them."""
    page = show(plans.plan())
    page.click_on("#colour-by [data-by=action]")
    names = "document.getElementById('roofline-plot').data.filter(t => t.name).map(t => t.name)"
    assert page.run(names) == ["AUTO-FUSE (2)", "USE LIBRARY (1)", "LEAVE IT (1)"]
    assert (
        page.run("document.querySelector('#colour-by [aria-pressed=true]').textContent")
        == "Verdict"
    )


def test_chips_filter(show):
    """One chip keeps its kind, a second of the same kind adds to it, another kind narrows."""
    page = show(plans.plan())
    page.click_on(".chip[data-word=memory]")
    assert status(page) == "2 of 4 ops, 300 µs (30.0 %), 300 MB"
    page.click_on(".chip[data-word=compute]")
    assert status(page).startswith("3 of 4 ops")
    page.click_on(".chip[data-word='AUTO-FUSE']")
    assert status(page).startswith("2 of 4 ops")
    assert page.run("document.querySelector('.chip[data-word=memory]').ariaPressed") == "true"


def test_search_finds_words_of_any_text(show):
    """Op, module, line, reason, in any order; no hit says so."""
    page = show(plans.plan())
    page.click_on("#search")
    page.type("model.q MATMUL")
    assert column(page, 1) == ["matmul"]
    page.run("document.getElementById('search').select()")
    page.type("leave backward")
    assert column(page, 1) == ["aten.frobnicate bwd"]
    page.run("document.getElementById('search').select()")
    page.type("nowhere")
    assert status(page).startswith("0 of 4 ops")
    assert "No op fits" in page.run("document.getElementById('grid').textContent")


def test_a_header_sorts_and_sorts_back(show):
    """Numbers by size, the greatest first; words by the alphabet; told to a screen reader."""
    page = show(plans.plan())
    assert column(page, 0) == ["0", "1", "2", "3"]
    page.click_on("[data-key=stake]")
    assert column(page, 0) == ["1", "2", "0", "3"]
    page.click_on("[data-key=name]")
    assert column(page, 1) == ["aten.frobnicate bwd", "attention",
                               "masked_fill", "matmul"]  # fmt: skip
    page.click_on("[data-key=name]")
    assert column(page, 1)[0] == "matmul"
    sort = page.run("document.querySelector('[data-key=name]').parentElement.ariaSort")
    assert sort == "descending"


def test_a_row_shows_why(show):
    """Floors, exact counts, the verdict's rule and the reasons against the others."""
    page = show(plans.plan())
    page.click_on("#op-1")
    text = page.run("document.getElementById('details').innerText")
    for words in ("#1 attention", "100,000,000", "without the mask's savings", "attention.sdpa",
                  "rule-of-auto-fuse", "reason of op 1", "torch.compile", "not HAND-WRITE",
                  "not by hand for op 1", "2 ops: #1, #2", "a library call in"):  # fmt: skip
        assert words in text, words


def test_the_keyboard_reaches_every_row(show):
    """Arrows, Page, Home and End move; the row is selected, in sight, and named to readers."""
    page = show(plans.many(1000))
    page.run("document.getElementById('grid').focus()")
    page.press("ArrowDown")
    page.press("ArrowDown")
    selected = "document.querySelector('[aria-selected=true]')"
    assert page.run(f"{selected}.ariaRowIndex") == "3"
    page.press("End")
    page.wait(f"{selected} && {selected}.ariaRowIndex === '1001'")
    assert page.run("document.getElementById('grid').getAttribute('aria-activedescendant')") == (
        page.run(f"{selected}.id")
    )
    page.press("Home")
    page.wait(f"{selected} && {selected}.ariaRowIndex === '2'")
    page.press("Tab")  # on to the headers, which are buttons
    assert page.run("document.activeElement.dataset.key") == "index"
    page.press("Enter")
    assert column(page, 0)[:3] == ["0", "1", "2"]


def test_findings_groups_and_bars_filter_the_table(show):
    """Each leads to its ops."""
    page = show(plans.plan())
    page.click_on(".finding .show-ops")
    assert sorted(column(page, 0)) == ["1", "2"]
    page.run("clear.click()")
    page.click_on(".fuse")
    assert sorted(column(page, 0)) == ["1", "2"]
    page.run("clear.click()")
    page.click_on(".barrow:nth-child(1)")
    assert column(page, 1) == ["matmul"]


def test_bars_group_by_what_is_chosen(show):
    """Module, line and phase beside the op; layers merged unless asked not to."""
    page = show(plans.many(300))
    names = "[...document.querySelectorAll('.barrow .name')].map(n => n.textContent)"
    page.click_on("#bars-by [data-by=module]")
    assert page.run(names) == ["model.layers.*.mlp"]
    page.click_on("#merge-layers")
    assert sorted(page.run(names)) == [f"model.layers.{i}.mlp" for i in range(3)]
    page.click_on("#bars-by [data-by=phase]")
    assert sorted(page.run(names)) == ["backward", "forward"]


def test_an_area_of_the_treemap_filters_the_table(show):
    """A click on a module keeps its ops."""
    page = show(plans.plan())
    page.middle("#treemap-plot")
    x, y = page.run(
        "(() => { const s = [...document.querySelectorAll('#treemap-plot .slice')]"
        ".find(s => s.textContent.startsWith('q')); const b = s.getBoundingClientRect();"
        "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    page.click(x, y)
    page.wait("document.getElementById('status').textContent.startsWith('1 of 4')")
    assert column(page, 1) == ["matmul"]


def test_light_and_dark_follow_the_system_and_the_button(show, tmp_path):
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
    verdicts = (replace(plan.verdicts[0], reason=EVIL), *plan.verdicts[1:])
    groups = (replace(plan.groups[0], module=EVIL),)
    estimate = replace(plan.estimate, ops=named, graph=graph)
    return replace(plan, estimate=estimate, verdicts=verdicts, groups=groups)


@pytest.mark.parametrize("width", [WIDTH, 400])
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
