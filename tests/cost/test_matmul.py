"""Matrix products: FLOP and bytes against counts made by hand."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, op, strided, tensor

from rooftile.cost.formulas.matmul import matmul_flops, matmul_forward
from rooftile.cost.graph import price
from rooftile.errors import InputError
from rooftile.records.cost import Cost


def test_a_product_is_two_flop_a_multiply_add():
    """An m x k by k x n product is 2 * m * n * k FLOP."""
    assert matmul_flops(2, 3, 5) == 60
    assert matmul_flops(2, 3, 5, batch=7) == 420


def test_a_square_product_moves_each_matrix_once():
    """4096 cubed in float32: 2 * 4096^3 FLOP over 3 * 4096^2 * 4 bytes, intensity 682.7."""
    cost = matmul_forward(4096, 4096, 4096, 4, math="fp32")
    assert cost.flops == 137_438_953_472
    assert cost.bytes == 201_326_592
    assert round(cost.intensity, 1) == 682.7


def test_a_product_may_write_wider_than_it_reads():
    """1024 cubed, float16 in and float32 out: 8,388,608 bytes."""
    assert matmul_forward(1024, 1024, 1024, 2, out_itemsize=4).bytes == 8_388_608


def test_mm():
    """2 x 5 by 5 x 3 in bfloat16: 60 FLOP on the bf16 roof, 50 bytes in, 12 out."""
    a, b = tensor(2, 5, dtype="bfloat16"), tensor(5, 3, dtype="bfloat16")
    cost = cost_of("mm", {"self": a, "mat2": b}, tensor(2, 3, dtype="bfloat16"))
    assert cost == Cost(60, 0, 50, 12, 60, "bf16", formula="matmul.mm")


def test_a_matrix_times_its_own_transpose_reads_it_once():
    """x @ x.t() of 4 x 8: x is read once."""
    x = tensor(4, 8)
    cost = cost_of("mm", {"self": x, "mat2": strided(x, (8, 4), (1, 8))}, tensor(4, 4))
    assert (cost.matrix_flops, cost.read_bytes, cost.write_bytes) == (256, 128, 64)


def test_float32_runs_as_tf32_where_the_op_says_so():
    """The switch belongs to the op, not to the dtype; bfloat16 does not listen to it."""
    inputs = {"self": tensor(2, 2), "mat2": tensor(2, 2)}
    assert cost_of("mm", inputs, tensor(2, 2)).math == "fp32"
    assert cost_of("mm", inputs, tensor(2, 2), tf32=True).math == "tf32"
    half = {r: tensor(2, 2, dtype="bfloat16") for r in ("self", "mat2")}
    assert cost_of("mm", half, tensor(2, 2, dtype="bfloat16"), tf32=True).math == "bf16"


@pytest.mark.parametrize(
    ("dtype", "math"),
    [
        ("float64", "fp64"),
        ("float16", "fp16"),
        ("float8_e4m3fn", "fp8"),
        ("int8", "int8"),
        ("float4_e2m1fn_x2", "fp4"),
    ],
)
def test_every_dtype_has_its_roof(dtype: str, math: str):
    """The roof is that of the operands' dtype, not of the result's."""
    inputs = {"self": tensor(4, 4, dtype=dtype), "mat2": tensor(4, 4, dtype=dtype)}
    assert cost_of("int_mm", inputs, tensor(4, 4, dtype="int32")).math == math


def test_products_of_long_integers_are_vector_work():
    """No matrix unit takes int64: the FLOP are counted, under the other roof."""
    inputs = {"self": tensor(4, 4, dtype="int64"), "mat2": tensor(4, 4, dtype="int64")}
    cost = cost_of("mm", inputs, tensor(4, 4, dtype="int64"))
    assert (cost.matrix_flops, cost.vector_flops, cost.math) == (0, 128, "")


def test_a_complex_product_is_four_real_ones():
    """complex64 16 cubed: 32,768 real FLOP."""
    inputs = {"self": tensor(16, 16, dtype="complex64"), "mat2": tensor(16, 16, dtype="complex64")}
    cost = cost_of("mm", inputs, tensor(16, 16, dtype="complex64"))
    assert (cost.matrix_flops, cost.math) == (32_768, "fp32")


def test_addmm_adds_its_bias_as_vector_work():
    """A bias of n is one addition an element of the m x n result, and is read once."""
    inputs = {"self": tensor(3), "mat1": tensor(2, 5), "mat2": tensor(5, 3)}
    cost = cost_of("addmm", inputs, tensor(2, 3))
    assert (cost.matrix_flops, cost.vector_flops) == (60, 6)
    assert cost.read_bytes == (3 + 10 + 15) * 4


def test_addmm_without_beta_does_not_read_its_argument():
    """beta = 0: no addition, no read."""
    inputs = {"self": tensor(2, 3), "mat1": tensor(2, 5), "mat2": tensor(5, 3)}
    cost = cost_of("addmm", inputs, tensor(2, 3), beta=0)
    assert (cost.vector_flops, cost.read_bytes) == (0, 100)


def test_addmm_with_factors_multiplies_twice():
    """alpha and beta other than 1 are a product an element each."""
    inputs = {"self": tensor(2, 3), "mat1": tensor(2, 5), "mat2": tensor(5, 3)}
    assert cost_of("addmm", inputs, tensor(2, 3), beta=0.5, alpha=2).vector_flops == 18


def test_batched_products():
    """bmm, baddbmm and addbmm of 7 products of 2 x 5 by 5 x 3: 420 FLOP each."""
    a, b = tensor(7, 2, 5), tensor(7, 5, 3)
    assert cost_of("bmm", {"self": a, "mat2": b}, tensor(7, 2, 3)).matrix_flops == 420
    added = cost_of("baddbmm", {"self": tensor(3), "batch1": a, "batch2": b}, tensor(7, 2, 3))
    assert (added.matrix_flops, added.vector_flops) == (420, 42)
    summed = cost_of("addbmm", {"self": tensor(2, 3), "batch1": a, "batch2": b}, tensor(2, 3))
    assert (summed.matrix_flops, summed.vector_flops, summed.write_bytes) == (420, 6, 24)


def test_an_expanded_batch_is_read_once():
    """A weight expanded over the batch is one matrix of traffic."""
    weight = tensor(1, 5, 3)
    inputs = {"self": tensor(7, 2, 5), "mat2": strided(weight, (7, 5, 3), (0, 3, 1))}
    cost = cost_of("bmm", inputs, tensor(7, 2, 3))
    assert (cost.matrix_flops, cost.read_bytes) == (420, 280 + 60)


def test_products_with_a_vector():
    """A(128, 256) @ v is 65,536 FLOP; addmv one addition a row more; dot 2 n; outer one a place."""
    a, v = tensor(128, 256), tensor(256)
    assert cost_of("mv", {"self": a, "vec": v}, tensor(128)).matrix_flops == 65_536
    cost = cost_of("addmv", {"self": tensor(128), "mat": a, "vec": v}, tensor(128))
    assert (cost.matrix_flops, cost.vector_flops) == (65_536, 128)
    assert cost_of("dot", {"self": v, "tensor": v}, tensor()).flops == 512
    cost = cost_of("outer", {"self": v, "vec2": tensor(10)}, tensor(256, 10))
    assert (cost.matrix_flops, cost.vector_flops) == (0, 2560)
    inputs = {"self": tensor(256, 10), "vec1": v, "vec2": tensor(10)}
    assert cost_of("addr", inputs, tensor(256, 10)).vector_flops == 5120


def test_linear_counts_every_row():
    """Linear(3, 8) on (5, 10, 3): 2,400 FLOP, and 400 additions of the bias."""
    inputs = {"input": tensor(5, 10, 3), "weight": tensor(8, 3), "bias": tensor(8)}
    cost = cost_of("linear", inputs, tensor(5, 10, 8))
    assert (cost.matrix_flops, cost.vector_flops) == (2400, 400)


def test_matmul_broadcasts_batches():
    """(4, 1, 2, 5) @ (3, 5, 6) is 12 products; a vector counts as one row or column."""
    cost = cost_of("matmul", {"self": tensor(4, 1, 2, 5), "other": tensor(3, 5, 6)}, tensor(4))
    assert cost.matrix_flops == 12 * 2 * 2 * 6 * 5
    cost = cost_of("matmul", {"self": tensor(5), "other": tensor(3, 5, 6)}, tensor(3, 6))
    assert cost.matrix_flops == 3 * 2 * 6 * 5
    assert cost_of("matmul", {"self": tensor(5), "other": tensor(5)}, tensor()).matrix_flops == 10


def test_linear_backward_counts_what_is_wanted():
    """Both gradients are a product each; the input is read for the weight's gradient alone."""
    inputs = {"self": tensor(4, 3), "grad_output": tensor(4, 8), "weight": tensor(8, 3)}
    wanted = cost_of("linear_backward", inputs, (), output_mask=(True, True, True))
    assert (wanted.matrix_flops, wanted.vector_flops) == (2 * 192, 32)
    only = cost_of("linear_backward", inputs, (), output_mask=(True, False, False))
    assert (only.matrix_flops, only.read_bytes) == (192, (32 + 24) * 4)


