"""Tensors without elements: no kernel for empty results, no read for results of zeros."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, op, tensor

from rooftile.cost.formulas import FORMULAS
from rooftile.cost.graph import estimate, price
from rooftile.errors import InputError
from rooftile.records.graph import Graph
from rooftile.records.tensor import Tensor
from rooftile.spec.devices import device

INT = {"dtype": "int64"}


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("mm", {"self": tensor(0, 64), "mat2": tensor(64, 32)}, (tensor(0, 32),)),
        ("mm", {"self": tensor(16, 64), "mat2": tensor(64, 0)}, (tensor(16, 0),)),
        ("linear", {"input": tensor(0, 8), "weight": tensor(4, 8)}, (tensor(0, 4),)),
        ("addmm", {"self": tensor(4), "mat1": tensor(0, 8), "mat2": tensor(8, 4)}, (tensor(0, 4),)),
        ("add", {"self": tensor(0, 8), "other": tensor(8)}, (tensor(0, 8),)),
        ("embedding", {"weight": tensor(9, 8), "indices": tensor(0, **INT)}, (tensor(0, 8),)),
        ("layer_norm", {"input": tensor(0, 8), "weight": tensor(8)}, (tensor(0, 8), tensor(0, 1))),
        ("convolution", {"input": tensor(0, 3, 8, 8), "weight": tensor(4, 3, 3, 3)},
         (tensor(0, 4, 6, 6),)),
        ("index", {"self": tensor(9, 8), "indices.0": tensor(0, **INT)}, (tensor(0, 8),)),
        ("grouped_mm", {"self": tensor(0, 8), "mat2": tensor(3, 8, 4), "offs": tensor(3)},
         (tensor(0, 4),)),
        ("attention", {"query": tensor(1, 2, 0, 8), "key": tensor(1, 2, 5, 8),
                       "value": tensor(1, 2, 5, 8)}, (tensor(1, 2, 0, 8),)),
    ],
)  # fmt: skip
def test_an_empty_result_takes_no_kernel(
    name: str, inputs: dict[str, Tensor], outputs: tuple[Tensor, ...]
):
    """Whatever the other operands hold, nothing is read, computed or launched."""
    cost = cost_of(name, inputs, outputs)
    assert (cost.kernels, cost.flops, cost.bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "attrs", "write"),
    [
        ("mm", {"self": tensor(16, 0), "mat2": tensor(0, 32)}, (tensor(16, 32),), {}, 2048),
        ("attention", {"query": tensor(1, 2, 4, 8), "key": tensor(1, 2, 0, 8),
                       "value": tensor(1, 2, 0, 8)}, (tensor(1, 2, 4, 8),), {}, 256),
        ("attention_backward", {"grad_out": tensor(1, 2, 4, 8), "query": tensor(1, 2, 4, 8),
                                "key": tensor(1, 2, 0, 8), "value": tensor(1, 2, 0, 8)},
         (tensor(1, 2, 4, 8), tensor(1, 2, 0, 8)), {}, 256),
        ("convolution_backward", {"grad_output": tensor(0, 4, 6, 6), "input": tensor(0, 3, 8, 8),
                                  "weight": tensor(4, 3, 3, 3)},
         (tensor(0, 3, 8, 8), tensor(4, 3, 3, 3)), {}, 432),
        ("linear_backward", {"self": tensor(0, 8), "grad_output": tensor(0, 4),
                             "weight": tensor(4, 8)}, (tensor(0, 8), tensor(4, 8)), {}, 128),
        ("layer_norm_backward", {"grad_out": tensor(0, 8), "input": tensor(0, 8),
                                 "mean": tensor(0, 1), "rstd": tensor(0, 1), "weight": tensor(8)},
         (tensor(0, 8), tensor(8), tensor(8)), {}, 64),
        ("rms_norm_backward", {"grad_out": tensor(0, 8), "input": tensor(0, 8),
                               "rstd": tensor(0, 1), "weight": tensor(8)},
         (tensor(0, 8), tensor(8)), {}, 32),
        ("rnn_backward", {"input": tensor(5, 0, 8), "params.0": tensor(8, 8),
                          "params.1": tensor(8, 8), "params.2": tensor(8)},
         (tensor(5, 0, 8), tensor(8, 8)), {"mode": "rnn_tanh"}, 256),
        ("embedding_backward", {"grad_output": tensor(0, 8), "indices": tensor(0, **INT)},
         (tensor(9, 8),), {}, 288),
        ("sum", {"self": tensor(0, 8)}, (tensor(8),), {}, 32),
        ("cdist", {"x1": tensor(3, 0), "x2": tensor(4, 0)}, (tensor(3, 4),), {"p": 2.0}, 48),
    ],
)  # fmt: skip
def test_a_sum_over_nothing_is_written_and_nothing_is_read(
    name: str,
    inputs: dict[str, Tensor],
    outputs: tuple[Tensor, ...],
    attrs: dict[str, object],
    write: int,
):
    """Zeros, whatever stands in the operand that has elements."""
    cost = cost_of(name, inputs, outputs, **attrs)
    assert (cost.flops, cost.read_bytes, cost.write_bytes, cost.kernels) == (0, 0, write, 1)


def test_a_product_over_nothing_keeps_its_bias():
    """addmm with K = 0 is its bias, copied to every row."""
    inputs = {"self": tensor(32), "mat1": tensor(16, 0), "mat2": tensor(0, 32)}
    cost = cost_of("addmm", inputs, tensor(16, 32))
    assert (cost.matrix_flops, cost.read_bytes, cost.write_bytes) == (0, 128, 2048)


def test_nothing_written_by_index_leaves_the_table_alone():
    """x[empty] += y in place starts no kernel; out of place the table is copied."""
    inputs = {"self": tensor(9, 8), "index": tensor(0, **INT), "source": tensor(0, 8)}
    assert cost_of("index_add", inputs, changed=("self",), dim=0).kernels == 0
    copied = cost_of("index_add", inputs, tensor(9, 8), dim=0)
    assert (copied.vector_flops, copied.bytes) == (0, 2 * 288)


def test_an_empty_step_takes_no_time():
    """Priced or not, ops on empty tensors are free; an unpriced op that fills something is not."""
    ops = (
        op("add", {"self": tensor(0), "other": tensor(1)}, tensor(0)),
        op("mystery", {"self": tensor(5)}, tensor(0), index=1),
        op("mystery", {"self": tensor(0)}, tensor(5), index=2),
    )
    priced = estimate(Graph("empty", "infer", ops), device("h100-sxm"))
    assert [row.bound for row in priced.ops] == ["free", "free", "unpriced"]
    assert priced.ops[0].least_s == priced.ops[1].least_s == 0
    assert (priced.totals.ops, priced.totals.unpriced_ops, priced.totals.bytes) == (1, 1, 20)


# Every operand that some formula asks for, and the attributes without which some refuse.
ROLES = """
self input weight mat1 mat2 other query key value grad_output grad_out grad index indices target u A
x hx cx params.0 params.1 self.0 indices.0 src source batch1 batch2 mat vec vec1 vec2 input_gates x1
x2 v elements sorted_sequence ffn_weight_1 tensors.0 grad_in values grid theta
""".split()  # noqa: SIM905
ATTRS = {"dim": 0, "k": 0, "kernel_size": (1,), "mode": 0, "num_head": 1, "num_heads": 1, "p": 2.0}


# An optimiser's step fills its parameters, whatever it returns.
STEPS = {name for name in FORMULAS if name.endswith("_step")}


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - STEPS))
def test_no_formula_starts_a_kernel_for_an_empty_result(name: str):
    """Operands with and without elements, an empty result: the answer is free or an InputError."""
    shapes = [(3,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (0, 3), (2, 0)]
    for shape in shapes:
        inputs = {role: tensor(*shape) for role in ROLES}
        empty = tensor(0, *shape[1:])
        try:
            cost = price(op(name, inputs, empty, **ATTRS))
        except InputError:
            continue
        assert cost is not None
        assert (cost.kernels, cost.flops, cost.bytes) == (0, 0, 0) or name == "item"
