"""Groups and their traffic on graphs worked out by hand.

``n`` is the bytes of one 1024 x 512 bfloat16 tensor: 1,048,576.
"""

from __future__ import annotations

import pytest
from tapes import COLS, ROWS, N, Tape, only, reasons, traffic


@pytest.fixture
def tape() -> Tape:
    """An empty tape."""
    return Tape()


def test_a_chain_reads_once_and_writes_once(tape):
    """Three ops of 2n each become one of 2n."""
    x = tape.input(ROWS, COLS)
    y = tape.op("relu", tape.op("exp", tape.op("neg", x)))
    group = only(tape.plan(y))
    assert (group.ops, group.kind, group.compiler) == ((0, 1, 2), "pointwise", True)
    assert traffic(group) == (6 * N, 2 * N)
    assert group.saved_bytes == 4 * N


def test_a_diamond_reads_its_input_once(tape):
    """relu(x) + 2x: 2n, 2n and 3n become 2n."""
    x = tape.input(ROWS, COLS)
    y = tape.op("add", tape.op("relu", x), tape.op("mul", x, other=2))
    assert traffic(only(tape.plan(y))) == (7 * N, 2 * N)


def test_z_plus_z_reads_z_once(tape):
    """relu 2n, z + z 2n; together 2n."""
    z = tape.op("relu", tape.input(ROWS, COLS))
    assert traffic(only(tape.plan(tape.op("add", z, z)))) == (4 * N, 2 * N)


def test_an_escaping_intermediate_is_still_written(tape):
    """h = x + r; y = layer_norm(h); both are results: one read of h is saved, no write of it."""
    x, r, w = tape.input(ROWS, COLS), tape.input(ROWS, COLS), tape.input(COLS)
    h = tape.op("add", x, r)
    y = tape.op("layer_norm", h, w, out=tape.fresh(ROWS, COLS), roles=("input", "weight"),
                normalized_shape=(COLS,))  # fmt: skip
    group = only(tape.plan(h, y))
    assert (group.kind, group.saved_bytes) == ("row", N)
    assert traffic(group) == (5 * N + 2 * COLS, 4 * N + 2 * COLS)


def test_reuse_outside_keeps_the_write(tape):
    """A product reads the intermediate too: written once, read there."""
    x, w = tape.input(ROWS, COLS), tape.input(COLS, 64)
    h = tape.op("relu", x)
    y = tape.op("neg", h)
    plan = tape.plan(y, tape.mm(h, w))
    (group,) = plan.groups
    assert (group.ops, traffic(group)) == ((0, 1), (4 * N, 3 * N))
    assert reasons(plan)[0, 2] == "reused outside the group"


def test_a_prologue_computes_the_operand_as_it_loads_it(tape):
    """relu(x) @ w, where nothing else wants relu(x): its write and its read are saved."""
    x, w = tape.input(ROWS, COLS), tape.input(COLS, 64)
    group = only(tape.plan(tape.mm(tape.op("relu", x), w)))
    assert (group.kind, group.ops, group.saved_bytes) == ("matmul prologue", (0, 1), 2 * N)
    assert not group.compiler


def test_a_view_inside_a_group_is_free(tape):
    """Between two pointwise ops it changes nothing, and no verdict is on it."""
    x = tape.input(ROWS, COLS)
    seen = tape.view(tape.op("relu", x), (ROWS * COLS,))
    plan = tape.plan(tape.op("neg", seen))
    assert (only(plan).ops, traffic(only(plan))) == ((0, 2), (4 * N, 2 * N))
    assert [verdict.index for verdict in plan.verdicts] == [0, 2]


def test_a_broadcast_bias_costs_its_own_bytes(tape):
    """(x + b) * 2 with b of one row."""
    x, b = tape.input(ROWS, COLS), tape.input(COLS)
    y = tape.op("mul", tape.op("add", x, b), other=2)
    assert traffic(only(tape.plan(y))) == (4 * N + 2 * COLS, 2 * N + 2 * COLS)