def test_float4_holds_two_values_an_element():
    """A float4 operand of shape [16, 32] has an inner dimension of 64."""
    inputs = {
        "self": tensor(16, 32, dtype="float4_e2m1fn_x2"),
        "mat2": tensor(32, 8, dtype="float4_e2m1fn_x2"),
        "scale_a": tensor(16, 4, dtype="float8_e4m3fn"),
        "scale_b": tensor(8, 4, dtype="float8_e4m3fn"),
    }
    cost = cost_of("scaled_mm", inputs, tensor(16, 8, dtype="bfloat16"))
    assert (cost.matrix_flops, cost.math) == (2 * 16 * 8 * 64, "fp4")
    assert cost.read_bytes == 16 * 32 + 32 * 8 + 64 + 32


def test_a_packed_weight_is_read_as_it_is_stored():
    """An int8 weight beside bfloat16 activations: the roof is bf16, the traffic int8."""
    inputs = {
        "self": tensor(2, 64, dtype="bfloat16"),
        "mat2": tensor(32, 64, dtype="int8"),
        "scales": tensor(32, dtype="bfloat16"),
    }
    cost = cost_of("weight_int8pack_mm", inputs, tensor(2, 32, dtype="bfloat16"))
    assert (cost.matrix_flops, cost.vector_flops, cost.math) == (8192, 2048, "bf16")
    assert cost.read_bytes == 256 + 2048 + 64


