"""Ops that move more than they compute: FLOP and bytes against counts made by hand."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, op, strided, tensor

from rooftile.cost.formulas.fft import fft_flops
from rooftile.cost.formulas.gather import embedding_forward
from rooftile.cost.formulas.sort import sort_flops, topk_flops
from rooftile.cost.graph import price
from rooftile.errors import InputError


def test_an_embedding_never_reads_more_than_its_table():
    """10,000 tokens over 100 rows read 100 rows."""
    inputs = {"weight": tensor(100, 16), "indices": tensor(10_000, dtype="int64")}
    cost = cost_of("embedding", inputs, tensor(10_000, 16))
    assert cost.read_bytes == 100 * 16 * 4 + 80_000
    want = embedding_forward(10_000, 100, 16, 4, 8)
    assert (cost.read_bytes, cost.write_bytes) == (want.read_bytes, want.write_bytes)


def test_an_embedding_s_gradient_is_dense():
    """Zeros of the table's size are written, a row added for each token."""
    inputs = {"grad_output": tensor(8, 768), "indices": tensor(8, dtype="int64")}
    cost = cost_of("embedding_backward", inputs, tensor(50257, 768), num_weights=50257)
    assert (cost.vector_flops, cost.write_bytes) == (8 * 768, 50257 * 768 * 4)


BAG = {
    "indices": tensor(64, dtype="int64"),
    "offsets": tensor(8, dtype="int64"),
    "offset2bag": tensor(64, dtype="int64"),
    "bag_size": tensor(8, dtype="int64"),
    "maximum_indices": tensor(8, 8, dtype="int64"),
}


@pytest.mark.parametrize(
    ("mode", "extra", "flops", "read"),
    [
        (0, {}, 512, 256 + 512 + 512),
        (1, {}, 512 + 64, 256 + 512 + 512 + 64),  # a division an element of a bag
        (2, {}, 64, 256 + 512),  # one row an element: the largest
        (0, {"per_sample_weights": tensor(64)}, 1024, 256 + 512 + 512 + 256),
    ],
)
def test_a_bag_s_gradient_goes_to_each_row_it_took(mode, extra, flops, read):
    """8 bags of 8 rows of 8: 512 additions into a dense gradient, not one a bag's element."""
    inputs = {"grad": tensor(8, 8), **BAG, **extra}
    cost = cost_of("embedding_bag_backward", inputs, tensor(100, 8), mode=mode)
    assert (cost.vector_flops, cost.read_bytes) == (flops, read)
    assert cost.write_bytes == 3200


def test_a_bag_adds_up_its_rows():
    """64 rows of 8: an addition an element; a division a result for a mean."""
    inputs = {"weight": tensor(100, 8), "indices": BAG["indices"], "offsets": BAG["offsets"]}
    bags = tensor(8, 8)
    assert cost_of("embedding_bag", inputs, bags, mode=0).vector_flops == 512
    assert cost_of("embedding_bag", inputs, bags, mode=1).vector_flops == 512 + 64
    with pytest.raises(InputError, match="mode must be 0, 1 or 2"):
        price(op("embedding_bag", inputs, bags, mode=3))


def test_the_gradient_of_a_bag_s_weights():
    """A dot product of 8 an index; of 1000 rows 64 are read."""
    inputs = {"grad": tensor(8, 8), "weight": tensor(1000, 8), **BAG}
    del inputs["bag_size"], inputs["maximum_indices"]
    cost = cost_of("embedding_bag_weights_backward", inputs, tensor(64), mode=0)
    assert (cost.vector_flops, cost.read_bytes) == (2 * 512, 2048 + 256 + 512 + 512)


def test_gather_reads_what_it_takes():
    """20 elements of 1000, and their indices."""
    inputs = {"self": tensor(10, 100), "index": tensor(10, 2, dtype="int64")}
    assert cost_of("gather", inputs, tensor(10, 2), dim=1).read_bytes == 80 + 160


