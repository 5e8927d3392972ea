"""Pointwise, reducing, normalising and losing ops: FLOP and bytes against counts made by hand."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, op, tensor

from rooftile.cost.formulas import normalization
from rooftile.cost.graph import price
from rooftile.errors import InputError


@pytest.mark.parametrize(
    ("name", "attrs", "per_element"),
    [
        ("add", {}, 1),
        ("add", {"alpha": 2}, 2),
        ("mul", {}, 1),
        ("exp", {}, 1),
        ("where", {}, 1),
        ("gt", {}, 1),
        ("sigmoid", {}, 4),
        ("silu", {}, 5),
        ("silu_backward", {}, 9),
        ("gelu", {}, 5),
        ("gelu", {"approximate": "tanh"}, 9),
        ("gelu_backward", {}, 11),
        ("gelu_backward", {"approximate": "tanh"}, 18),
        ("addcmul", {"value": 1}, 2),
        ("addcmul", {"value": 0.5}, 3),
        ("clamp", {"min": 0.0}, 1),
        ("clamp", {"min": 0.0, "max": 1.0}, 2),
        ("tanh_backward", {}, 3),
    ],
)
def test_flop_an_element(name: str, attrs: dict[str, object], per_element: int):
    """Each op by the documented convention, on 6 elements."""
    cost = cost_of(name, {"self": tensor(2, 3)}, tensor(2, 3), **attrs)
    assert (cost.matrix_flops, cost.vector_flops, cost.math) == (0, 6 * per_element, "")


def test_relu_of_x_plus_twice_x():
    """relu(x) + x * 2 over 1024 elements is 3,072 FLOP."""
    x = tensor(1024)
    names = ("relu", "mul", "add")
    assert sum(cost_of(n, {"self": x}, tensor(1024)).flops for n in names) == 3_072


def test_complex_numbers_are_made_of_real_ones():
    """A complex product is 6 real FLOP, a sum 2; as rotary embeddings compute."""
    inputs = {"self": tensor(10, dtype="complex64"), "other": tensor(10, dtype="complex64")}
    out = tensor(10, dtype="complex64")
    assert cost_of("mul", inputs, out).vector_flops == 60
    assert cost_of("add", inputs, out).vector_flops == 20


def test_doubles_have_a_roof_of_their_own():
    """A tensor of doubles computes in doubles; a lone double number beside floats does not."""
    double = cost_of("mul", {"self": tensor(4, dtype="float64")}, tensor(4, dtype="float64"))
    assert double.vector_math == "fp64"
    inputs = {"self": tensor(4), "other": tensor(dtype="float64")}
    assert cost_of("mul", inputs, tensor(4)).vector_math == "fp32"


def test_an_op_over_a_list_is_one_launch():
    """_foreach_add_ over parameters of 3 and 5: 8 FLOP, each read and written."""
    inputs = {"self.0": tensor(3), "self.1": tensor(5)}
    cost = cost_of("foreach_add", inputs, changed=("self.0", "self.1"))
    assert (cost.vector_flops, cost.bytes, cost.kernels) == (8, 64, 1)
    fresh = cost_of("foreach_mul", inputs, (tensor(3), tensor(5)))
    assert (fresh.vector_flops, fresh.bytes) == (8, 64)


def test_dropout_counts_its_first_result():
    """native_dropout: compare, select, scale; the mask is written beside the result."""
    outputs = (tensor(8), tensor(8, dtype="bool"))
    cost = cost_of("dropout", {"input": tensor(8)}, outputs)
    assert (cost.vector_flops, cost.write_bytes) == (24, 40)


def test_glu_backward_counts_on_its_gradient():
    """9 FLOP an element of the gradient, which is half as wide as the result."""
    inputs = {"grad_output": tensor(2, 4), "self": tensor(2, 8)}
    assert cost_of("glu_backward", inputs, tensor(2, 8)).vector_flops == 72


@pytest.mark.parametrize(
    ("name", "attrs", "flops"),
    [
        ("sum", {}, 24),
        ("mean", {}, 24 + 4),
        ("amax", {}, 24),
        ("argmax", {}, 24),
        ("var", {}, 4 * 24 + 2 * 4),
        ("logsumexp", {}, 4 * 24 + 2 * 4),
        ("norm", {"ord": 2}, 2 * 24 + 4),
        ("norm", {"ord": 1}, 2 * 24),
        ("norm", {"p": 3}, 3 * 24 + 4),
        ("norm", {"ord": float("inf")}, 2 * 24),
    ],
)
def test_reductions(name: str, attrs: dict[str, object], flops: int):
    """4 rows of 6 to 4 results."""
    cost = cost_of(name, {"self": tensor(4, 6)}, tensor(4), **attrs)
    assert (cost.vector_flops, cost.bytes) == (flops, 96 + 16)


def test_a_running_sum_writes_what_it_reads():
    """cumsum: one addition an element."""
    cost = cost_of("cumsum", {"self": tensor(4, 6)}, tensor(4, 6))
    assert (cost.vector_flops, cost.bytes) == (24, 192)


def test_the_larger_of_two_tensors_is_no_reduction():
    """torch.max(a, b): one comparison an element of the result."""
    cost = cost_of("max", {"self": tensor(3, 1), "other": tensor(1, 4)}, tensor(3, 4))
    assert cost.vector_flops == 12


def test_a_trace_reads_the_diagonal():
    """100 elements of 100 x 200."""
    cost = cost_of("trace", {"self": tensor(100, 200)}, tensor())
    assert (cost.vector_flops, cost.read_bytes) == (100, 400)


def test_norms_of_a_list():
    """_foreach_norm: square and sum an element, a root a tensor."""
    cost = cost_of("foreach_norm", {"self.0": tensor(3), "self.1": tensor(5)}, (tensor(), tensor()))
    assert cost.vector_flops == 2 * 8 + 2


def test_an_unknown_norm_is_an_error():
    """A norm's order is a number."""
    with pytest.raises(InputError, match="order must be a number"):
        price(op("norm", {"self": tensor(4)}, tensor(), ord="nuc"))


