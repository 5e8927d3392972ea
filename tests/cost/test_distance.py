"""Distances between pairs of points, counted by hand."""

from __future__ import annotations

from math import inf

import pytest
from ops_by_hand import cost_of, op, tensor

from rooftile.cost.graph import price
from rooftile.errors import InputError


@pytest.mark.parametrize(
    ("p", "forward", "backward"),
    [
        (2.0, 3 * 3 + 1, 3 * 3 + 1),  # difference, square, sum, root; factor for the square
        (1.0, 3 * 3, 4 * 3),  # modulus; sign and factor
        (inf, 3 * 3, 6 * 3 + 2),
        (3.0, 4 * 3 + 1, 6 * 3 + 2),  # a power more
        (0.0, 3 * 3, 0),
    ],
)
def test_pairs_of_two_sets(p, forward, backward):
    """4 and 5 points of 3 components: 20 pairs."""
    inputs = {"x1": tensor(4, 3), "x2": tensor(5, 3)}
    cost = cost_of("cdist", inputs, tensor(4, 5), p=p)
    assert (cost.vector_flops, cost.bytes) == (20 * forward, (12 + 15 + 20) * 4)
    saved = {"grad": tensor(4, 5), **inputs, "cdist": tensor(4, 5)}
    cost = cost_of("cdist_backward", saved, tensor(4, 3), p=p)
    assert (cost.vector_flops, cost.bytes) == (20 * backward, (20 + 12 + 15 + 20 + 12) * 4)


def test_many_points_by_a_product():
    """30 and 50 points of 3 components: rows of 5; squares and sums, and a cut and root a pair."""
    inputs = {"x1": tensor(30, 3), "x2": tensor(50, 3)}
    cost = cost_of("euclidean_distances", inputs, tensor(30, 50))
    assert cost.matrix_flops == 2 * 1500 * 5
    assert cost.vector_flops == 2 * 80 * 3 + 2 * 1500
    assert cost.kernels == 12


def test_pairs_of_one_set():
    """5 points have 10 pairs."""
    x = tensor(5, 3)
    assert cost_of("pdist", {"self": x}, tensor(10), p=2.0).vector_flops == 10 * 10
    saved = {"grad": tensor(10), "self": x, "pdist": tensor(10)}
    cost = cost_of("pdist_backward", saved, tensor(5, 3), p=2.0)
    assert cost.vector_flops == 10 * (10 + 3)


def test_the_distance_of_two_tensors():
    """A difference, a square and a sum an element, and a root."""
    inputs = {"self": tensor(4, 3), "other": tensor(3)}
    cost = cost_of("dist", inputs, tensor(), p=2)
    assert (cost.vector_flops, cost.read_bytes) == (3 * 12 + 1, 48 + 12)


def test_points_must_be_rows():
    """A vector is no set of points."""
    with pytest.raises(InputError, match="x1 and x2 must be matrices"):
        price(op("cdist", {"x1": tensor(3), "x2": tensor(4, 3)}, tensor(4), p=2.0))