def test_indexing_reads_what_it_takes():
    """x[i] of 1024 x 64 with 8 places reads 8 rows; with a mask also the mask."""
    inputs = {"self": tensor(1024, 64), "indices.0": tensor(8, dtype="int64")}
    assert cost_of("index", inputs, tensor(8, 64)).read_bytes == 8 * 64 * 4 + 64
    masked = {"self": tensor(1024, 64), "indices.0": tensor(1024, dtype="bool")}
    assert cost_of("index", masked, tensor(5, 64)).read_bytes == 5 * 64 * 4 + 1024


def test_scatter_add_in_place_reads_and_writes_what_it_touches():
    """5 elements of 1000: read, added to, written."""
    inputs = {
        "self": tensor(1000),
        "index": tensor(5, dtype="int64"),
        "src": tensor(5),
    }
    cost = cost_of("scatter_add", inputs, changed=("self",), dim=0)
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (5, 20 + 40 + 20, 20)


def test_scatter_out_of_place_copies_the_table():
    """The result is a whole new tensor."""
    inputs = {"self": tensor(1000), "index": tensor(5, dtype="int64"), "src": tensor(5)}
    cost = cost_of("scatter", inputs, tensor(1000), dim=0)
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (0, 4000 + 40 + 20, 4000)


def test_a_scatter_s_source_is_read_where_the_index_points():
    """An index of 5 over a source of 100 takes 5 of it."""
    inputs = {"self": tensor(1000), "index": tensor(5, dtype="int64"), "src": tensor(100)}
    cost = cost_of("scatter", inputs, filled=("self",), dim=0)
    assert (cost.read_bytes, cost.write_bytes) == (40 + 20, 20)


def test_index_put_writes_the_places_it_names():
    """cache[:, i] = v: 4 rows of 2 places of 8, not the cache; accumulating also reads them."""
    inputs = {
        "self": tensor(4, 100, 8),
        "indices.1": tensor(2, dtype="int64"),
        "values": tensor(4, 2, 8),
    }
    cost = cost_of("index_put", inputs, filled=("self",))
    assert (cost.vector_flops, cost.write_bytes) == (0, 4 * 2 * 8 * 4)
    assert cost.read_bytes == 16 + 4 * 2 * 8 * 4
    added = cost_of("index_put", inputs, changed=("self",), accumulate=True)
    assert (added.vector_flops, added.read_bytes) == (64, 16 + 2 * 256)


def test_index_put_with_a_mask_may_name_every_place():
    """x[mask] = 0: the mask spans two dimensions, the rest is taken whole."""
    inputs = {
        "self": tensor(10, 20, 3),
        "indices.0": tensor(10, 20, dtype="bool"),
        "values": tensor(),
    }
    cost = cost_of("index_put", inputs, filled=("self",))
    assert (cost.read_bytes, cost.write_bytes) == (200 + 4, 600 * 4)


def test_index_add_with_a_factor():
    """One addition an element, one product more with alpha."""
    inputs = {
        "self": tensor(100, 8),
        "index": tensor(3, dtype="int64"),
        "source": tensor(3, 8),
    }
    assert cost_of("index_add", inputs, changed=("self",), dim=0).vector_flops == 24
    assert cost_of("index_add", inputs, changed=("self",), dim=0, alpha=2).vector_flops == 48


def test_a_gather_s_gradient_does_not_read_the_table():
    """Zeros and the taken elements."""
    inputs = {
        "grad": tensor(10, 2),
        "self": tensor(10, 100),
        "index": tensor(10, 2, dtype="int64"),
    }
    cost = cost_of("gather_backward", inputs, tensor(10, 100), dim=1)
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (20, 80 + 160, 4000)


def test_an_index_without_a_dimension_is_an_error():
    """index_select needs its dim."""
    inputs = {"self": tensor(4, 4), "index": tensor(2, dtype="int64")}
    with pytest.raises(InputError, match="dim must be one of 2 dimensions"):
        price(op("index_select", inputs, tensor(2, 4)))


