"""Traps of counting from the field, each with its right value, at the level of one op."""

from __future__ import annotations

import itertools

import pytest
from ops_by_hand import cost_of, op, strided, tensor

from rooftile.capture.aten import ATEN
from rooftile.cost.graph import price

BACKENDS = (
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_cnt_01_attention_costs_the_same_on_every_backend(backend: str):
    """(1, 12, 64, 64): 12,582,912 FLOP, the CPU's kernel included."""
    q = tensor(1, 12, 64, 64)
    cost = cost_of(ATEN[backend], {"query": q, "key": q, "value": q}, tensor(1, 12, 64, 64))
    assert cost.matrix_flops == 12_582_912


def test_cnt_01_an_op_without_a_formula_has_no_price():
    """Never a silent 0: an unknown op is None, for the graph to list as unpriced."""
    assert price(op("frobnicate", {"self": tensor(8)}, tensor(8))) is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_cnt_02_attention_is_counted_once(backend: str):
    """(2, 5, 9, 4): 12,960 FLOP and not twice that."""
    inputs = {role: tensor(2, 5, 9, 4) for role in ("query", "key", "value")}
    assert cost_of(ATEN[backend], inputs, tensor(2, 5, 9, 4)).matrix_flops == 12_960


def test_cnt_04_the_count_does_not_depend_on_the_layout():
    """B=2 S=1024 H=16 K=64: the same in BSHD and BHSD, forward and 2.5 times that backward."""
    last = {role: tensor(2, 1024, 16, 64) for role in ("query", "key", "value")}
    first = {role: tensor(2, 16, 1024, 64) for role in ("query", "key", "value")}
    for name, inputs in (("efficient_attention", last), ("attention", first)):
        out = inputs["query"]
        assert cost_of(name, inputs, out).matrix_flops == 8_589_934_592
        saved = {"grad_out_": out, **inputs, "out": out}
        assert cost_of(f"{name}_backward", saved, ()).matrix_flops == 21_474_836_480


def test_cnt_05_values_of_another_width():
    """Dqk=192, Dv=128, S=64: 2,621,440 forward and 6,815,744 backward."""
    q, v = tensor(1, 1, 64, 192), tensor(1, 1, 64, 128)
    inputs = {"query": q, "key": tensor(1, 1, 64, 192), "value": v}
    assert cost_of("attention", inputs, tensor(1, 1, 64, 128)).matrix_flops == 2_621_440
    saved = {"grad_out": v, **inputs, "out": tensor(1, 1, 64, 128)}
    assert cost_of("attention_backward", saved, ()).matrix_flops == 6_815_744


def training(
    x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], transposed: bool
) -> tuple[int, int]:
    """Matrix FLOP of a convolution's forward, and of forward and backward together."""
    inputs = {"input": tensor(*x), "weight": tensor(*w)}
    forward = cost_of("convolution", inputs, tensor(*y), transposed=transposed)
    saved = {"grad_output": tensor(*y), **inputs}
    backward = cost_of("convolution_backward", saved, (), transposed=transposed)
    return forward.matrix_flops, forward.matrix_flops + backward.matrix_flops


def test_cnt_07_a_depthwise_convolution_trains_at_three_times_its_forward():
    """4 channels, 4 groups, 3 x 3 on 8 x 8: 13,824; transposed with stride 2: 27,648."""
    assert training((1, 4, 8, 8), (4, 1, 3, 3), (1, 4, 8, 8), False) == (4_608, 13_824)
    assert training((2, 4, 8, 8), (4, 1, 3, 3), (2, 4, 16, 16), True) == (9_216, 27_648)


def test_cnt_07_a_depthwise_convolution_of_64_channels():
    """64 channels, 3 x 3 on 32 x 32, forward and backward: 3,538,944."""
    total = training((1, 64, 32, 32), (64, 1, 3, 3), (1, 64, 32, 32), False)[1]
    assert total == 3_538_944


def test_cnt_08_transposed_convolutions():
    """(a) 32 to 1 channel, 3 x 3 on 1 x 1: 576; (b) 3 groups of 2, 2 x 2, stride 2: 12,288."""
    assert training((1, 32, 1, 1), (32, 1, 3, 3), (1, 1, 3, 3), True)[0] == 576
    assert training((2, 6, 8, 8), (6, 2, 2, 2), (2, 6, 16, 16), True)[0] == 12_288


@pytest.mark.parametrize(("length", "expected"), [(128, 8_388_608), (256, 25_165_824)])
def test_cnt_10_multi_head_attention_s_fast_path_keeps_its_attention(length: int, expected: int):
    """8 S d d + 4 S S d for one head of 64: three times as much for twice the sequence."""
    x = tensor(1, length, 64)
    inputs = {
        "query": x,
        "key": x,
        "value": x,
        "qkv_weight": tensor(192, 64),
        "proj_weight": tensor(64, 64),
    }
    cost = cost_of("multi_head_attention", inputs, tensor(1, length, 64), embed_dim=64, num_head=1)
    assert cost.matrix_flops == expected


def test_cnt_11_a_linear_layer_that_arrives_whole_is_counted():
    """Linear(16, 32) on (8, 16), as inference mode dispatches it: 8,192 FLOP."""
    inputs = {"input": tensor(8, 16), "weight": tensor(32, 16)}
    assert cost_of("linear", inputs, tensor(8, 32)).matrix_flops == 8_192


def test_cnt_13_the_same_op_costs_the_same_each_time():
    """Counting three times gives one number three times."""
    it = op("mm", {"self": tensor(2, 5), "mat2": tensor(5, 3)}, tensor(2, 3))
    assert price(it) == price(it) == price(it)


