"""A graph priced on a device: rows, bounds, shares and sums."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from estimates import GPU
from ops_by_hand import op, strided, tensor

from rooftile.cost.graph import estimate, price
from rooftile.errors import InputError
from rooftile.records.graph import Graph, Op


def graph(*ops: Op) -> Graph:
    """Ops in the order given."""
    return Graph("hand.py:make", "infer", tuple(replace(o, index=i) for i, o in enumerate(ops)))


def product(m: int = 2048, n: int = 4096, k: int = 4096) -> Op:
    """A bfloat16 matrix product."""
    half = {"dtype": "bfloat16"}
    inputs = {"self": tensor(m, k, **half), "mat2": tensor(k, n, **half)}
    return op("mm", inputs, tensor(m, n, **half))


def test_rows_stand_in_the_graph_s_order():
    """One row an op, with its index, names, module and line."""
    it = replace(product(), module="model.q", line="m.py:3", phase="backward")
    row = estimate(graph(op("view", {"self": tensor(4)}, tensor(4)), it), GPU).ops[1]
    assert (row.index, row.name, row.aten) == (1, "mm", "aten.mm.default")
    assert (row.module, row.line, row.phase) == ("model.q", "m.py:3", "backward")


def test_a_compute_bound_product():
    """2048 x 4096 x 4096 in bfloat16 on an H100: 69.5 us under the matrix roof."""
    row = estimate(graph(product()), GPU).ops[0]
    assert row.bound == "compute"
    assert row.least_s == row.times.matrix_s == pytest.approx(2 * 2048 * 4096 * 4096 / 989.4e12)
    assert row.share == 1.0


def test_a_memory_bound_copy():
    """400 MB there and back: bytes over the bandwidth."""
    row = estimate(graph(op("copy", {"self": tensor(10**8)}, tensor(10**8))), GPU).ops[0]
    assert row.bound == "memory"
    assert row.least_s == pytest.approx(8e8 / 3.35e12)


def test_an_unpriced_op_has_its_bytes_and_their_time():
    """An op without a formula is listed with its regions' bytes, never with 0."""
    big = tensor(10**8)
    result = estimate(graph(op("frobnicate", {"self": big, "other": big}, tensor(10**8))), GPU)
    row = result.ops[0]
    assert (row.bound, row.cost.formula, row.cost.flops) == ("unpriced", "", 0)
    assert (row.cost.read_bytes, row.cost.write_bytes) == (4 * 10**8, 4 * 10**8)
    assert row.least_s == pytest.approx(8e8 / 3.35e12)
    assert (result.totals.unpriced_ops, result.totals.unpriced_bytes) == (1, 8 * 10**8)


def test_a_view_is_free():
    """No kernel: no time, and not among the ops that run."""
    x = tensor(1024, 1024)
    result = estimate(graph(op("view", {"self": x}, strided(x, (1024, 64), (1024, 1)))), GPU)
    assert (result.ops[0].bound, result.ops[0].least_s, result.ops[0].share) == ("free", 0.0, 0.0)
    assert result.totals.ops == 0
    assert result.totals.bound_s == {}


def test_a_small_op_is_bound_by_its_launch():
    """Four bytes take a launch."""
    row = estimate(graph(op("relu", {"self": tensor()}, tensor())), GPU).ops[0]
    assert (row.bound, row.least_s) == ("launch", 2e-6)


def test_sums_are_absolute():
    """Totals add the rows up, time by bound included; shares add up to one."""
    causal = {role: tensor(1, 8, 1024, 64, dtype="bfloat16") for role in ("query", "key", "value")}
    attention = op("attention", causal, causal["query"], is_causal=True)
    unknown = op("frobnicate", {"self": tensor(10**6)}, tensor(10**6))
    result = estimate(graph(product(), attention, unknown, product()), GPU)
    rows, totals = result.ops, result.totals
    assert (totals.ops, totals.unpriced_ops) == (4, 1)
    assert totals.matrix_flops == sum(r.cost.matrix_flops for r in rows)
    assert totals.dense_matrix_flops > totals.matrix_flops
    assert totals.vector_flops == rows[1].cost.vector_flops
    assert totals.bytes == sum(r.cost.bytes for r in rows)
    assert totals.least_s == pytest.approx(sum(r.least_s for r in rows))
    assert sum(totals.bound_s.values()) == pytest.approx(totals.least_s)
    assert totals.bound_s["compute"] >= 2 * rows[0].least_s
    assert sum(r.share for r in rows) == pytest.approx(1.0)