def test_rms_norm_of_dimensions():
    """2 x 3 in float16: 6 elements at 4 FLOP; x and weight in, y and 1/rms out."""
    cost = normalization.rms_norm_forward(2, 3, 2)
    assert (cost.flops, cost.read_bytes, cost.write_bytes) == (24, 18, 20)


def test_rms_norm_of_an_op():
    """The op of the same shapes costs the same."""
    half = {"dtype": "float16"}
    inputs = {"input": tensor(2, 3, **half), "weight": tensor(3, **half)}
    cost = cost_of("rms_norm", inputs, (tensor(2, 3, **half), tensor(2, 1)))
    want = normalization.rms_norm_forward(2, 3, 2)
    assert (cost.flops, cost.read_bytes, cost.write_bytes) == (
        want.flops,
        want.read_bytes,
        want.write_bytes,
    )


def test_rms_norm_backward():
    """Both gradients 9 FLOP an element; without dweight 7, without a weight 6."""
    inputs = {
        "grad_out": tensor(4, 8),
        "input": tensor(4, 8),
        "rstd": tensor(4, 1),
        "weight": tensor(8),
    }
    outputs = (tensor(4, 8), tensor(8))
    cost = cost_of("rms_norm_backward", inputs, outputs, output_mask=(True, True))
    want = normalization.rms_norm_backward(4, 8, 4)
    assert cost.vector_flops == want.vector_flops == 9 * 32
    assert cost.bytes == want.bytes == (3 * 32 + 2 * 8 + 4) * 4
    only = cost_of("rms_norm_backward", inputs, outputs[:1], output_mask=(True, False))
    assert only.vector_flops == 7 * 32
    del inputs["weight"]
    plain = cost_of("rms_norm_backward", inputs, outputs[:1], output_mask=(True, False))
    assert plain.vector_flops == 6 * 32