def test_reshape_is_a_view_or_a_copy():
    """By the storage of its result."""
    x = tensor(4, 8)
    view = cost_of("reshape", {"self": x}, strided(x, (32,), (1,)))
    assert (view.bytes, view.kernels) == (0, 0)
    copy = cost_of("reshape", {"self": strided(x, (8, 4), (1, 8))}, tensor(32))
    assert (copy.bytes, copy.kernels) == (256, 1)


def test_a_cast_moves_both_dtypes():
    """bfloat16 to float32: 2 bytes in, 4 out, no FLOP."""
    cost = cost_of("copy", {"self": tensor(100, dtype="bfloat16")}, tensor(100))
    assert (cost.read_bytes, cost.write_bytes, cost.flops) == (200, 400, 0)


def test_a_clone_of_an_expanded_tensor_reads_its_storage():
    """expand then contiguous: 4 bytes in, 400 out."""
    x = strided(tensor(1), (100,), (0,))
    cost = cost_of("copy", {"self": x}, tensor(100))
    assert (cost.read_bytes, cost.write_bytes) == (4, 400)


def test_a_concatenation_moves_its_parts():
    """Two tensors in, their sum out."""
    cost = cost_of("cat", {"tensors.0": tensor(3), "tensors.1": tensor(5)}, tensor(8))
    assert cost.bytes == 64


def test_zeros_like_a_tensor_do_not_read_it():
    """The tensor lends its shape; random numbers likewise."""
    for name in ("fill", "random"):
        cost = cost_of(name, {"self": tensor(100)}, tensor(100))
        assert (cost.read_bytes, cost.write_bytes, cost.flops) == (0, 400, 0)


def test_an_item_is_one_element():
    """What .item() takes to the host."""
    assert cost_of("item", {"self": tensor()}).bytes == 4


def test_max_pool():
    """3 x 3 windows over 112 x 112 to 56 x 56: 9 comparisons a result; both results written."""
    outputs = (tensor(1, 64, 56, 56), tensor(1, 64, 56, 56, dtype="int64"))
    cost = cost_of(
        "max_pool2d",
        {"self": tensor(1, 64, 112, 112)},
        outputs,
        kernel_size=(3, 3),
        stride=(2, 2),
        padding=(1, 1),
    )
    assert cost.vector_flops == 9 * 64 * 56 * 56
    assert cost.write_bytes == 64 * 56 * 56 * 12
    assert cost.read_bytes == 64 * 112 * 112 * 4


def test_a_pool_s_gradient_does_not_read_the_input():
    """It reads the gradient and the indices."""
    inputs = {
        "grad_output": tensor(1, 1, 4, 4),
        "self": tensor(1, 1, 8, 8),
        "indices": tensor(1, 1, 4, 4, dtype="int64"),
    }
    cost = cost_of(
        "max_pool2d_backward", inputs, tensor(1, 1, 8, 8), kernel_size=(2, 2), stride=(2, 2)
    )
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (16, 64 + 128, 256)


def test_an_average_divides():
    """2 x 2 windows: 4 additions and a division a result."""
    cost = cost_of("avg_pool2d", {"self": tensor(1, 1, 8, 8)}, tensor(1, 1, 4, 4), kernel_size=(2,))
    assert cost.vector_flops == 16 * 5


def test_adaptive_windows_are_counted_one_by_one():
    """7 to 3: windows of 3, 3 and 3 a dimension, so 81 taps and 9 divisions."""
    cost = cost_of("adaptive_avg_pool2d", {"self": tensor(1, 1, 7, 7)}, tensor(1, 1, 3, 3))
    assert cost.vector_flops == 81 + 9


