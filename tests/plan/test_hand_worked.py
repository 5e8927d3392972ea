"""Small graphs of every kind, the bytes that fusing saves worked out by hand.

``N`` is the bytes of one 1024 x 512 bfloat16 tensor, ``w`` of a 512 x 512 one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tapes import Tape

ROWS, COLS = 1024, 512
N = ROWS * COLS * 2
r = ROWS * 2  # one bfloat16 a row


def x(tape: Tape, *shape: int, dtype: str = "bfloat16"):
    """An input, 1024 x 512 where no shape is given."""
    return tape.input(*(shape or (ROWS, COLS)), dtype=dtype)


def joined(tape: Tape):
    """neg(cat(relu(a), exp(b))): 2 + 2 + 4 + 4 become 2 + 2."""
    a, b = tape.op("relu", x(tape)), tape.op("exp", x(tape))
    out = tape.fresh(ROWS, 2 * COLS)
    return [tape.op("neg", tape.op("cat", a, b, out=out, roles=("tensors.0", "tensors.1")))]


def split(tape: Tape):
    """relu(a)[:, :512] * relu(a)[:, 512:]: two loops, nothing is saved."""
    h = tape.op("relu", x(tape, ROWS, 2 * COLS))
    left = tape.view(h, (ROWS, COLS), stride=(2 * COLS, 1))
    right = tape.view(h, (ROWS, COLS), stride=(2 * COLS, 1), offset=COLS)
    return [tape.op("mul", left, right, out=tape.fresh(ROWS, COLS))]


def overlapping(tape: Tape):
    """relu(a[:, :-1] + a[:, 1:]): the sum of 511 columns is neither written nor read."""
    a = x(tape)
    left = tape.view(a, (ROWS, COLS - 1), stride=(COLS, 1))
    right = tape.view(a, (ROWS, COLS - 1), stride=(COLS, 1), offset=1)
    return [tape.op("relu", tape.op("add", left, right, out=tape.fresh(ROWS, COLS - 1)))]


def casts(tape: Tape):
    """To float32, relu, back: 3 + 4 + 3 become 2."""
    wide = tape.op("copy", x(tape), out=tape.fresh(ROWS, COLS, dtype="float32"), dtype="float32")
    back = tape.fresh(ROWS, COLS)
    return [tape.op("copy", tape.op("relu", wide), out=back, dtype="bfloat16")]


def two_epilogues(tape: Tape):
    """p = a @ w; relu(p) and p + 1: p is neither written nor read twice."""
    p = tape.mm(x(tape), x(tape, COLS, COLS))
    return [tape.op("relu", p), tape.op("add", p, other=1)]


def escaping_product(tape: Tape):
    """relu(p), and p is wanted: its read is saved, its write is not."""
    p = tape.mm(x(tape), x(tape, COLS, COLS))
    return [tape.op("relu", p), p]


def two_products(tape: Tape):
    """a @ w + b @ v: one of them takes the sum as its epilogue and reads the other."""
    p, q = (tape.mm(x(tape), x(tape, COLS, COLS)) for _ in range(2))
    return [tape.op("add", p, q)]


def row_and_column(tape: Tape):
    """(a + row) * column: the sum stays in the kernel."""
    return [tape.op("mul", tape.op("add", x(tape), x(tape, COLS)), x(tape, ROWS, 1))]


def in_place_on_a_view(tape: Tape):
    """relu, add_ on a view of it, neg: 6 become 2."""
    h = tape.op("relu", x(tape))
    tape.change("add", tape.view(h, (ROWS * COLS,)))
    return [tape.op("neg", h)]


def wanted_in_the_middle(tape: Tape):
    """neg(exp(relu(a))), relu's result is wanted: 6 become 3."""
    h = tape.op("relu", x(tape))
    return [tape.op("neg", tape.op("exp", h)), h]


def wanted_as_a_view(tape: Tape):
    """The same result under another shape is still written."""
    h = tape.op("relu", x(tape))
    return [tape.op("neg", h), tape.view(h, (COLS, ROWS))]