def test_an_expanded_operand_costs_its_storage(tape):
    """A column expanded to the whole shape is read once a row."""
    x, c = tape.input(ROWS, COLS), tape.input(ROWS, 1)
    wide = tape.view(c, (ROWS, COLS), stride=(1, 0))
    y = tape.op("neg", tape.op("mul", x, wide))
    assert traffic(only(tape.plan(y))) == (4 * N + 2 * ROWS, 2 * N + 2 * ROWS)


def test_in_place_ops_fuse_and_their_storage_is_written_once(tape):
    """y = 2x; y += 1; relu_(y): three times 2n become 2n."""
    y = tape.op("mul", tape.input(ROWS, COLS), other=2)
    tape.change("add", y)
    tape.change("relu", y)
    group = only(tape.plan(y))
    assert (group.ops, traffic(group)) == ((0, 1, 2), (6 * N, 2 * N))


def test_an_input_changed_in_place_is_read_and_written(tape):
    """x += 1; y = 2x: x is an input, so the caller sees it changed."""
    x = tape.input(ROWS, COLS)
    tape.change("add", x)
    y = tape.op("mul", x, other=2)
    assert traffic(only(tape.plan(y))) == (4 * N, 3 * N)


def test_overwriting_what_is_read_in_another_order_is_aliasing(tape):
    """y = relu(x transposed); x += 1 must not run in one loop."""
    x = tape.input(512, 512)
    turned = tape.view(x, (512, 512), stride=(1, 512))
    y = tape.op("relu", turned, out=tape.fresh(512, 512))
    tape.change("add", x, y)
    plan = tape.plan(y, x)
    assert plan.groups == ()
    assert reasons(plan)[1, 2] == "aliasing"


def test_a_write_to_a_part_is_aliasing(tape):
    """A kernel that fills half a buffer is not the whole of what is read."""
    x, buffer = tape.input(ROWS, COLS), tape.input(2 * ROWS, COLS)
    half = tape.view(buffer, (ROWS, COLS))
    tape.change("copy", half, x)
    plan = tape.plan(tape.op("neg", buffer))
    assert plan.groups == ()
    assert reasons(plan)[1, 2] == "aliasing"


def test_a_reader_between_two_writes_keeps_them_apart(tape):
    """h is read by a product before it is changed: the change cannot move before it."""
    x, w = tape.input(ROWS, COLS), tape.input(COLS, COLS)
    h = tape.op("relu", x)
    first = tape.mm(h, w)
    tape.change("add", h)
    plan = tape.plan(h, first)
    assert plan.groups == ()
    assert reasons(plan)[0, 2] == "another kernel in between"


