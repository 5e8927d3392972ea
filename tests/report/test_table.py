"""An estimate as rows and as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import estimates
import pytest

from rooftile.errors import InputError
from rooftile.report.table import GroupRow, audit_csv, check_selection, group_rows, op_rows

ESTIMATE = estimates.estimate()


def twice(estimate):
    """The same step run twice: every op is there two times."""
    return replace(estimate, ops=estimate.ops + estimate.ops)


def test_every_op_is_a_row_in_the_order_of_the_step():
    """Views too: what costs nothing is still said."""
    assert [row.index for row in op_rows(ESTIMATE)] == [0, 1, 2, 3, 4]


def test_an_unpriced_op_has_no_flop():
    """Its FLOP are unknown, which is not 0; its bytes are known."""
    row = op_rows(ESTIMATE)[3]
    assert (row.flops, row.matrix_flops, row.vector_flops, row.flop_per_byte) == (None,) * 4
    assert row.read_bytes + row.write_bytes == 10**8


def test_a_row_has_the_figures_of_its_op():
    """Needed and dense FLOP apart, intensity over needed ones, both ends of the time."""
    row = op_rows(ESTIMATE)[1]
    assert (row.matrix_flops, row.dense_matrix_flops, row.vector_flops) == (
        10**8,
        2 * 10**8,
        5 * 10**7,
    )
    assert row.flops == 15 * 10**7
    assert row.flop_per_byte == pytest.approx(0.75)
    assert (row.least_s, row.warm_s) == pytest.approx((200e-6, 100e-6))
    assert (row.bound, row.share, row.formula) == ("memory", 0.2, "attention.sdpa")


def test_top_takes_the_longest():
    """By least time; of two equal ones the earlier."""
    assert [row.index for row in op_rows(ESTIMATE, top=3)] == [0, 1, 2]
    assert len(op_rows(ESTIMATE, top=99)) == 5


def test_groups_by_op():
    """Sums over the ops that launch a kernel; the longest first."""
    first = group_rows(twice(ESTIMATE), "op")[0]
    assert first == GroupRow(
        group="matmul",
        ops=2,
        unpriced_ops=0,
        matrix_flops=12 * 10**8,
        vector_flops=0,
        bytes=8 * 10**8,
        flop_per_byte=1.5,
        bound="compute",
        least_s=pytest.approx(1200e-6),
        share=1.2,
    )
    assert [row.group for row in group_rows(ESTIMATE, "op")] == [
        "matmul",
        "attention",
        "masked_fill",
        "aten.frobnicate",
    ]


def test_groups_by_module_and_line():
    """Ops without either are a group of their own, said in words."""
    assert {row.group: row.ops for row in group_rows(ESTIMATE, "module")} == {
        "model.q": 1,
        "model": 1,
        "(outside every module)": 2,
    }
    assert {row.group: row.ops for row in group_rows(ESTIMATE, "line")} == {
        "m.py:3": 1,
        "(unknown)": 2,
        "m.py:9": 1,
    }


def test_a_group_counts_what_is_priced_of_it():
    """FLOP/byte is over the priced ops' own bytes; the bytes of the group are all of them."""
    (row,) = [row for row in group_rows(ESTIMATE, "module") if row.ops == 2]
    assert (row.unpriced_ops, row.vector_flops, row.bytes) == (1, 10**7, 2 * 10**8)
    assert row.flop_per_byte == pytest.approx(0.1)


def test_csv_has_plain_numbers():
    """One line an op, units in the header's names, nothing where the FLOP are unknown."""
    rows = list(csv.DictReader(io.StringIO(audit_csv(ESTIMATE))))
    assert len(rows) == 5
    assert rows[0]["matrix_flops"] == "600000000"
    assert float(rows[0]["least_s"]) == pytest.approx(600e-6)
    assert rows[3]["matrix_flops"] == ""
    assert rows[3]["shapes"] == "(2048, 4096) bfloat16"


def test_csv_follows_the_grouping():
    """The same rows as the table shows."""
    rows = list(csv.DictReader(io.StringIO(audit_csv(ESTIMATE, by="op", top=2))))
    assert [row["group"] for row in rows] == ["matmul", "attention"]


@pytest.mark.parametrize(("by", "top"), [("layer", None), ("", None), (None, 0), ("op", -1)])
def test_a_wrong_selection_is_refused(by, top):
    """The message names the argument and what came."""
    with pytest.raises(InputError, match=r"^(by|top) must be .* got"):
        check_selection(by, top)
    with pytest.raises(InputError):
        audit_csv(ESTIMATE, by=by, top=top)


def test_a_step_of_nothing_has_no_rows():
    """An empty graph is a header and nothing else."""
    empty = replace(ESTIMATE, ops=())
    assert op_rows(empty) == []
    assert group_rows(empty, "op") == []
    assert audit_csv(empty).count("\n") == 1
