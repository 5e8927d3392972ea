"""The page in a real browser: what a reader points at, clicks and types."""

from __future__ import annotations

import plans
from reader import column, point, status


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
