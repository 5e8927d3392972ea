"""flex_attention's formula on records made by hand."""

import pytest
from ops_by_hand import cost_of, op, tensor

from rooftile.cost.graph import price
from rooftile.errors import InputError

BF16 = {"dtype": "bfloat16"}


def operands():
    """1 sequence, 2 heads, 8 queries and keys of width 16."""
    return {role: tensor(1, 2, 8, 16, **BF16) for role in ("query", "key", "value")}


def test_pairs_and_functions():
    """40 visible pairs of 128; a tanh and a product each; a comparison for 64 asked."""
    cost = cost_of(
        "flex_attention", operands(), tensor(1, 2, 8, 16, **BF16), pairs=40, asked=64,
        score_ops="tanh mul", mask_ops="ge",
    )  # fmt: skip
    assert cost.matrix_flops == 40 * 64
    assert cost.dense_matrix_flops == 128 * 64
    assert cost.vector_flops == 40 * (5 + 2) + 256 + 64
    assert (cost.read_bytes, cost.write_bytes) == (3 * 512, 512)


@pytest.mark.parametrize("attrs", [{"pairs": 129}, {"pairs": -2}, {"score_ops": 3}])
def test_what_cannot_be_is_refused(attrs):
    """More pairs than there are, fewer than none, and functions that are no names."""
    with pytest.raises(InputError, match="must be"):
        price(op("flex_attention", operands(), tensor(1, 2, 8, 16, **BF16), **attrs))
