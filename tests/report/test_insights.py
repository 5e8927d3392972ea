"""What stands out in a step, from a plan and from an estimate alone."""

from __future__ import annotations

from dataclasses import replace

import estimates
import plans
import pytest

from rooftile.report.insights import chain, insights, module_pattern


@pytest.mark.parametrize(
    ("module", "pattern"),
    [
        ("model.layers.31.mlp", "model.layers.*.mlp"),
        ("0", "*"),
        ("layer1.2.conv2", "layer1.*.conv2"),
        ("h.3", "h.*"),
        ("", ""),
    ],
)
def test_a_layers_number_is_starred(module, pattern):
    """Only whole parts of the path are numbers of layers."""
    assert module_pattern(module) == pattern


def test_a_long_chain_is_cut():
    """Six names, then how many more."""
    assert chain(["a", "b"]) == "a, b"
    assert chain(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"


def test_a_plan_tells_its_groups_then_single_ops_then_gaps():
    """The greatest saving first, in absolute numbers."""
    found = insights(plans.plan())
    assert [item.rule for item in found] == ["auto-fuse", "use-library", "unpriced"]
    fused, library, gap = found
    assert fused.text == "attention, masked_fill in model: 300 MB as 2 kernels, 100 MB as one."
    assert fused.action == "AUTO-FUSE (torch.compile): reason of op 2"
    assert fused.saves == "180 us, 18.0 % of the step; 200 MB"
    assert (fused.saved_s, fused.share) == (pytest.approx(180e-6), pytest.approx(0.18))
    assert fused.ops == (1, 2)
    assert library.action == "USE LIBRARY (cuBLAS): reason of op 0"
    assert library.saves == "40 us, 4.0 % of the step"
    assert (gap.ops, gap.saved_s) == ((3,), 0.0)


def test_groups_of_every_layer_are_one():
    """200 ops in two layers, 100 groups of two: one insight."""
    (only,) = insights(plans.many(200))
    assert only.text == (
        "mul, mul in model.layers.*.mlp, 100 times: 1 GB as 2 kernels, 500 MB as one."
    )
    assert only.saved_s == pytest.approx(100 * 3e-6)
    assert only.ops == tuple(range(200))


def test_what_is_left_alone_is_no_finding():
    """A group whose ops are all left as they are, and an op with nothing at stake."""
    plan = plans.plan()
    left = tuple(replace(v, action="LEAVE IT") for v in plan.verdicts)
    assert [item.rule for item in insights(replace(plan, verdicts=left))] == ["unpriced"]


def test_an_estimate_alone_tells_the_walls():
    """No verdicts: the memory wall by op, and what has no formula; never more than asked for."""
    found = insights(estimates.estimate())
    assert [item.rule for item in found] == ["memory-bound", "memory-bound", "unpriced"]
    assert (
        found[0].text == "1 attention op at the memory wall: 200 MB in 200 us, 20.0 % of the step."
    )
    assert found[0].saves == "at most 200 us, 20.0 % of the step; 200 MB"
    assert found[2].text == (
        "1 aten.frobnicate.default op without a formula: 100 MB, FLOP not counted."
    )
    assert len(insights(estimates.estimate(), top=1)) == 1


def test_small_kernels_are_told_together():
    """Ops shorter than their launch are one insight."""
    estimate = estimates.estimate()
    small = replace(estimate.ops[2], bound="launch", least_s=2e-6)
    found = insights(replace(estimate, ops=(small, *estimate.ops[3:])))
    (launch,) = [item for item in found if item.rule == "launch-bound"]
    assert launch.text == "1 op shorter than a kernel's launch (masked_fill): 2 us in all."


def test_a_step_without_time_divides_by_nothing():
    """All ops free: no insight, no error."""
    estimate = estimates.estimate()
    totals = replace(estimate.totals, ops=0, least_s=0.0, bound_s={})
    assert insights(replace(estimate, ops=estimate.ops[4:], totals=totals)) == []
