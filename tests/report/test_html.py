"""The page as it is written; what it does in a browser: ``test_page.py``."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import estimates
import plans
import pytest

from rooftile.report.html import html_report

PAGE = html_report(plans.plan()).decode()
EVIL = "<img src=x onerror=alert(1)>"


def without_scripts(page: str) -> str:
    """What is markup of the page."""
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_one_file_that_loads_nothing():
    """No link, no source, no import, and a policy that forbids them; plotly.js is in it once."""
    markup = without_scripts(PAGE)
    assert not re.search(r"(?:src|href)\s*=\s*[\"'](?!#|data:)", markup)
    assert "@import" not in markup
    assert "url(" not in markup
    assert "default-src 'none'" in markup
    assert PAGE.count("Copyright 2012-") == 1
    assert PAGE.count("* plotly.js v") == 1


def test_totals_are_absolute():
    """Target, GPU, FLOP, bytes, time, assumptions and what fusion saves."""
    markup = without_scripts(PAGE)
    for words in (
        "toy.py:make", "H100 SXM5 80 GB", "700 MFLOP", "800 MB", "1 ms", "800,000,000",
        "loss: out.sum()", "180 µs", "200 MB, 18.0 % of the step",
    ):  # fmt: skip
        assert words in markup, words


def test_the_gpus_figures_have_their_sources():
    """Peaks, bandwidth, memory levels, and how far to trust them."""
    markup = without_scripts(PAGE)
    for words in ("989.4 TFLOP/s", "3.35 TB/s", "256 KiB an SM, derived", "not published"):
        assert words in markup, words
    assert "Confidence: A read off a device" in markup


def test_the_method_says_how_recomputed_work_counts():
    """Each time it runs: a reader may otherwise take the FLOP for the model's."""
    page = html_report(plans.plan()).decode()
    method = page.split('<section id="method"')[1].split("</section>")[0]
    assert "activation checkpointing computes again counts each time it runs" in method


def test_a_plan_without_findings_does_not_say_that_no_op_waits():
    """One op shorter than its launch: it waits, and there is nothing to do about it."""
    plan = plans.plan()
    estimate = replace(plan.estimate, ops=plan.estimate.ops[:1])
    page = html_report(replace(plan, estimate=estimate, groups=(), verdicts=())).decode()
    assert "Nothing to act on" in page
    assert "no op waits for memory" not in without_scripts(page)


def test_refusals_are_counted_by_reason():
    """With one example in words."""
    markup = without_scripts(PAGE)
    assert "a library call in between" in markup
    assert "matmul is cuBLAS&#39;s" in markup


def test_an_estimate_alone_is_a_page_without_verdicts():
    """No fusion section, no word of a verdict."""
    markup = without_scripts(html_report(estimates.estimate()).decode())
    assert 'id="fusion"' not in markup
    assert "Verdict" not in markup
    assert "Every op" in markup


def test_every_text_of_the_user_is_escaped():
    """Target, assumption, module, line, op, detail: none becomes markup."""
    plan = plans.plan()
    ops = tuple(
        replace(op, name=EVIL, module=EVIL, line=EVIL, aten=EVIL) for op in plan.estimate.ops
    )
    graph = replace(plan.estimate.graph, target=EVIL, assumptions=(EVIL,), versions={EVIL: EVIL})
    device = replace(plan.estimate.device, name=EVIL, notes=(EVIL,))
    estimate = replace(plan.estimate, ops=ops, graph=graph, device=device)
    verdicts = tuple(replace(verdict, reason=EVIL, cover=EVIL) for verdict in plan.verdicts)
    page = html_report(replace(plan, estimate=estimate, verdicts=verdicts)).decode()
    assert EVIL not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_equal_records_give_equal_pages():
    """Nothing of the clock or of chance is in it."""
    assert html_report(plans.plan()).decode() == PAGE


@pytest.mark.parametrize("record", ["free", "unknown"])
def test_a_step_without_kernels_or_a_gpu_without_figures_is_a_page(record):
    """Nothing to draw is no error."""
    estimate = estimates.estimate()
    if record == "free":
        totals = replace(estimate.totals, ops=0, least_s=0.0, bytes=0, bound_s={})
        estimate = replace(estimate, ops=estimate.ops[4:], totals=totals)
    else:
        estimate = replace(estimate, device=replace(estimate.device, hierarchy=(), notes=()))
    assert b"Rooftile" in html_report(estimate)


def test_20_000_ops_are_less_than_8_mb():
    """Of 2,000 sizes, with a plan; written in seconds."""
    plan = plans.many(20_000)
    start = time.process_time()
    page = html_report(plan)
    assert len(page) < 8_000_000
    assert time.process_time() - start < 20  # 1 s on a free core
