"""Complex arithmetic in real FLOP: a sum is 2, a product 6, a multiply-add 8."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, tensor

from rooftile.records.tensor import Tensor


def z(*shape: int) -> Tensor:
    """Complex numbers of two floats."""
    return tensor(*shape, dtype="complex64")


@pytest.mark.parametrize(
    ("name", "attrs", "per_element"),
    [
        ("add", {}, 2),
        ("sub", {}, 2),
        ("rsub", {}, 2),
        ("add", {"alpha": 3}, 8),
        ("neg", {}, 2),
        ("mul", {}, 6),
        ("square", {}, 6),
        ("div", {}, 11),
        ("reciprocal", {}, 6),
        ("exp", {}, 5),  # exp, sin, cos, two products
        ("log", {}, 6),  # modulus 4, log, angle
        ("sigmoid", {}, 2 + 5 + 1 + 6),
        ("tanh_backward", {}, 6 + 2 + 1 + 6),  # square, from one, conjugate, times dy
        ("conj_physical", {}, 1),
        ("sgn", {}, 4 + 2),
        ("where", {}, 1),
        ("eq", {}, 3),
        ("lerp", {}, 2 + 6 + 2),
        ("addcmul", {}, 6 + 2),
        ("addcmul", {"value": 2}, 6 + 6 + 2),
        ("addcdiv", {}, 11 + 2),
        ("sqrt", {}, 11),
        ("sinh", {}, 6),
    ],
)
def test_pointwise(name: str, attrs: dict[str, object], per_element: int):
    """Six elements of each op; 8 bytes each, in and out."""
    cost = cost_of(name, {"self": z(2, 3), "other": z(2, 3)}, z(2, 3), **attrs)
    assert (cost.vector_flops, cost.bytes) == (6 * per_element, 3 * 48)


def test_a_modulus_is_real():
    """Two squares, their sum and its root; 8 bytes in, 4 out."""
    cost = cost_of("abs", {"self": z(10)}, tensor(10))
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (40, 80, 40)


def test_parts_put_side_by_side_are_no_work():
    """complex(re, im) copies; polar(r, phi) takes a sine, a cosine and two products."""
    parts = {"self": tensor(10), "other": tensor(10)}
    assert cost_of("complex", parts, z(10)).flops == 0
    assert cost_of("polar", parts, z(10)).flops == 40


@pytest.mark.parametrize(
    ("name", "attrs", "flops"),
    [
        ("sum", {}, 2 * 24),
        ("cumsum", {}, 2 * 24),
        ("mean", {}, 2 * 24 + 2 * 4),
        ("prod", {}, 6 * 24),
        ("var", {}, 8 * 24 + 3 * 4),
        ("norm", {"ord": 2}, 4 * 24 + 4),
        ("norm", {"ord": 1}, 5 * 24),  # modulus, sum
        ("norm", {"ord": 3}, 6 * 24 + 4),
    ],
)
def test_reductions(name: str, attrs: dict[str, object], flops: int):
    """4 rows of 6 to 4 results."""
    assert cost_of(name, {"self": z(4, 6)}, z(4), **attrs).vector_flops == flops


def test_a_variance_with_its_mean_is_no_more_work():
    """The mean is computed on the way."""
    for pair in (("var", "var_mean"), ("std", "std_mean")):
        one, both = (cost_of(n, {"self": tensor(4, 6)}, tensor(4)).vector_flops for n in pair)
        assert one == both


def test_products_are_eight_a_multiply_add_and_a_bias_two():
    """mm, addmm, linear, a dot product: matrix work; bias and factors beside it."""
    a, b = z(3, 4), z(4, 5)
    mm = cost_of("mm", {"self": a, "mat2": b}, z(3, 5))
    assert (mm.matrix_flops, mm.math) == (8 * 60, "fp32")
    inputs = {"self": z(5), "mat1": a, "mat2": b}
    addmm = cost_of("addmm", inputs, z(3, 5))
    assert (addmm.matrix_flops, addmm.vector_flops) == (8 * 60, 2 * 15)
    scaled = cost_of("addmm", inputs, z(3, 5), alpha=2, beta=3)
    assert scaled.vector_flops == (2 + 6 + 6) * 15
    linear = cost_of("linear", {"input": a, "weight": z(5, 4), "bias": z(5)}, z(3, 5))
    assert (linear.matrix_flops, linear.vector_flops) == (8 * 60, 2 * 15)
    assert cost_of("dot", {"self": z(7), "other": z(7)}, z()).matrix_flops == 56
    assert cost_of("outer", {"self": z(3), "vec2": z(5)}, z(3, 5)).vector_flops == 6 * 15
    addr = cost_of("addr", {"self": z(3, 5), "vec1": z(3), "vec2": z(5)}, z(3, 5))
    assert addr.vector_flops == (6 + 2) * 15


def test_a_linear_layer_s_gradients():
    """Two products of 8 a multiply-add, and the bias's sum."""
    inputs = {"self": z(3, 4), "grad_output": z(3, 5), "weight": z(5, 4)}
    cost = cost_of("linear_backward", inputs, (z(3, 4), z(5, 4), z(5)))
    assert (cost.matrix_flops, cost.vector_flops) == (2 * 8 * 60, 2 * 15)


def test_convolutions():
    """Nine taps of one channel on four places; a bias, and its gradient."""
    inputs = {"input": z(1, 1, 4, 4), "weight": z(1, 1, 3, 3), "bias": z(1)}
    cost = cost_of("convolution", inputs, z(1, 1, 2, 2))
    assert (cost.matrix_flops, cost.vector_flops) == (8 * 36, 2 * 4)
    saved = {"grad_output": z(1, 1, 2, 2), "input": z(1, 1, 4, 4), "weight": z(1, 1, 3, 3)}
    back = cost_of("convolution_backward", saved, (), output_mask=(True, True, True))
    assert (back.matrix_flops, back.vector_flops) == (2 * 8 * 36, 2 * 4)


def test_sums_by_index():
    """Two FLOP an element added: scatter, index, embedding, padding, windows."""
    index = tensor(3, dtype="int64")
    added = {"self": z(9, 8), "index": index, "source": z(3, 8)}
    assert cost_of("index_add", added, changed=("self",), dim=0).vector_flops == 2 * 24
    assert cost_of("index_add", added, changed=("self",), dim=0, alpha=2).vector_flops == 8 * 24
    grads = {"grad_output": z(3, 8), "indices": index}
    assert cost_of("embedding_backward", grads, z(9, 8)).vector_flops == 2 * 24
    taken = {"grad": z(3), "self": z(9), "index": index}
    assert cost_of("gather_backward", taken, z(9), dim=0).vector_flops == 2 * 3
    assert cost_of("pad_backward", {"grad_output": z(5)}, z(3)).vector_flops == 2 * 5
    assert cost_of("unfold_backward", {"grad_in": z(3, 4)}, z(6)).vector_flops == 2 * 12
    assert cost_of("trace", {"self": z(4, 4)}, z()).vector_flops == 2 * 4
