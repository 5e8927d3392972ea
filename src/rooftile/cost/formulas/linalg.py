"""Dense factorisations and solutions by them: the count of the direct method, its leading terms.

n x n: LU 2/3 n³, Cholesky and LDL 1/3 n³, inverse 2 n³. Solving for k columns: n² k a triangle, so
2 n² k after a factorisation. QR of m x n, m at least n: 2 n² (m - n / 3); forming k of its columns
or applying k reflections to an m x n matrix: 4 m n k less what the triangle saves. A determinant
is its LU and the product of a diagonal. Complex numbers take four times as many FLOP. Eigenvalues,
singular values and exponentials are iterated: how often is data, and they are unpriced.

Source: LAPACK Working Note 41, https://www.netlib.org/lapack/lawnspdf/lawn41.pdf (appendix C).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from rooftile.cost.formulas.arithmetic import is_complex
from rooftile.cost.formulas.operands import Formula, cost, flag, matrix_math, operand, result
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor


def lu_flops(m: int, n: int) -> int:
    """FLOP of an LU factorisation."""
    short, long = sorted((m, n))
    return long * short**2 - short**3 // 3


def reflection_flops(m: int, n: int, k: int) -> int:
    """FLOP of the first n columns of k reflections of m places; with k = n those of a QR."""
    return 4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 // 3


def qr_flops(m: int, n: int) -> int:
    """FLOP of a QR factorisation, its reflections left as they are."""
    return reflection_flops(m, n, min(m, n))


def _matrix(op: Op, *roles: str) -> tuple[Tensor, int, int, int]:
    """The matrices, how many, and their rows and columns."""
    a = operand(op, *roles)
    if len(a.shape) < 2:
        raise InputError(f"{op.aten}: a matrix must have 2 dimensions, got shape {a.shape}")
    return a, prod(a.shape[:-2]), a.shape[-2], a.shape[-1]


def _price(op: Op, a: Tensor, flops: int) -> Cost:
    factor = 4 if is_complex(a) else 1
    return cost(op, f"linalg.{op.name}", matrix=factor * flops, math=matrix_math(op, a))


def _factor(op: Op, count: Callable[[int, int], int]) -> Cost:
    """One matrix in, its factors out."""
    a, batch, m, n = _matrix(op, "self", "A", "input")
    return _price(op, a, batch * count(m, n))


def _solve(op: Op, matrix: str, per_column: int, *, factored: bool = True) -> Cost:
    """n² times ``per_column`` for each column of the result, after a factorisation or with it."""
    a, batch, n, _ = _matrix(op, matrix, "A")
    columns = result(op).numel // n if n else 0
    before = 0 if factored else batch * lu_flops(n, n)
    return _price(op, a, before + per_column * n**2 * columns)


def _qr(op: Op) -> Cost:
    """The factors, and Q's columns unless R alone is wanted."""
    a, batch, m, n = _matrix(op, "A")
    k = m if op.attrs.get("mode") == "complete" else min(m, n)
    formed = 0 if op.attrs.get("mode") == "r" else reflection_flops(m, k, min(m, n))
    return _price(op, a, batch * (qr_flops(m, n) + formed))


def _householder(op: Op) -> Cost:
    a, batch, m, n = _matrix(op, "input")
    return _price(op, a, batch * reflection_flops(m, n, operand(op, "tau").shape[-1]))


def _apply_reflections(op: Op) -> Cost:
    """Q times a matrix, from the left or the right."""
    c, batch, m, n = _matrix(op, "input3")
    k = operand(op, "input2").shape[-1]
    saved = 2 * (n if flag(op, "left", default=True) else m) * k**2
    return _price(op, c, batch * (4 * m * n * k - saved))


def _cube(share: int, of: int = 1) -> Callable[[int, int], int]:
    return lambda _, n: share * n**3 // of


OPS: dict[str, Formula] = {
    "lu": partial(_factor, count=lu_flops),
    "determinant": partial(_factor, count=lambda _, n: lu_flops(n, n) + n),
    "cholesky": partial(_factor, count=_cube(1, 3)),
    "ldl": partial(_factor, count=_cube(1, 3)),
    "inverse": partial(_factor, count=_cube(2)),
    "cholesky_inverse": partial(_factor, count=_cube(2, 3)),
    "qr_reflections": partial(_factor, count=qr_flops),
    "qr": _qr,
    "householder_product": _householder,
    "apply_reflections": _apply_reflections,
    "solve": partial(_solve, matrix="A", per_column=2, factored=False),
    "solve_lu": partial(_solve, matrix="LU", per_column=2),
    "solve_ldl": partial(_solve, matrix="LD", per_column=2),
    "solve_cholesky": partial(_solve, matrix="input2", per_column=2),
    "solve_triangular": partial(_solve, matrix="self", per_column=1),
    "triangular_solve": partial(_solve, matrix="A", per_column=1),
}
