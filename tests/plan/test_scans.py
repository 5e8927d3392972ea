"""Running sums, reductions beside each other, and what may not stand behind a reduction.

``N`` is the bytes of one 1024 x 512 bfloat16 tensor.
"""

from __future__ import annotations

import pytest
from tapes import Tape, only, reasons

ROWS, COLS = 1024, 512
N = ROWS * COLS * 2


@pytest.fixture
def tape() -> Tape:
    """An empty tape."""
    return Tape()


def traffic(group) -> tuple[int, int]:
    """Bytes before and after."""
    return group.bytes_before, group.bytes_after


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
def test_a_running_sum_is_a_row_in_and_a_row_out(name, tape):
    """relu 2n, scan 2n, mul 2n become 2n, and torch.compile does it."""
    x = tape.input(ROWS, COLS)
    y = tape.op("mul", tape.op(name, tape.op("relu", x), dim=-1), other=2)
    group = only(tape.plan(y))
    assert (group.kind, group.compiler) == ("row", True)
    assert (traffic(group), group.compiler_saved_bytes) == ((6 * N, 2 * N), 4 * N)


def test_torch_compile_starts_anew_behind_a_scan_along_columns(tape):
    """One kernel is legal and saves 4n; Inductor's two save the 2n in front of the scan."""
    x = tape.input(ROWS, COLS)
    y = tape.op("mul", tape.op("cumsum", tape.op("relu", x), dim=0), other=2)
    group = only(tape.plan(y))
    assert (traffic(group), group.compiler) == ((6 * N, 2 * N), False)
    assert group.compiler_saved_bytes == 2 * N


def test_two_reductions_of_one_tensor_read_it_once(tape):
    """A maximum and a mean a row: n + r each, with r one figure a row, become n + 2r."""
    x = tape.input(ROWS, COLS)
    group = only(tape.plan(tape.mean(x, "amax"), tape.mean(x)))
    assert traffic(group) == (2 * N + 4 * ROWS, N + 4 * ROWS)


@pytest.mark.parametrize("name", ["flip", "roll", "pad", "repeat"])
def test_what_moves_elements_does_not_share_the_kernel_that_reduced_them(name, tape):
    """softmax, then its elements from other places: another row's, or another thread's."""
    h = tape.op("softmax", tape.input(ROWS, COLS), dim=-1)
    plan = tape.plan(tape.op("neg", tape.op(name, h)))
    assert only(plan).ops == (1, 2)
    assert reasons(plan)[0, 1] == "incompatible iteration space"


def test_picking_one_log_probability_a_row_shares_its_kernel(tape):
    """log_softmax 2n, gather of one a row: n and what is picked, which the scores never leave."""
    x, at = tape.input(ROWS, COLS), tape.input(ROWS, 1, dtype="int64")
    scores = tape.op("log_softmax", x, dim=-1)
    y = tape.op("gather", scores, at, out=tape.fresh(ROWS, 1), roles=("self", "index"), dim=-1)
    group = only(tape.plan(y))
    assert traffic(group) == (2 * N + 12 * ROWS, N + 10 * ROWS)
