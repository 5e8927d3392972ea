"""Direct methods of linear algebra: leading terms, by hand."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, op, tensor

from rooftile.cost.formulas.linalg import lu_flops, qr_flops, reflection_flops
from rooftile.cost.graph import price
from rooftile.errors import InputError


def test_factorisations():
    """n = 30: LU 18,000, QR 36,000; 60 x 30: LU 60 * 900 - 9,000, QR 2 * 900 * (60 - 10)."""
    assert lu_flops(30, 30) == 18_000
    assert lu_flops(60, 30) == lu_flops(30, 60) == 45_000
    assert qr_flops(30, 30) == 36_000
    assert qr_flops(60, 30) == 90_000
    assert reflection_flops(60, 30, 30) == qr_flops(60, 30)


@pytest.mark.parametrize(
    ("name", "role", "flops"),
    [
        ("lu", "A", 18_000),
        ("determinant", "A", 18_030),
        ("cholesky", "self", 9_000),
        ("ldl", "self", 9_000),
        ("inverse", "A", 54_000),
        ("cholesky_inverse", "self", 18_000),
        ("qr_reflections", "self", 36_000),
        ("qr", "A", 72_000),  # Q is formed
    ],
)
def test_a_batch_of_matrices(name: str, role: str, flops: int):
    """Two of 30 x 30; complex ones take four times as many."""
    real = cost_of(name, {role: tensor(2, 30, 30)}, tensor(2, 30, 30))
    assert (real.matrix_flops, real.math, real.bytes) == (2 * flops, "fp32", 2 * 7200)
    z = tensor(2, 30, 30, dtype="complex64")
    assert cost_of(name, {role: z}, z).matrix_flops == 8 * flops


@pytest.mark.parametrize(
    ("name", "matrix", "right", "flops"),
    [
        ("solve", "A", "B", 18_000 + 2 * 900 * 4),
        ("solve_lu", "LU", "B", 2 * 900 * 4),
        ("solve_ldl", "LD", "B", 2 * 900 * 4),
        ("solve_cholesky", "input2", "self", 2 * 900 * 4),
        ("solve_triangular", "self", "B", 900 * 4),
        ("triangular_solve", "A", "self", 900 * 4),
    ],
)
def test_solutions(name: str, matrix: str, right: str, flops: int):
    """Four columns: 30² FLOP a triangle and column."""
    inputs = {matrix: tensor(30, 30), right: tensor(30, 4)}
    assert cost_of(name, inputs, tensor(30, 4)).matrix_flops == flops


def test_reflections():
    """R alone forms no Q; 60 x 30 of 10 reflections; applied from the left and the right."""
    assert cost_of("qr", {"A": tensor(30, 30)}, tensor(30, 30), mode="r").matrix_flops == 36_000
    inputs = {"input": tensor(60, 30), "tau": tensor(10)}
    formed = cost_of("householder_product", inputs, tensor(60, 30))
    assert formed.matrix_flops == 4 * 60 * 30 * 10 - 2 * 90 * 100 + 4 * 1000 // 3
    inputs = {"self": tensor(60, 10), "input2": tensor(10), "input3": tensor(60, 30)}
    left = cost_of("apply_reflections", inputs, tensor(60, 30), left=True)
    assert left.matrix_flops == 4 * 60 * 30 * 10 - 2 * 30 * 100


def test_a_vector_is_no_matrix():
    """A factorisation needs two dimensions."""
    with pytest.raises(InputError, match="a matrix must have 2 dimensions"):
        price(op("lu", {"A": tensor(3)}, tensor(3)))
