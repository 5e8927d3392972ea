"""The page's columns."""

from __future__ import annotations

import json
from dataclasses import replace

import estimates
import plans

from rooftile.report.store import store, store_json


def row(table: dict[str, list], number: int) -> dict[str, object]:
    """One row of a table of columns."""
    return {name: column[number] for name, column in table.items()}


def test_an_op_reads_back():
    """Every figure of the estimate, through the columns and the strings."""
    data = store(plans.plan())
    op = row(data["ops"], 0)
    work = row(data["work"], op["work"])
    words = data["strings"]
    assert words[op["module"]] == "model.q"
    assert [words[work[name]] for name in ("name", "aten", "phase", "bound", "math")] == [
        "matmul", "aten.mm.default", "forward", "compute", "bf16",
    ]  # fmt: skip
    assert (work["matrix_flops"], work["read_bytes"], work["write_bytes"]) == (6e8, 3e8, 1e8)
    assert (work["launch_s"], work["matrix_s"], work["hbm_s"]) == (2e-6, 6e-4, 1.2e-4)


def test_free_ops_are_left_out_and_indices_kept():
    """The view is no kernel; the others keep their place in the graph."""
    assert store(estimates.estimate())["ops"]["index"] == [0, 1, 2, 3]


def test_verdicts_and_groups_join_by_row():
    """Op 1 has its verdict; the group names its ops."""
    data = store(plans.plan())
    verdict = row(data["verdicts"], data["ops"]["verdict"][1])
    words = data["strings"]
    assert (words[verdict["action"]], verdict["at_stake_s"]) == ("AUTO-FUSE", 1e-4)
    assert [[words[a], words[b]] for a, b in verdict["why_not"]] == [
        ["HAND-WRITE", "not by hand for op 1"]
    ]
    assert data["groups"]["ops"] == [(1, 2)]
    assert words[data["refusals"]["reason"][0]] == "a library call in between"


def test_an_estimate_alone_has_no_verdicts():
    """The same columns, empty."""
    data = store(estimates.estimate())
    assert data["ops"]["verdict"] == [-1, -1, -1, -1]
    assert data["verdicts"]["action"] == []
    assert data["meta"]["planned"] is False


def test_equal_work_is_kept_once():
    """Two ops of one shape share a row; equal texts share a number."""
    estimate = estimates.estimate()
    twice = replace(estimate, ops=(estimate.ops[0], replace(estimate.ops[0], index=1)))
    data = store(twice)
    assert data["ops"]["work"] == [0, 0]
    assert len(data["strings"]) == len(set(data["strings"]))


def test_no_text_can_end_the_script_element():
    """A ``<`` in a name is written as an escape, and reads back as itself."""
    name = "</script><script>alert(1)</script>"
    estimate = estimates.estimate()
    text = store_json(replace(estimate, ops=(replace(estimate.ops[0], module=name),)))
    assert "<" not in text
    assert name in json.loads(text)["strings"]