def test_an_empty_graph_costs_nothing():
    """No op, no division by no time."""
    totals = estimate(graph(), GPU).totals
    assert (totals.ops, totals.least_s, totals.bound_s) == (0, 0.0, {})


def test_ops_that_share_storages_differently_are_priced_apart():
    """x + x and x + y have the same shapes and not the same bytes."""
    x, y = tensor(1024), tensor(1024)
    same = op("add", {"self": x, "other": x}, tensor(1024))
    two = op("add", {"self": x, "other": y}, tensor(1024))
    rows = estimate(graph(same, two, same), GPU).ops
    assert [r.cost.read_bytes for r in rows] == [4096, 8192, 4096]


def test_regions_that_overlap_differently_are_priced_apart():
    """Two halves of a storage and twice the same half: offsets tell them apart."""
    x = tensor(1024)
    left, right = strided(x, (512,), (1,)), strided(x, (512,), (1,), 512)
    apart = op("add", {"self": left, "other": right}, tensor(512))
    equal = op("add", {"self": left, "other": left}, tensor(512))
    rows = estimate(graph(apart, equal), GPU).ops
    assert [r.cost.read_bytes for r in rows] == [4096, 2048]


def test_attributes_and_dtypes_tell_ops_apart():
    """The same shapes with a mask, without one, and in another dtype."""
    ops = []
    for dtype, causal in (("bfloat16", False), ("bfloat16", True), ("float16", True)):
        inputs = {role: tensor(1, 2, 64, 32, dtype=dtype) for role in ("query", "key", "value")}
        out = tensor(1, 2, 64, 32, dtype=dtype)
        ops.append(op("attention", inputs, out, is_causal=causal))
    peaks = {**GPU.peaks, "fp16": GPU.peaks["bf16"]}
    rows = estimate(graph(*ops), replace(GPU, peaks=peaks)).ops
    assert rows[0].cost.matrix_flops > rows[1].cost.matrix_flops
    assert (rows[1].cost.math, rows[2].cost.math) == ("bf16", "fp16")


def test_shapes_are_written_for_people():
    """One dtype at the end; several behind their shapes; a long list is cut."""
    row = estimate(graph(product(4, 5, 6)), GPU).ops[0]
    assert row.shapes == "4x6, 6x5 -> 4x5 bfloat16"
    cast = op("copy", {"self": tensor(3)}, tensor(3, dtype="bfloat16"))
    assert estimate(graph(cast), GPU).ops[0].shapes == "3 float32 -> 3 bfloat16"
    many = {f"self.{i}": tensor(2) for i in range(1_004)}
    listed = op("foreach_add", many, changed=tuple(many))
    assert estimate(graph(listed), GPU).ops[0].shapes == "2, 2, 2, 2, and 1,000 more float32"


def test_a_gpu_without_the_dtype_is_an_error():
    """bfloat16 products have no roof where there is none."""
    peaks = {key: value for key, value in GPU.peaks.items() if key != "bf16"}
    with pytest.raises(InputError, match="bf16"):
        estimate(graph(product()), replace(GPU, peaks=peaks))


def test_an_op_that_its_formula_cannot_read_is_an_error():
    """A wrong operand raises: it is never priced at 0."""
    with pytest.raises(InputError, match=r"aten\.mm\.default"):
        price(op("mm", {"self": tensor(2, 2)}, tensor(2, 2)))


def test_eight_thousand_ops_take_less_than_half_a_second():
    """A step of an 8-billion-parameter model, each op with storages of its own."""
    layer = [
        lambda: product(),
        lambda: op("add", {"self": tensor(2048, 4096), "other": tensor(4096)}, tensor(2048, 4096)),
        lambda: op("softmax", {"self": tensor(2048, 4096)}, tensor(2048, 4096), dim=-1),
        lambda: op("view", {"self": tensor(2048, 4096)}, tensor(2048, 4096)),
    ]
    step = graph(*(make() for _ in range(2_000) for make in layer))
    began = time.process_time()
    result = estimate(step, GPU)
    assert time.process_time() - began < 0.5
    assert result.totals.ops == 6_000


def test_two_thousand_different_ops_take_less_than_half_a_second():
    """No two alike: every one is priced by its formula."""
    step = graph(*(product(128, 64 + i % 100, 1 + i) for i in range(2_000)))
    began = time.process_time()
    estimate(step, GPU)
    assert time.process_time() - began < 0.5
