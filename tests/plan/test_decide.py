"""Plans as a whole: verdicts with their evidence, GPUs beside each other, files, and speed."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tapes import Tape, only

import rooftile
from rooftile.errors import InputError
from rooftile.records.io import from_json, to_json
from rooftile.records.plan import Plan
from rooftile.report.findings import finding_lines
from rooftile.report.insights import insights

N = 4096 * 4096 * 2


def layer(tape: Tape, x, w):
    """A norm written out and a product."""
    rstd = tape.op("rsqrt", tape.mean(tape.op("pow", x, exponent=2)))
    return tape.mm(tape.op("mul", x, rstd), w)


@pytest.fixture
def plan() -> Plan:
    """Two such layers of 4096 x 4096."""
    tape = Tape()
    x, w = tape.input(4096, 4096), tape.input(4096, 4096)
    return tape.plan(layer(tape, layer(tape, x, w), w))


def test_products_go_to_the_library_and_norms_to_the_compiler(plan):
    """Each with what covers it, and why not the other three."""
    by_name = {plan.estimate.ops[v.index].name: v for v in plan.verdicts}
    mm, mul = by_name["mm"], by_name["mul"]
    assert (mm.action, mm.cover) == ("USE LIBRARY", "cuBLAS: mm")
    assert (mul.action, mul.cover) == (
        "AUTO-FUSE", "torch.compile: pointwise around a row reduction",
    )  # fmt: skip
    assert set(mul.why_not) == {"LEAVE IT", "USE LIBRARY", "HAND-WRITE"}


def test_shares_are_those_of_all_ops_alike(plan):
    """Two products and two norms make the whole step."""
    shares = {v.index: v.share for v in plan.verdicts}
    assert shares[4] == shares[9]
    assert shares[0] + shares[4] == pytest.approx(1.0)


def test_time_at_stake_is_the_groups_saving_parted_among_its_ops(plan):
    """And nothing for an op without a group."""
    saved = sum(group.saved_s for group in plan.groups)
    assert sum(v.at_stake_s for v in plan.verdicts) == pytest.approx(saved)
    assert all((v.at_stake_s == 0) == (v.group is None) for v in plan.verdicts)


def test_a_threshold_above_everything_leaves_everything():
    """Off the hot path, nothing is done."""
    tape = Tape()
    x, w = tape.input(4096, 4096), tape.input(4096, 4096)
    cold = tape.plan(layer(tape, x, w), hot_share=1.0)
    assert {v.action for v in cold.verdicts} == {"LEAVE IT"}
    assert insights(cold) == []


def test_an_op_without_a_formula_runs_alone_and_promises_nothing():
    """Unpriced is a bound of its own."""
    tape = Tape()
    h = tape.op("aten.frobnicate", tape.op("relu", tape.input(4096, 4096)))
    plan = tape.plan(tape.op("neg", h))
    assert plan.groups == ()
    assert plan.verdicts[1].rule == "hot, unpriced"


def test_findings_put_groups_alike_together(plan):
    """One finding for both norms: insight, action, saving, in absolute numbers."""
    (finding,) = insights(plan)
    assert finding.text.startswith("pow, mean, rsqrt, mul in the step, 2 times: ")
    cover = "torch.compile: pointwise around a row reduction; or rooftile.ops.rms_norm"
    assert finding.action.startswith(f"AUTO-FUSE ({cover}): ")
    assert finding.saved_s == pytest.approx(sum(group.saved_s for group in plan.groups))
    text = ["".join(part for part, _ in line) for line in finding_lines(plan)]
    assert text[0].startswith("verdicts    0 LEAVE IT, 2 USE LIBRARY, 8 AUTO-FUSE, 0 HAND-WRITE")
    assert [line.split()[0] for line in text[2:]] == ["1.", "Action", "Saves"]


def test_a_plan_survives_its_file(plan):
    """It reads back equal."""
    assert from_json(to_json(plan), Plan) == plan


def test_a_bound_turns_with_the_gpu():
    """4096 x 640 by 640 x 4096 is 487.6 FLOP a byte; the ridge of an H100 is 295, of an L4 404.

    An RTX-like GPU of one's own with little bandwidth has it above: bound by bytes.
    """
    tape = Tape()
    y = tape.mm(tape.input(4096, 640), tape.input(640, 4096))
    estimate = tape.plan(y).estimate
    slow = replace(
        estimate.device, id="slow", bandwidth=replace(estimate.device.bandwidth, value=1e12)
    )
    found = rooftile.what_if(estimate, ["h100-sxm", "l4", slow])
    assert [on.gpu for on in found.gpus] == ["h100-sxm", "l4", "slow"]
    assert [place.bound for place in found.kinds[0].on] == ["compute", "compute", "memory"]


def test_what_flips_stands_first():
    """Elementwise work beside a product is hot on one GPU and cold on the other."""
    tape = Tape()
    x, w = tape.input(8192, 8192), tape.input(8192, 8192)
    h = tape.op("exp", tape.op("neg", x))
    estimate = tape.plan(tape.mm(h, w), tape.op("relu", h)).estimate
    found = rooftile.what_if(estimate, ["h100-sxm", "l4"], hot_share=0.05)
    flips = [kind.flips for kind in found.kinds]
    assert flips == sorted(flips, reverse=True)
    for kind in found.kinds:
        assert kind.flips == (len({place.action for place in kind.on}) > 1)


@pytest.mark.parametrize(
    ("gpus", "words"),
    [([], "at least one GPU"), (["h100-sxm", "h100sxm9"], "near names")],
)
def test_gpus_that_are_none_are_refused(gpus, words, plan):
    """By name."""
    with pytest.raises(InputError, match=words):
        rooftile.what_if(plan.estimate, gpus)


def test_eight_thousand_ops_take_linear_time():
    """Twice the layers take about twice the time, and 8,000 ops well under five seconds."""

    def build(layers: int):
        tape = Tape()
        x, w = tape.input(256, 256), tape.input(256, 256)
        table = tape.op("cos", tape.input(256, 256))
        for _ in range(layers):
            x = tape.op("add", x, tape.op("mul", layer(tape, x, w), table))
        return tape.plan(x).estimate

    small, large = build(667), build(1334)
    took = []
    for estimate in (small, large):
        start = time.process_time()
        rooftile.advise(estimate)
        took.append(time.process_time() - start)
    assert len(large.ops) >= 8000
    assert took[1] < 5.0
    assert took[1] < 4 * took[0] + 0.2


def test_a_chain_through_a_long_residual_is_not_a_circle():
    """A result read by every later layer: groups stay in an order that can run."""
    tape = Tape()
    x, w = tape.input(256, 256), tape.input(256, 256)
    first = tape.op("exp", x)
    h = first
    for _ in range(20):
        h = tape.op("add", tape.op("relu", tape.mm(h, w)), first)
    plan = tape.plan(h)
    of_op = {i: group.id for group in plan.groups for i in group.ops}
    last: dict[int, int] = {}
    for op in plan.estimate.graph.ops:
        last[of_op.get(op.index, -1 - op.index)] = op.index
    order = sorted(last.values())
    assert len(order) == len(last)
    assert of_op[2] == of_op[3] == of_op[1]
    assert 0 not in of_op


def test_the_whole_group_may_wait_for_a_later_product():
    """silu(a @ v) * (b @ w): the epilogue of the first product waits for the second."""
    tape = Tape()
    x, v, w = tape.input(256, 128), tape.input(128, 512), tape.input(128, 512)
    gate = tape.op("silu", tape.mm(x, v))
    y = tape.op("mul", gate, tape.mm(x, w))
    group = only(tape.plan(y))
    assert (group.ops, group.kind) == ((0, 1, 3), "matmul epilogue")
