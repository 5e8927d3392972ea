"""Products: what may stand in their epilogue, attention written out, and which library has it."""

from __future__ import annotations

import pytest
from tapes import Tape, only, reasons

BATCH, LENGTH, WIDTH = 16, 256, 64
SCORES = BATCH * LENGTH * LENGTH * 2
ROWS_OF = BATCH * LENGTH * WIDTH * 2


def attention(change, *, save=False, width=WIDTH, length=LENGTH):
    """softmax(change(q @ k.T)) @ v, and its plan; change is given the tape and the scores."""
    tape = Tape()
    q, v = tape.input(BATCH, length, width), tape.input(BATCH, length, width)
    k = tape.input(BATCH, width, length)
    p = tape.op("softmax", change(tape, tape.bmm(q, k)), dim=-1)
    y = tape.bmm(p, v)
    return tape.plan(y, *([p] if save else []))


def test_attention_written_out_is_one_kernel():
    """bmm, scale, softmax, bmm: the scores never reach memory."""
    group = only(attention(lambda tape, s: tape.op("div", s, other=8.0)))
    assert (group.kind, group.ops) == ("attention", (0, 1, 2, 3))
    assert group.bytes_before == 6 * SCORES + 4 * ROWS_OF
    assert group.bytes_after == 4 * ROWS_OF


def test_kept_probabilities_are_written():
    """Where the probabilities are wanted, the kernel writes them once."""
    group = only(attention(lambda tape, s: s, save=True))
    assert group.bytes_after == 4 * ROWS_OF + SCORES


@pytest.mark.parametrize(
    ("change", "scale"),
    [
        (lambda tape, s: tape.op("div", s, other=3.0), "0.333333"),
        (lambda tape, s: tape.op("div", s, other=8.0), "0.125"),
        (lambda tape, s: tape.op("mul", s, other=0.125), "0.125"),
        (lambda tape, s: s, "1"),
    ],
)
def test_the_scale_of_the_graph_is_passed_on(change, scale):
    """It is not taken to be 1/8 because the width is 64."""
    group = only(attention(change))
    assert group.cover == f"torch.nn.functional.scaled_dot_product_attention(scale={scale})"


def test_a_scale_before_the_product_is_none_of_the_call():
    """q is scaled first: the call's scale is 1."""
    tape = Tape()
    q, v = tape.input(BATCH, LENGTH, WIDTH), tape.input(BATCH, LENGTH, WIDTH)
    k = tape.input(BATCH, WIDTH, LENGTH)
    scores = tape.bmm(tape.op("mul", q, other=0.3), k)
    plan = tape.plan(tape.bmm(tape.op("softmax", scores, dim=-1), v))
    (group,) = [group for group in plan.groups if group.kind == "attention"]
    assert group.cover.endswith("(scale=1)")


def test_a_scale_that_is_a_tensor_is_not_torchs_attention():
    """The call takes a number; the kernel is legal, and nobody has it."""

    def change(tape, s):
        return tape.op("div", s, tape.input(1))

    group = only(attention(change))
    assert (group.kind, group.cover) == ("attention", "")


def test_a_novel_change_of_the_scores_is_written_by_hand():
    """tanh over 2048 x 2048 scores: torch.compile would still write them, no library has it."""
    plan = attention(lambda tape, s: tape.op("tanh", s), length=2048)
    assert only(plan).cover == ""
    assert {v.action for v in plan.verdicts} == {"HAND-WRITE"}
    assert plan.verdicts[2].rule == "memory, covered by nothing"
    assert plan.verdicts[2].why_not["USE LIBRARY"] == "no library's call does it"


def test_plain_attention_written_out_is_the_librarys():
    """The same with a scale: one call does all four ops."""
    plan = attention(lambda tape, s: tape.op("mul", s, other=0.125), length=2048)
    assert {(v.action, v.cover) for v in plan.verdicts} == {
        ("USE LIBRARY", "torch.nn.functional.scaled_dot_product_attention(scale=0.125)")
    }


def test_a_mask_after_the_scale_is_torchs_attention():
    """scale, then an added bias: scale and attn_mask of the call."""

    def change(tape, s):
        bias = tape.input(1, LENGTH, LENGTH)
        return tape.op("add", tape.op("mul", s, other=0.5), bias)

    assert only(attention(change)).cover.endswith("(scale=0.5)")


def test_a_scale_after_the_mask_is_not_torchs_attention():
    """(scores + bias) * s scales the bias too."""

    def change(tape, s):
        bias = tape.input(1, LENGTH, LENGTH)
        return tape.op("mul", tape.op("add", s, bias), other=0.5)

    assert only(attention(change)).cover == ""


def test_a_head_too_wide_for_a_tile_is_refused():
    """A tile of 64 queries, keys and values of 1,024 takes 384 KiB."""
    plan = attention(lambda tape, s: s, width=1024)
    assert "attention" not in [group.kind for group in plan.groups]
    assert "working set larger than SRAM" in reasons(plan).values()


def epilogue(*steps, bias=None, rows=64, columns=64):
    """The group of ``a @ b`` and what follows it; bias is its shape and strides."""
    tape = Tape()
    out = tape.mm(tape.input(rows, 32), tape.input(32, columns))
    if bias is not None:
        shape, stride = bias
        out = tape.op("add", out, tape.view(tape.input(columns), shape, stride=stride))
    for name, attrs in steps:
        out = tape.op(name, out, **attrs)
    return only(tape.plan(out))


def test_a_bias_along_the_columns_is_the_librarys_epilogue():
    """b as a row."""
    assert epilogue(bias=((64,), (1,))).cover == "torch.addmm: bias in the epilogue"


def test_a_bias_along_the_rows_is_not_though_the_product_is_square():
    """b[:, None]: the length fits, the dimension does not. One kernel may do it all the same."""
    group = epilogue(bias=((64, 1), (1, 1)))
    assert (group.kind, group.cover) == ("matmul epilogue", "")
    assert group.bytes_after == (64 * 32 * 2 + 64 + 64 * 64) * 2


def test_only_the_tanh_form_of_gelu_is_the_librarys():
    """Exact GELU is another function: at 1.0 it is 0.8413, the tanh form 0.8412."""
    assert epilogue(("gelu", {"approximate": "tanh"})).cover.startswith("torch._addmm_activation")
    assert epilogue(("gelu", {"approximate": "none"})).cover == ""
    assert epilogue(("gelu", {})).cover == ""


def test_an_epilogue_across_a_row_needs_the_row_in_a_tile():
    """A softmax behind a product: 1,024 columns fit 16 rows of float32 sums, 8,192 do not."""
    assert epilogue(("softmax", {"dim": -1}), columns=1024).kind == "matmul epilogue"
    tape = Tape()
    out = tape.mm(tape.input(64, 32), tape.input(32, 8192))
    plan = tape.plan(tape.op("softmax", out, dim=-1))
    assert plan.groups == ()
    assert reasons(plan) == {(0, 1): "working set larger than SRAM"}


def test_two_readers_in_two_kernels_leave_the_product_alone():
    """A row and a column reduction of one product."""
    tape = Tape()
    out = tape.mm(tape.input(64, 32), tape.input(32, 64))
    plan = tape.plan(tape.mean(out, "sum", 0), tape.mean(out, "sum", -1))
    assert plan.groups == ()
    assert reasons(plan)[0, 1] == "reused outside the group"
