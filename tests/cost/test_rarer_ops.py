"""Ops that few models have, each against a count made by hand."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, op, tensor

from rooftile.cost.graph import price
from rooftile.errors import InputError

INT = {"dtype": "int64"}


def test_a_bilinear_layer():
    """3 rows, 6 results of 4 x 5 weights: a product over 4, then one over 5, each result alone."""
    inputs = {"i1": tensor(3, 4), "i2": tensor(6, 4, 5), "i3": tensor(3, 5)}
    attrs = {"expand1": (1, 3), "expand2": (0,), "expand3": (1, 2), "sumdim": (2, 3)}
    cost = cost_of("trilinear", inputs, tensor(3, 6), unroll_dim=1, **attrs)
    assert cost.matrix_flops == 2 * 3 * 6 * 4 * 5 + 2 * 3 * 6 * 5
    assert (cost.vector_flops, cost.kernels) == (0, 6 * 3)
    assert cost.bytes == (12 + 120 + 15 + 18) * 4


def test_a_bilinear_layer_s_weight_gradient():
    """Nothing is summed in the pair; the rows are, in the second product."""
    inputs = {"i1": tensor(3, 4), "i2": tensor(3, 6), "i3": tensor(3, 5)}
    attrs = {"expand1": (1, 3), "expand2": (2, 3), "expand3": (1, 2), "sumdim": (0,)}
    cost = cost_of("trilinear", inputs, tensor(6, 4, 5), unroll_dim=1, **attrs)
    assert cost.matrix_flops == 2 * 3 * 6 * 4 + 2 * 3 * 6 * 4 * 5


def test_masked_scatter():
    """A running sum of the mask; in place the table is filled, out of place it is copied."""
    inputs = {"self": tensor(8, 8), "mask": tensor(8, 8, dtype="bool"), "source": tensor(100)}
    cost = cost_of("masked_scatter", inputs, tensor(8, 8))
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (64, 256 + 64 + 256, 256)
    placed = cost_of("masked_scatter", inputs, changed=("self",))
    assert (placed.vector_flops, placed.read_bytes, placed.write_bytes) == (64, 64 + 256, 256)
    grads = {"grad_output": tensor(8, 8), "mask": tensor(8, 8, dtype="bool")}
    back = cost_of("masked_scatter_backward", grads, tensor(100))
    assert (back.vector_flops, back.bytes) == (64, 256 + 64 + 400)


@pytest.mark.parametrize(("how", "flops"), [("sum", 1), ("amax", 1), ("prod", 1), ("mean", 3)])
def test_reductions_by_index(how, flops):
    """Three rows of 8 into a table: one FLOP an element, a mean counts and divides too."""
    inputs = {"self": tensor(9, 8), "index": tensor(3, **INT), "source": tensor(3, 8)}
    cost = cost_of("index_reduce", inputs, changed=("self",), dim=0, reduce=how)
    assert (cost.vector_flops, cost.read_bytes) == (24 * flops, 24 + 96 + 96)
    inputs = {"self": tensor(9, 8), "index": tensor(3, 8, **INT), "src": tensor(3, 8)}
    cost = cost_of("scatter_reduce", inputs, changed=("self",), dim=0, reduce=how)
    assert (cost.vector_flops, cost.write_bytes) == (24 * flops, 96)


def test_an_embedding_cut_to_a_norm():
    """Three rows of 8 of 1000: square, sum and product, in place; no more rows than there are."""
    inputs = {"self": tensor(1000, 8), "indices": tensor(3, **INT)}
    cost = cost_of("embedding_renorm", inputs, changed=("self",))
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (72, 96 + 24, 96)
    few = {"self": tensor(2, 8), "indices": tensor(100, **INT)}
    assert cost_of("embedding_renorm", few, changed=("self",)).vector_flops == 48


def test_slices_cut_to_a_norm():
    """Square, sum and product an element, in three kernels."""
    cost = cost_of("renorm", {"self": tensor(8, 8)}, tensor(8, 8), p=2, dim=0, maxnorm=1.0)
    assert (cost.vector_flops, cost.bytes, cost.kernels) == (3 * 64, 512, 3)


def test_a_margin_over_classes():
    """Two sums, a cut and the loss's sum an element; a square or a weight one more."""
    inputs = {"self": tensor(4, 10), "target": tensor(4, **INT)}
    cost = cost_of("multi_margin_loss", inputs, tensor(), p=1)
    assert (cost.vector_flops, cost.read_bytes) == (160, 160 + 32)
    weighted = {**inputs, "weight": tensor(10)}
    assert cost_of("multi_margin_loss", weighted, tensor(), p=2).vector_flops == 240
    back = {"grad_output": tensor(), **inputs}
    assert cost_of("multi_margin_loss_backward", back, tensor(4, 10), p=1).vector_flops == 200


