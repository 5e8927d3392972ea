"""Ops that move more than they compute: FLOP and bytes against counts made by hand."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, op, strided, tensor

from rooftile.cost.formulas.gather import embedding_forward
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