def test_interpolation():
    """Nearest copies; bilinear is four multiply-adds a result, forward and backward."""
    x, y = tensor(1, 1, 4, 4), tensor(1, 1, 8, 8)
    assert cost_of("upsample_nearest2d", {"self": x}, y).flops == 0
    assert cost_of("upsample_bilinear2d", {"self": x}, y).flops == 8 * 64
    assert cost_of("upsample_bilinear2d_backward", {"grad_output": y}, x).flops == 8 * 64


def test_sorting_is_n_log_n_comparisons():
    """1024 is 10 rounds, 1000 too, 1 none; top-8 of 1000 is one pass and a sort of 8."""
    assert sort_flops(1, 1024) == 10_240
    assert sort_flops(2, 1000) == 20_000
    assert sort_flops(5, 1) == 0
    assert topk_flops(1, 1000, 8) == 1000 + 24
    assert topk_flops(1, 1000, 8, ordered=False) == 1000
    outputs = (tensor(4, 8), tensor(4, 8, dtype="int64"))
    cost = cost_of("topk", {"self": tensor(4, 1000)}, outputs, k=8, dim=-1)
    assert (cost.vector_flops, cost.bytes) == (4 * 1024, 16_000 + 32 * 12)


def test_a_binary_search_touches_its_path():
    """2 searches in 1,000,000 sorted numbers: 21 steps each."""
    inputs = {"sorted_sequence": tensor(1_000_000), "self": tensor(2)}
    cost = cost_of("search", inputs, tensor(2, dtype="int64"))
    assert (cost.vector_flops, cost.read_bytes) == (42, 42 * 4 + 8)


def test_adamw():
    """14 FLOP an element with decay; four lists read, three written, steps read."""
    lists = ("self", "grads", "exp_avgs", "exp_avg_sqs")
    inputs = {f"{name}.{i}": tensor(n) for name in lists for i, n in enumerate((3, 5))}
    steps = {"state_steps.0": tensor(), "state_steps.1": tensor()}
    changed = tuple(inputs)
    attrs = {"weight_decay": 0.01, "amsgrad": False, "maximize": False}
    cost = cost_of("adamw_step", {**inputs, **steps}, changed=changed, **attrs)
    assert cost.vector_flops == 14 * 8
    assert (cost.read_bytes, cost.write_bytes) == (4 * 8 * 4 + 8, 3 * 8 * 4)


def test_sgd():
    """Plain: 2 FLOP, parameters and gradients; with momentum 2 more and the buffers, damped 3."""
    inputs = {"self.0": tensor(8), "grads.0": tensor(8)}
    plain = cost_of("sgd_step", inputs, changed=tuple(inputs), momentum=0.0, weight_decay=0.0)
    assert (plain.vector_flops, plain.read_bytes, plain.write_bytes) == (16, 64, 32)
    inputs["momentum_buffer_list.0"] = tensor(8)
    heavy = cost_of("sgd_step", inputs, changed=tuple(inputs), momentum=0.9, weight_decay=0.0)
    assert (heavy.vector_flops, heavy.read_bytes, heavy.write_bytes) == (32, 96, 64)
    damped = cost_of("sgd_step", inputs, changed=tuple(inputs), momentum=0.9, dampening=0.1)
    assert damped.vector_flops == 40
    first = cost_of("sgd_step", inputs, changed=tuple(inputs), momentum=0.9, is_first_step=True)
    assert (first.vector_flops, first.read_bytes, first.write_bytes) == (16, 64, 64)


def test_a_fourier_transform():
    """1024 complex points: 5 n log2 n; from reals half of it."""
    assert fft_flops(1024) == 51_200
    assert fft_flops(1024, real=True) == 25_600
    assert fft_flops(1) == 0
    x = tensor(8, 1024, dtype="complex64")
    assert cost_of("fft_c2c", {"self": x}, x, dim=(1,)).vector_flops == 8 * 51_200
    half = tensor(8, 513, dtype="complex64")
    cost = cost_of("fft_r2c", {"self": tensor(8, 1024)}, half, dim=(1,))
    assert cost.vector_flops == 8 * 25_600
