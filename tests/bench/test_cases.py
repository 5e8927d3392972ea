"""Every op under the bench: what it is run with, what it is held to, what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rooftile.bench.cases import OPS, cases_of
from rooftile.bench.job import Job
from rooftile.bench.run import run
from rooftile.errors import InputError

CASES = [case for op in OPS for case in cases_of(op)]
PASSES = [(case, direction) for case in CASES for direction in case.costs]


def name(value):
    return value.label if hasattr(value, "label") else str(value)


@pytest.mark.parametrize(("case", "direction"), PASSES, ids=name)
def test_the_definition_passes_its_own_gate(case, direction, clock, surroundings, quick):
    """At the first small shape, with torch in place of the kernel; a row of times comes of it."""
    mine = replace(case, function=case.reference)
    job = Job(mine, direction, case.small[0], torch.bfloat16, "cpu", matmul_n=16)
    rows = run(job, clock(), surroundings, quick)
    assert [row.error for row in rows] == ["", ""]
    assert rows[0].cost.bytes > 0


@pytest.mark.parametrize(("case", "direction"), PASSES, ids=name)
def test_twice_the_right_result_does_not_pass(case, direction, clock, surroundings, quick):
    """The gate of each case can fail: the first result is doubled."""

    def doubled(*inputs):
        results = case.reference(*inputs)
        first, *rest = results if isinstance(results, tuple) else (results,)
        return (2 * first, *rest)

    job = Job(replace(case, function=doubled), direction, case.small[0], torch.float32, "cpu")
    row = run(job, clock(), surroundings, quick)[0]
    assert row.error.startswith("wrong result, not timed")
    assert row.seconds == ()


@pytest.mark.parametrize("op", ["softmax", "rms_norm", "layer_norm", "add_rms_norm"])
def test_row_ops_are_run_over_the_whole_range(op):
    """2**28 elements, 256 to 262,144 columns forward, 512 to 65,536 backward, and odd widths."""
    case = cases_of(op)[0]
    forward, backward = ([n for _, n in case.shapes[d]] for d in ("forward", "backward"))
    assert {256, 1024, 4096, 8192, 65_536, 131_072, 262_144, 50_257, 12_345} <= set(forward)
    assert {512, 1024, 8192, 65_536} <= set(backward)
    assert all(0.999 < m * n / 2**28 <= 1 for m, n in case.shapes["forward"])


def test_the_other_ops_are_run_at_the_shapes_of_the_peers():
    """Vocabularies of Llama 2 and 3; 8192 x 8192 elements."""
    assert cases_of("cross_entropy")[0].shapes["forward"] == ((8192, 32_000), (8192, 128_256))
    for op in ("bias_gelu_dropout_residual", "swiglu", "geglu"):
        for case in cases_of(op):
            assert case.shapes["forward"] == case.shapes["backward"] == ((8192, 8192),)
    b, s, h, d = cases_of("rotary_embedding")[0].shapes["forward"][0]
    assert b * s * h * d == 8192 * 8192


@pytest.mark.parametrize(
    ("op", "direction", "tensors"),
    [
        ("softmax", "forward", 2),
        ("softmax", "backward", 3),
        ("rms_norm", "backward", 3),
        ("add_rms_norm", "forward", 4),
        ("add_layer_norm", "backward", 4),
        ("bias_gelu_dropout_residual", "forward", 3),
        ("bias_gelu_dropout_residual", "backward", 3),
        ("swiglu", "forward", 3),
        ("swiglu", "backward", 5),
        ("geglu", "backward", 5),
        ("rotary_embedding", "backward", 2),
        ("cross_entropy", "forward", 1),
        ("cross_entropy", "forward_backward", 3),
    ],
)
def test_traffic_is_that_of_whole_tensors(op, direction, tensors):
    """As the peers were measured; weights and statistics add less than 2 %."""
    case = cases_of(op)[0]
    shape = case.shapes[direction][0]
    elements = torch.Size(shape).numel()
    moved = case.costs[direction](case.sizes(shape), 2).bytes
    assert tensors <= moved / (2 * elements) < 1.02 * tensors


def test_an_unknown_op_is_refused():
    """The message lists the known ones and the form of one's own."""
    with pytest.raises(InputError, match=r"op must be one of softmax, .*file.py:CASE, got 'gelu'"):
        cases_of("gelu")