def test_layer_norm():
    """7 FLOP an element with weight and bias, 5 without; the backward 13."""
    inputs = {"input": tensor(4, 8), "weight": tensor(8), "bias": tensor(8)}
    outputs = (tensor(4, 8), tensor(4, 1), tensor(4, 1))
    cost = cost_of("layer_norm", inputs, outputs)
    want = normalization.layer_norm_forward(4, 8, 4)
    assert cost.vector_flops == want.vector_flops == 7 * 32
    assert cost.bytes == want.bytes
    assert cost_of("layer_norm", {"input": tensor(4, 8)}, outputs).vector_flops == 5 * 32
    saved = {"grad_out": tensor(4, 8), **inputs, "mean": tensor(4, 1), "rstd": tensor(4, 1)}
    grads = (tensor(4, 8), tensor(8), tensor(8))
    back = cost_of("layer_norm_backward", saved, grads, output_mask=(True, True, True))
    want = normalization.layer_norm_backward(4, 8, 4)
    # the bias is an argument that nothing is computed from
    assert (back.vector_flops, back.bytes) == (want.vector_flops, want.bytes)
    assert want.vector_flops == 13 * 32


@pytest.mark.parametrize(
    ("mask", "flops", "read"),
    [
        ((True, True, True), 13, 32 + 32 + 4 + 4 + 8),
        ((True, False, False), 10, 32 + 32 + 4 + 4 + 8),
        ((False, True, True), 5, 32 + 32 + 4 + 4),  # no weight in dweight
        ((False, False, True), 1, 32),  # the gradient alone
    ],
)
def test_a_norm_reads_what_its_wanted_gradients_need(mask, flops, read):
    """4 rows of 8: elements read by which of dx, dweight and dbias are wanted."""
    inputs = {
        "grad_out": tensor(4, 8),
        "input": tensor(4, 8),
        "mean": tensor(4, 1),
        "rstd": tensor(4, 1),
        "weight": tensor(8),
        "bias": tensor(8),
    }
    for name in ("layer_norm_backward", "group_norm_backward"):
        cost = cost_of(name, inputs, tensor(1), output_mask=mask)
        assert (cost.vector_flops, cost.read_bytes) == (flops * 32, read * 4)


@pytest.mark.parametrize(
    ("train", "mask", "flops", "read"),
    [
        (True, (True, True, True), 13, 24 + 24 + 3 + 3 + 3),
        (True, (False, False, True), 1, 24),
        (False, (True, True, True), 2 + 4 + 1, 24 + 24 + 3 + 3 + 3),
        (False, (True, False, False), 2, 24 + 3 + 3),  # dy * weight / std
        (False, (False, False, True), 1, 24),
    ],
)
def test_a_batch_norm_reads_the_statistics_of_its_mode(train, mask, flops, read):
    """In training the batch's own, in evaluation the running ones."""
    inputs = {
        "grad_out": tensor(2, 3, 4),
        "input": tensor(2, 3, 4),
        **{r: tensor(3) for r in ("weight", "running_mean", "running_var")},
        **{r: tensor(3) for r in ("save_mean", "save_invstd")},
    }
    cost = cost_of("batch_norm_backward", inputs, tensor(1), train=train, output_mask=mask)
    assert (cost.vector_flops, cost.read_bytes) == (flops * 24, read * 4)


def test_batch_norm_in_training_writes_its_running_statistics():
    """The older schema does not say that it does."""
    inputs = {
        "input": tensor(2, 3, 4),
        "weight": tensor(3),
        "bias": tensor(3),
        "running_mean": tensor(3),
        "running_var": tensor(3),
    }
    training = cost_of("batch_norm", inputs, tensor(2, 3, 4), training=True)
    assert (training.vector_flops, training.write_bytes) == (7 * 24, (24 + 6) * 4)
    evaluation = cost_of("batch_norm", inputs, tensor(2, 3, 4), training=False)
    assert (evaluation.vector_flops, evaluation.write_bytes) == (4 * 24, 96)