def test_grouped_product_reads_the_experts_in_use():
    """8 rows of one token over 256 experts of 7168 x 2048: 8 matrices, 235 MB and not 7.5 GB."""
    rows = tensor(8, 7168, dtype="bfloat16")
    experts = tensor(256, 7168, 2048, dtype="bfloat16")
    inputs = {"self": rows, "mat2": experts, "offs": tensor(256, dtype="int32")}
    cost = cost_of("grouped_mm", inputs, tensor(8, 2048, dtype="bfloat16"))
    assert cost.matrix_flops == 2 * 8 * 7168 * 2048
    assert cost.read_bytes == 8 * 7168 * 2 + 8 * 7168 * 2048 * 2 + 1024
    # three such products a layer: 0.7 GB
    assert round(3 * 8 * 7168 * 2048 * 2 / 1e9, 1) == 0.7


def test_grouped_product_of_many_rows_reads_every_expert():
    """With more rows than experts all of them may be in use."""
    inputs = {"self": tensor(100, 4), "mat2": tensor(3, 4, 5)}
    cost = cost_of("grouped_mm", inputs, tensor(100, 5))
    assert (cost.matrix_flops, cost.read_bytes) == (4000, 1600 + 240)


def test_grouped_product_over_the_inner_dimension():
    """The weights' gradient: [K, R] by [R, N] in groups of R, one result an expert."""
    inputs = {"self": tensor(4, 100), "mat2": tensor(100, 5)}
    cost = cost_of("grouped_mm", inputs, tensor(3, 4, 5))
    assert (cost.matrix_flops, cost.write_bytes) == (4000, 240)


def test_a_product_of_the_wrong_rank_is_an_error():
    """An op whose operands are not what its formula needs raises, and never counts 0."""
    with pytest.raises(InputError, match="self must have 2 dimensions"):
        price(op("mm", {"self": tensor(2, 3, 4), "mat2": tensor(4, 5)}, tensor(2, 5)))
    with pytest.raises(InputError, match="mat2"):
        price(op("mm", {"self": tensor(2, 3)}, tensor(2, 5)))
