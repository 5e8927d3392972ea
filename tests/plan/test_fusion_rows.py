"""Reductions, rows and orders of elements in fusion groups, counted by hand."""

from __future__ import annotations

import pytest
from tapes import COLS, ROWS, N, Tape, only, reasons, traffic


@pytest.fixture
def tape() -> Tape:
    """An empty tape."""
    return Tape()


def test_a_softmax_in_the_middle_is_one_row_kernel(tape):
    """(softmax(x * s)) + b: three times 2n become 2n."""
    x = tape.input(ROWS, COLS)
    y = tape.op("add", tape.op("softmax", tape.op("mul", x, other=2), dim=-1), other=1)
    group = only(tape.plan(y))
    assert (group.kind, group.ops, group.compiler) == ("row", (0, 1, 2), True)
    assert traffic(group) == (6 * N, 2 * N)


def test_a_norm_written_out_is_one_row_kernel(tape):
    """Five ops of an RMS norm: x and its result move once, the row's figures never.

    pow 2n, mean n + r, add 2r, rsqrt 2r, mul 2n + r; r is one element a row, 2 bytes.
    """
    x = tape.input(ROWS, COLS)
    rstd = tape.op("rsqrt", tape.op("add", tape.mean(tape.op("pow", x, exponent=2)), other=1e-5))
    y = tape.op("mul", x, rstd)
    group = only(tape.plan(y))
    assert (group.kind, group.ops) == ("row", (0, 1, 2, 3, 4))
    assert traffic(group) == (5 * N + 12 * ROWS, 2 * N)


@pytest.mark.parametrize("shape", [(ROWS, COLS), (512, 512)])
def test_two_reductions_over_different_axes_are_two_kernels(shape, tape):
    """Rows and columns of one tensor; a square one does not hide it."""
    h = tape.op("relu", tape.input(*shape))
    a = tape.mean(h, "sum", -1)
    b = tape.mean(h, "sum", 0)
    plan = tape.plan(a, b)
    assert [group.ops for group in plan.groups] == [(0, 1)]
    assert reasons(plan)[0, 2] == "a reduction over another axis"


def test_a_reduction_of_a_softmax_along_columns_is_apart(tape):
    """softmax along rows, then a sum along columns."""
    p = tape.op("softmax", tape.input(ROWS, COLS), dim=-1)
    plan = tape.plan(tape.mean(p, "sum", 0))
    assert plan.groups == ()
    assert reasons(plan)[0, 1] == "a reduction over another axis"


def test_a_row_figure_repeated_along_the_wrong_axis_is_apart(tape):
    """x - mean over rows, laid along the columns of a square: another row's figure is needed."""
    x = tape.input(512, 512)
    mean = tape.mean(x)
    across = tape.view(mean, (1, 512))
    plan = tape.plan(tape.op("sub", x, across))
    assert plan.groups == ()
    assert reasons(plan)[0, 2] == "a reduction over another axis"


def test_a_row_larger_than_sram_is_not_kept(tape):
    """A row of 131,072 float32 takes 512 KiB; a block of an H100 has 227."""
    x = tape.input(64, 131_072, dtype="float32")
    plan = tape.plan(tape.op("sub", x, tape.mean(x)))
    assert plan.groups == ()
    assert reasons(plan)[0, 1] == "working set larger than SRAM"


def test_a_part_of_a_result_is_another_loop(tape):
    """Half of a row-reduced kernel's result is read by a smaller loop."""
    h = tape.op("softmax", tape.input(ROWS, COLS), dim=-1)
    half = tape.view(h, (ROWS, COLS // 2), stride=(COLS, 1))
    plan = tape.plan(tape.op("neg", half))
    assert plan.groups == ()
    assert reasons(plan)[0, 2] == "incompatible iteration space"


def test_a_transposed_softmax_is_another_order(tape):
    """A square softmax read the other way round is no chain, though the sizes agree."""
    h = tape.op("softmax", tape.input(512, 512), dim=-1)
    turned = tape.view(h, (512, 512), stride=(1, 512))
    plan = tape.plan(tape.op("softmax", turned, dim=-1))
    assert plan.groups == ()
    assert reasons(plan)[0, 2] == "incompatible iteration space"


def test_a_rotation_of_half_the_width_is_one_kernel(tape):
    """q * cos + cat(-q2, q1) * sin: q, two tables and the result move once."""
    q = tape.input(64, 128)
    table = tape.input(64, 128)
    a = tape.op("mul", q, table)
    second = tape.view(q, (64, 64), stride=(128, 1), offset=64)
    first = tape.view(q, (64, 64), stride=(128, 1))
    turned = tape.op("neg", second, out=tape.fresh(64, 64))
    whole = tape.op("cat", turned, first, out=tape.fresh(64, 128), roles=("tensors.0", "tensors.1"))
    y = tape.op("add", a, tape.op("mul", whole, table))
    group = only(tape.plan(y))
    assert group.ops == (0, 3, 4, 5, 6)
    assert group.bytes_after == 3 * 64 * 128 * 2