def residuals(tape: Tape):
    """a + relu(a) + exp(a): 2 + 3 + 2 + 3 become 2."""
    a = x(tape)
    return [tape.op("add", tape.op("add", a, tape.op("relu", a)), tape.op("exp", a))]


def sum_times_difference(tape: Tape):
    """(a + b) * (a - b): 9 become 3."""
    a, b = x(tape), x(tape)
    return [tape.op("mul", tape.op("add", a, b), tape.op("sub", a, b))]


def mask(tape: Tape):
    """a * (a > 0): the mask of a byte an element is neither written nor read, a is read once."""
    a = x(tape)
    return [tape.op("mul", a, tape.op("gt", a, out=tape.fresh(ROWS, COLS, dtype="bool"), other=0))]


def softmax_backward(tape: Tape):
    """p = dy * y; p - y * sum(p): 3 + 1 + 2 + 3 and two figures a row become 3."""
    y, dy = x(tape), x(tape)
    p = tape.op("mul", y, dy)
    return [tape.op("sub", p, tape.op("mul", y, tape.mean(p, "sum")))]


def turned(tape: Tape):
    """relu, a transposed copy, neg: each element is computed where it is written."""
    h = tape.view(tape.op("relu", x(tape)), (COLS, ROWS), stride=(1, COLS))
    return [tape.op("neg", tape.op("contiguous", h, out=tape.fresh(COLS, ROWS)))]


def repeated(tape: Tape):
    """relu(a) added to four tensors of its shape at once: it is neither written nor read."""
    return [tape.op("add", x(tape, 4, ROWS, COLS), tape.op("relu", x(tape)))]


def small_one_wanted(tape: Tape):
    """relu of a column, added to all columns and wanted: its read is saved."""
    h = tape.op("relu", x(tape, ROWS, 1))
    return [tape.op("add", x(tape), h), h]


def overwritten(tape: Tape):
    """relu, neg, relu's result filled anew, their sum: 2 + 2 + 1 + 3 become 2."""
    h = tape.op("relu", x(tape))
    k = tape.op("neg", h)
    tape.change("fill", h)
    return [tape.op("add", k, h)]


def norm_of_all(tape: Tape):
    """a / sum(a): half a million elements do not stay in one block."""
    a = x(tape)
    return [tape.op("div", a, tape.op("sum", a, out=tape.fresh(1, 1), dim=(0, 1), keepdim=True))]


def changed_operand(tape: Tape):
    """relu_(a) of the caller's, then a @ w: the caller sees the change, nothing is saved."""
    a = x(tape)
    tape.change("relu", a)
    return [tape.mm(a, x(tape, COLS, COLS))]


def empty(tape: Tape):
    """No elements."""
    return [tape.op("neg", tape.op("relu", x(tape, 0, COLS)))]


SAVED: dict[Callable, float] = {
    joined: 8 * N,
    split: 0,
    overlapping: 2 * ROWS * (COLS - 1) * 2,
    casts: 8 * N,
    two_epilogues: 3 * N,
    escaping_product: N,
    two_products: 2 * N,
    row_and_column: 2 * N,
    in_place_on_a_view: 4 * N,
    wanted_in_the_middle: 3 * N,
    wanted_as_a_view: N,
    residuals: 8 * N,
    sum_times_difference: 6 * N,
    mask: 2 * N,
    softmax_backward: 6 * N + 2 * r,
    turned: 4 * N,
    repeated: 2 * N,
    small_one_wanted: r,
    overwritten: 6 * N,
    norm_of_all: 0,
    changed_operand: 0,
    empty: 0,
}


@pytest.mark.parametrize("graph", SAVED, ids=lambda graph: graph.__name__)
def test_saved_bytes_are_exact(graph):
    """As worked out in the graph's docstring."""
    tape = Tape()
    plan = tape.plan(*graph(tape))
    assert sum(group.saved_bytes for group in plan.groups) == SAVED[graph]