def test_cnt_14_an_mlp_is_counted_in_flop():
    """784-512-512-10 at batch 1: 1,337,344 FLOP in products, the biases' 1,034 apart."""
    sizes = (784, 512, 512, 10)
    costs = [
        cost_of(
            "addmm",
            {"self": tensor(n), "mat1": tensor(1, k), "mat2": tensor(k, n)},
            tensor(1, n),
        )
        for k, n in itertools.pairwise(sizes)
    ]
    assert sum(c.matrix_flops for c in costs) == 1_337_344
    assert sum(c.vector_flops for c in costs) == 1_034


def test_cnt_17_a_slice_is_read_by_its_own_size():
    """x[:, :16] of 1024 x 1024 float32 is 65,536 bytes."""
    x = tensor(1024, 1024)
    part = strided(x, (1024, 16), (1024, 1))
    assert cost_of("relu", {"self": part}, tensor(1024, 16)).read_bytes == 65_536


def test_cnt_17_an_in_place_op_reads_and_writes():
    """y.add_(1) moves y twice."""
    cost = cost_of("add", {"self": tensor(1024)}, changed=("self",), other=1)
    assert (cost.read_bytes, cost.write_bytes, cost.vector_flops) == (4096, 4096, 1024)


def test_cnt_17_an_expanded_tensor_is_read_once():
    """A sum over (1, 4096) expanded to 4096 rows reads 16,384 bytes and adds 4096^2 numbers."""
    x = strided(tensor(1, 4096), (4096, 4096), (0, 1))
    cost = cost_of("sum", {"self": x}, tensor())
    assert (cost.read_bytes, cost.vector_flops) == (16_384, 16_777_216)


def test_views_and_allocation_are_free():
    """A slice, a transpose, empty_like: no byte, no launch."""
    x = tensor(1024, 1024)
    for name in ("slice", "t", "_unsafe_view", "expand", "empty_like", "unsqueeze_"):
        cost = cost_of(ATEN[name], {"self": x}, strided(x, (1024, 64), (1024, 1)))
        assert (cost.bytes, cost.flops, cost.kernels) == (0, 0, 0), name


def test_an_embedding_reads_the_rows_it_takes():
    """8 tokens of a 50257 x 768 table: 49,216 bytes of rows, indices and result, and no FLOP."""
    inputs = {"weight": tensor(50257, 768), "indices": tensor(8, dtype="int64")}
    cost = cost_of("embedding", inputs, tensor(8, 768))
    assert (cost.bytes, cost.flops) == (49_216, 0)


def test_index_select_reads_the_rows_it_takes():
    """8 rows of 1024 x 1024: 65,600 bytes."""
    inputs = {"self": tensor(1024, 1024), "index": tensor(8, dtype="int64")}
    assert cost_of("index_select", inputs, tensor(8, 1024), dim=0).bytes == 65_600


def test_index_copy_does_not_read_its_target():
    """8 rows written in place into 1024 x 1024: 65,600 bytes."""
    inputs = {
        "self": tensor(1024, 1024),
        "index": tensor(8, dtype="int64"),
        "source": tensor(8, 1024),
    }
    for how in ("changed", "filled"):
        cost = cost_of("index_copy", inputs, dim=0, **{how: ("self",)})
        assert (cost.bytes, cost.flops) == (65_600, 0)


def test_a_copy_does_not_read_its_target():
    """cache[:, 5].copy_(v) of 1024 float32: 8,192 bytes, however the target is marked."""
    cache = tensor(1024, 16)
    inputs = {"self": strided(cache, (1024,), (16,), 5), "src": tensor(1024)}
    for how in ("changed", "filled"):
        assert cost_of("copy", inputs, **{how: ("self",)}).bytes == 8_192


def test_an_out_argument_is_not_read():
    """add(a, b, out=o) of 4 MiB each: 12,582,912 bytes."""
    inputs = {role: tensor(1024, 1024) for role in ("self", "other", "out")}
    assert cost_of("add", inputs, filled=("out",)).bytes == 12_582_912


def test_a_sum_of_a_tensor_with_itself_reads_it_once():
    """x + x of 4 MiB: 8,388,608 bytes."""
    x = tensor(1024, 1024)
    assert cost_of("add", {"self": x, "other": x}, tensor(1024, 1024)).bytes == 8_388_608


def test_a_broadcast_counts_the_result_s_elements():
    """(3, 1) * (1, 4) is 12 products from 7 elements."""
    cost = cost_of("mul", {"self": tensor(3, 1), "other": tensor(1, 4)}, tensor(3, 4))
    assert (cost.vector_flops, cost.read_bytes) == (12, 28)


def test_attention_never_writes_its_scores():
    """(1, 12, 1024, 64) bfloat16: 6,291,456 bytes, not the scores' hundreds of millions."""
    inputs = {role: tensor(1, 12, 1024, 64, dtype="bfloat16") for role in ("query", "key", "value")}
    cost = cost_of("attention", inputs, tensor(1, 12, 1024, 64, dtype="bfloat16"))
    assert cost.bytes == 6_291_456


def test_attention_grows_faster_than_its_sequence():
    """Twice the tokens are four times the FLOP."""

    def flops(length: int) -> int:
        inputs = {role: tensor(1, 2, length, 64) for role in ("query", "key", "value")}
        return cost_of("attention", inputs, inputs["query"]).matrix_flops

    assert flops(16_384) == 4 * flops(8_192)