def test_a_ctc_loss():
    """2 x 10 steps of 7 states, 13 FLOP each; no more scores are read than there are states."""
    states = tensor(2, 10, 7)
    inputs = {"log_probs": tensor(10, 2, 50), "targets": tensor(2, 3, **INT)}
    cost = cost_of("ctc_loss", inputs, (tensor(2), states))
    assert (cost.vector_flops, cost.read_bytes) == (13 * 140, 560 + 48)
    saved = {"grad": tensor(2), **inputs, "log_alpha": states}
    back = cost_of("ctc_loss_backward", saved, tensor(10, 2, 50))
    assert back.vector_flops == (13 + 9) * 140 + 6 * 1000
    with pytest.raises(InputError, match="must return its states"):
        price(op("ctc_loss", inputs, tensor(2)))


def test_a_randomised_relu():
    """Compare and scale; only training writes the slopes, and only its backward reads them."""
    inputs = {"self": tensor(8), "noise": tensor(8)}
    training = cost_of("rrelu", inputs, tensor(8), changed=("noise",), training=True)
    assert (training.vector_flops, training.read_bytes, training.write_bytes) == (16, 32, 64)
    evaluation = cost_of("rrelu", inputs, tensor(8), changed=("noise",), training=False)
    assert (evaluation.read_bytes, evaluation.write_bytes) == (32, 32)
    saved = {"grad_output": tensor(8), **inputs}
    back = cost_of("rrelu_backward", saved, tensor(8), training=True)
    assert (back.vector_flops, back.read_bytes) == (8, 64)
    assert cost_of("rrelu_backward", saved, tensor(8), training=False).vector_flops == 16


def test_pools_at_random_places():
    """9 windows of 4 over 100 x 100 read 36 elements; the gradient is zeros and 9 sums."""
    inputs = {"self": tensor(1, 1, 100, 100), "random_samples": tensor(1, 1, 2)}
    results = (tensor(1, 1, 3, 3), tensor(1, 1, 3, 3, **INT))
    cost = cost_of("fractional_max_pool2d", inputs, results, kernel_size=(2, 2))
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (36, 36 * 4 + 8, 108)
    saved = {"grad_output": results[0], "self": inputs["self"], "indices": results[1]}
    back = cost_of("fractional_max_pool2d_backward", saved, tensor(1, 1, 100, 100), kernel_size=2)
    assert (back.vector_flops, back.read_bytes, back.write_bytes) == (9, 108, 40_000)


def test_an_unpooling_copies():
    """9 elements and their places in, 36 elements out."""
    inputs = {"self": tensor(1, 1, 3, 3), "indices": tensor(1, 1, 3, 3, **INT)}
    cost = cost_of("max_unpool", inputs, tensor(1, 1, 6, 6))
    assert (cost.flops, cost.read_bytes, cost.write_bytes) == (0, 108, 144)


def test_a_check_reads_and_keeps_nothing():
    """What an assertion looks at."""
    cost = cost_of("look", {"info": tensor(2, dtype="int32")})
    assert (cost.flops, cost.read_bytes, cost.write_bytes, cost.kernels) == (0, 8, 0, 1)


def test_a_cross_product():
    """Two products and a difference a component."""
    inputs = {"self": tensor(5, 3), "other": tensor(5, 3)}
    assert cost_of("cross", inputs, tensor(5, 3)).vector_flops == 3 * 15


def test_a_transform_along_no_such_dimension_is_an_error():
    """The second dimension of a line."""
    x = tensor(8, dtype="complex64")
    with pytest.raises(InputError, match="dim must be a list of 1 dimensions"):
        price(op("fft_c2c", {"self": x}, x, dim=(1,)))
