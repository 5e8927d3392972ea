"""Matrix products: a multiply-add is 2 FLOP, a complex one 8.

The bias or the accumulated matrix of ``addmm`` and its kind is vector work: an addition an element,
a product more for each of ``alpha`` and ``beta`` that is not 1. With ``beta = 0`` it is not read.
Products of a dtype that no matrix unit takes (int64) are vector work. Two values of float4 share an
element, so the inner dimension is twice what the shape says.
"""

from __future__ import annotations

from math import prod

from rooftile.cost.formulas.arithmetic import addition, multiply_add, product
from rooftile.cost.formulas.operands import (
    Formula,
    axis,
    broadcast,
    cost,
    flag,
    integer_list,
    mask,
    matrix_math,
    number,
    operand,
    ranked,
    reads_without,
    rows_of,
)
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor
from rooftile.spec.dtypes import dtype

# cuBLASLt's epilogues: GELU in its tanh form, ReLU.
_GELU_FLOPS, _RELU_FLOPS = 9, 1
# Of one place of a product of three: two products and a sum into the result.
_UNROLLED_KERNELS = 3


def matmul_flops(m: int, n: int, k: int, batch: int = 1) -> int:
    """FLOP of ``batch`` products of an m x k and a k x n matrix."""
    return 2 * batch * m * n * k


def matmul_forward(
    m: int, n: int, k: int, itemsize: int, *, out_itemsize: int = 0, batch: int = 1, math: str = ""
) -> Cost:
    """``batch`` products of an m x k and a k x n matrix, each of A, B and C moved once.

    Args:
        m: Rows of A and C.
        n: Columns of B and C.
        k: Columns of A, rows of B.
        itemsize: Bytes of an element of A and B.
        out_itemsize: Bytes of an element of C; ``itemsize`` where 0.
        batch: Products.
        math: Key of the matrix roof.
    """
    flops = matmul_flops(m, n, k, batch)
    return Cost(
        matrix_flops=flops,
        dense_matrix_flops=flops,
        read_bytes=batch * (m * k + k * n) * itemsize,
        write_bytes=batch * m * n * (out_itemsize or itemsize),
        math=math,
        formula="matmul.matmul_forward",
    )


def grouped_matrices(groups: int, rows: int) -> int:
    """Weight matrices that a grouped product reads at most: a group without a row reads none."""
    return min(groups, rows)


def _inner(tensor: Tensor, dim: int) -> int:
    return tensor.shape[dim] * dtype(tensor.dtype).values


def _product(op: Op, name: str, out: int, a: Tensor, k: int, vector: int = 0) -> Cost:
    """``out`` elements, each an inner product of length k of a's dtype."""
    flops = out * k * multiply_add(a)
    math = matrix_math(op, a)
    reads = reads_without(op, "self") if number(op, "beta", 1) == 0 else None
    return cost(op, f"matmul.{name}", matrix=flops, vector=vector, math=math, reads=reads)


def _epilogue(op: Op, out: int, a: Tensor) -> int:
    """FLOP of ``beta * self + alpha * product`` beyond the product, in a's dtype."""
    alpha, beta = number(op, "alpha", 1), number(op, "beta", 1)
    factors = (alpha != 1) + (beta not in (0, 1))
    return out * (factors * product(a) + (beta != 0) * addition(a))


def _mm(op: Op) -> Cost:
    a, b = ranked(op, 2, "self"), ranked(op, 2, "mat2")
    return _product(op, op.name, a.shape[0] * b.shape[1], a, _inner(a, 1))


def _scaled_mm(op: Op) -> Cost:
    a, b = ranked(op, 2, "self"), ranked(op, 2, "mat2")
    out = a.shape[0] * b.shape[1]
    vector = out * (1 + (op.operand("bias") is not None))  # the scales' product on each element
    return _product(op, "_scaled_mm", out, a, _inner(a, 1), vector)


def _addmm(op: Op) -> Cost:
    a, b = ranked(op, 2, "mat1"), ranked(op, 2, "mat2")
    out = a.shape[0] * b.shape[1]
    return _product(op, "addmm", out, a, _inner(a, 1), _epilogue(op, out, a))


def _addmm_activation(op: Op) -> Cost:
    a, b = ranked(op, 2, "mat1"), ranked(op, 2, "mat2")
    out = a.shape[0] * b.shape[1]
    activation = _GELU_FLOPS if flag(op, "use_gelu") else _RELU_FLOPS
    vector = _epilogue(op, out, a) + activation * out
    return _product(op, "addmm_activation", out, a, _inner(a, 1), vector)


def _bmm(op: Op) -> Cost:
    a, b = ranked(op, 3, "self"), ranked(op, 3, "mat2")
    return _product(op, "bmm", a.shape[0] * a.shape[1] * b.shape[2], a, _inner(a, 2))


def _baddbmm(op: Op) -> Cost:
    a, b = ranked(op, 3, "batch1"), ranked(op, 3, "batch2")
    out = a.shape[0] * a.shape[1] * b.shape[2]
    return _product(op, "baddbmm", out, a, _inner(a, 2), _epilogue(op, out, a))


def _addbmm(op: Op) -> Cost:
    """The batch's products are summed: one longer inner product."""
    a, b = ranked(op, 3, "batch1"), ranked(op, 3, "batch2")
    out = a.shape[1] * b.shape[2]
    return _product(op, "addbmm", out, a, a.shape[0] * _inner(a, 2), _epilogue(op, out, a))


def _mv(op: Op) -> Cost:
    a = ranked(op, 2, "self")
    return _product(op, "mv", a.shape[0], a, a.shape[1])


