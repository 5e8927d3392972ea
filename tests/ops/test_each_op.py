"""Every op, dtype and direction once, at a small shape: what every change must pass.

The cases are the benchmark's, and so is what makes a result right. The other files of this folder
go through shapes, strides, options and refusals; ``make test-ops`` runs them.
"""

from __future__ import annotations

import pytest
import torch
from ops.close import DTYPES

from rooftile.bench.cases import OPS, cases_of
from rooftile.bench.environment import environment
from rooftile.bench.job import Job
from rooftile.bench.run import check_only

CASES = {case.label: case for op in OPS for case in cases_of(op)}
# the last of the small shapes has several rows that start anywhere
RUNS = [
    (label, direction)
    for label, case in CASES.items()
    for direction in case.costs
    if direction != "backward" or "forward_backward" not in case.costs
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("label", "direction"), RUNS)
def test_right(label, direction, dtype, device):
    """Every result and gradient is as near to float64 as the benchmark demands."""
    case = CASES[label]
    job = Job(case, direction, case.small[-1], dtype, device)
    (row,) = check_only(job, environment(device))
    assert row.error == ""
    assert row.check is not None
    assert row.check.passed, row.check.detail


def test_every_op_is_there_both_ways():
    """No op is left out, and each has a gradient."""
    ways = {op: {d for label, d in RUNS if CASES[label].op == op} for op in OPS}
    assert len(ways) >= 13
    assert all("forward" in found and len(found) > 1 for found in ways.values())


def test_it_runs_where_kernels_run(device):
    """On a GPU natively, interpreted elsewhere."""
    assert torch.device(device).type == ("cuda" if torch.cuda.is_available() else "cpu")