def test_dropout_shares_the_kernel_and_its_mask_is_written(tape):
    """gelu, dropout (result and a mask of one byte an element), add."""
    x = tape.input(ROWS, COLS)
    h = tape.op("gelu", x)
    mask = tape.fresh(ROWS, COLS, dtype="bool")
    d = tape.op("dropout", h, p=0.1)
    tape.ops[-1] = type(tape.ops[-1])(
        1, "aten.native_dropout.default", "dropout", tape.ops[-1].inputs, (d, mask), {"p": 0.1}
    )
    y = tape.op("add", d, x)
    group = only(tape.plan(y, mask))
    assert traffic(group) == (7 * N + N // 2, 2 * N + N // 2)


def test_random_numbers_keep_their_order(tape):
    """An op that draws from the generator runs alone."""
    x = tape.input(ROWS, COLS)
    noise = tape.op("random", out=tape.fresh(ROWS, COLS))
    plan = tape.plan(tape.op("add", x, noise))
    assert plan.groups == ()
    assert reasons(plan)[0, 1] == "random state"


def test_a_residual_around_a_product_is_an_epilogue(tape):
    """y = x + relu(x) @ w: the product's tile adds x; relu stays, its result is the operand.

    Product 2n + w, add 3n; together n (relu) + w + n (x) + n (y).
    """
    x, w = tape.input(ROWS, COLS), tape.input(COLS, COLS)
    y = tape.op("add", x, tape.mm(tape.op("relu", x), w))
    plan = tape.plan(y)
    weight = COLS * COLS * 2
    group = only(plan)
    assert (group.ops, group.kind, group.compiler) == ((1, 2), "matmul epilogue", False)
    assert traffic(group) == (5 * N + weight, 3 * N + weight)


def test_a_data_dependent_shape_ends_a_group(tape):
    """What masked_select gives has no size before it runs."""
    x, mask = tape.input(ROWS, COLS), tape.input(ROWS, COLS, dtype="bool")
    h = tape.op("relu", x)
    y = tape.op("masked_select", h, mask, out=tape.fresh(ROWS * COLS), roles=("self", "mask"))
    plan = tape.plan(y)
    assert plan.groups == ()
    assert reasons(plan)[0, 1] == "data-dependent shape"


def test_a_product_keeps_its_readers_apart_from_its_operands(tape):
    """relu, product, relu, where the first is used twice: no group crosses the product."""
    x, w = tape.input(ROWS, COLS), tape.input(COLS, 2 * COLS)
    h = tape.op("relu", x)
    wide = tape.mm(h, w)
    part = tape.view(wide, (ROWS, COLS), stride=(2 * COLS, 1))
    y = tape.op("add", h, part)
    plan = tape.plan(y, h)
    assert plan.groups == ()
    assert reasons(plan)[0, 3] == "another kernel in between"


def test_passes_do_not_mix(tape):
    """A forward op and the backward op that uses its result are two kernels."""
    h = tape.op("relu", tape.input(ROWS, COLS))
    tape.phase = "backward"
    plan = tape.plan(tape.op("neg", h))
    assert plan.groups == ()
    assert reasons(plan)[0, 1] == "kept for another pass"


def test_backward_ops_fuse_too(tape):
    """Loss gradient, log-softmax gradient and a cast: each intermediate stays in the kernel."""
    tape.phase = "backward"
    dy, out = tape.input(ROWS, COLS, dtype="float32"), tape.input(ROWS, COLS, dtype="float32")
    h = tape.op("mul", dy, other=2)
    g = tape.op("log_softmax_backward", h, out, roles=("grad_output", "output"), dim=1)
    y = tape.op("copy", g, out=tape.fresh(ROWS, COLS))
    group = only(tape.plan(y))
    wide = 2 * N
    assert (group.kind, traffic(group)) == ("row", (6 * wide + N, 2 * wide + N))


def test_an_embedding_counts_the_rows_it_takes(tape):
    """A table of 50,257 rows, 8 tokens: the fused kernel reads 8 rows, not the table."""
    table, tokens = tape.input(50_257, 768), tape.input(8, dtype="int64")
    h = tape.op("embedding", table, tokens, out=tape.fresh(8, 768), roles=("weight", "indices"))
    group = only(tape.plan(tape.op("mul", h, other=2)))
    assert traffic(group) == (4 * 8 * 768 * 2 + 64, 2 * 8 * 768 * 2 + 64)


def test_twelve_ops_of_a_block(tape):
    """Norm, product, gate, product, residual: three kernels of the twelve ops' nine that run.

    The norm is a row kernel, the gate an epilogue of its product, the residual that of its own.
    """
    x, w_up, w_down = tape.input(ROWS, COLS), tape.input(COLS, COLS), tape.input(COLS, COLS)
    rstd = tape.op("rsqrt", tape.mean(tape.op("pow", x, exponent=2)))
    h = tape.op("mul", x, rstd)
    flat = tape.view(h, (ROWS, COLS))
    up = tape.mm(flat, w_up)
    gate = tape.op("mul", tape.op("silu", up), up)
    seen = tape.view(gate, (ROWS, COLS))
    down = tape.mm(seen, w_down)
    y = tape.op("add", x, tape.view(down, (ROWS, COLS)))
    plan = tape.plan(y)
    weight = COLS * COLS * 2
    found = {group.ops: (group.kind, group.bytes_after) for group in plan.groups}
    assert found == {
        (0, 1, 2, 3): ("row", 2 * N),
        (5, 6, 7): ("matmul epilogue", 2 * N + weight),
        (9, 11): ("matmul epilogue", 3 * N + weight),
    }