def _addmv(op: Op) -> Cost:
    a = ranked(op, 2, "mat")
    return _product(op, "addmv", a.shape[0], a, a.shape[1], _epilogue(op, a.shape[0], a))


def _dot(op: Op) -> Cost:
    a = ranked(op, 1, "self")
    return _product(op, "dot", 1, a, a.shape[0])


def _outer(op: Op) -> Cost:
    """One multiply an element: nothing for a matrix unit to add up."""
    a, b = ranked(op, 1, "self"), ranked(op, 1, "vec2")
    return cost(op, "matmul.outer", vector=a.shape[0] * b.shape[0] * product(a))


def _addr(op: Op) -> Cost:
    a, b = ranked(op, 1, "vec1"), ranked(op, 1, "vec2")
    out = a.shape[0] * b.shape[0]
    reads = reads_without(op, "self") if number(op, "beta", 1) == 0 else None
    vector = out * product(a) + _epilogue(op, out, a)
    return cost(op, "matmul.addr", vector=vector, reads=reads)


def _matmul(op: Op) -> Cost:
    """Vectors, matrices and batches that broadcast, as ``torch.matmul``."""
    a, b = operand(op, "self"), operand(op, "other")
    if not a.shape or not b.shape:
        raise InputError(f"{op.aten}: operands must have dimensions, got {a.shape} and {b.shape}")
    m = a.shape[-2] if len(a.shape) > 1 else 1
    n = b.shape[-1] if len(b.shape) > 1 else 1
    batch = prod(broadcast((a.shape[:-2], b.shape[:-2])))
    return _product(op, "matmul", batch * m * n, a, _inner(a, -1))


def _linear(op: Op) -> Cost:
    x, weight = operand(op, "input", "self"), operand(op, "weight")
    if not x.shape or not weight.shape:
        raise InputError(f"{op.aten}: operands must have dimensions, got {x.shape}, {weight.shape}")
    out = rows_of(x) * rows_of(weight)
    vector = out * addition(x) if op.operand("bias") is not None else 0
    return _product(op, "linear", out, x, _inner(weight, -1), vector)


def _linear_backward(op: Op) -> Cost:
    """Gradients of the input and of the weight: a product each; of the bias: a sum."""
    x, dy, weight = operand(op, "self"), operand(op, "grad_output"), ranked(op, 2, "weight")
    wanted = mask(op, "output_mask", 3)
    products = rows_of(x) * weight.numel * (wanted[0] + wanted[1])
    # without rows the gradients are zeros, whatever stands in the weight
    reads = [dy] + [t for t, w in ((weight, wanted[0] and x.numel > 0), (x, wanted[1])) if w]
    vector = rows_of(x) * weight.shape[0] * wanted[2] * addition(x)
    math = matrix_math(op, x)
    matrix = products * multiply_add(x)
    return cost(op, "matmul.linear_backward", matrix=matrix, vector=vector, math=math, reads=reads)


def _expanded(op: Op, role: str, number: int) -> tuple[int, ...]:
    """A factor's shape, a 1 at each dimension that another factor has alone."""
    shape = list(operand(op, role).shape)
    for dim in sorted(integer_list(op, f"expand{number}")):
        shape.insert(dim, 1)
    return tuple(shape)


def _trilinear(op: Op) -> Cost:
    """A product of three, summed over some dimensions: two products, for each place unrolled.

    The first sums over what the third factor has not; the second over the rest.
    """
    shapes = [_expanded(op, f"i{i}", i) for i in (1, 2, 3)]
    summed = integer_list(op, "sumdim")
    pair, whole = broadcast(shapes[:2]), broadcast(shapes)
    early = [d for d in summed if d < len(shapes[2]) and shapes[2][d] == 1]
    second = prod(n for d, n in enumerate(whole) if d not in early)
    unrolled = whole[axis(op, "unroll_dim", len(whole))] if "unroll_dim" in op.attrs else 1
    x = operand(op, "i1")
    return cost(
        op,
        "matmul.trilinear",
        matrix=(prod(pair) + second) * multiply_add(x),
        math=matrix_math(op, x),
        kernels=max(unrolled, 1) * _UNROLLED_KERNELS,
    )


def _weight_only_mm(op: Op) -> Cost:
    """Activations times a packed int8 or int4 weight: scaled to the activations' dtype first."""
    x, weight = ranked(op, 2, "self"), operand(op, "mat2")
    out = op.writes[0]
    k, n = x.shape[1], out.shape[1]
    per_weight = 2 if "int4" in op.name else 1  # scale and zero point, or scale alone
    flops = 2 * x.shape[0] * n * k
    vector = per_weight * n * k
    if not weight.numel:
        raise InputError(f"{op.aten}: mat2 must hold weights, got shape {weight.shape}")
    return cost(op, f"matmul.{op.name}", matrix=flops, vector=vector, math=matrix_math(op, x))


OPS: dict[str, Formula] = {
    "mm": _mm,
    "bmm": _bmm,
    "addmm": _addmm,
    "addmm_activation": _addmm_activation,
    "baddbmm": _baddbmm,
    "addbmm": _addbmm,
    "mv": _mv,
    "addmv": _addmv,
    "dot": _dot,
    "outer": _outer,
    "addr": _addr,
    "matmul": _matmul,
    "linear": _linear,
    "linear_backward": _linear_backward,
    "int_mm": _mm,
    "scaled_mm": _scaled_mm,
    "trilinear": _trilinear,
    "weight_int8pack_mm": _weight_only_mm,
    "weight_int4pack_mm": _weight_only_mm,
}
