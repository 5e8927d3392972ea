"""What a formula asks of an op: its operands by role, its attributes by type, its traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from math import prod

from rooftile.cost.regions import region_bytes
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Attr, Op
from rooftile.records.tensor import Tensor
from rooftile.spec.dtypes import math_key, vector_key

Formula = Callable[[Op], Cost]

# Thousands of ops ask for a dozen dtypes.
_math_key = lru_cache(maxsize=None)(math_key)
_vector_key = lru_cache(maxsize=None)(vector_key)


def operand(op: Op, *roles: str) -> Tensor:
    """The first of the named operands that the op has.

    Raises:
        InputError: It has none of them.
    """
    for role in roles:
        found = op.operand(role)
        if found is not None:
            return found
    have = ", ".join(o.role for o in op.inputs) or "none"
    raise InputError(f"{op.aten}: operand must be {' or '.join(roles)}, got {have}")


def ranked(op: Op, rank: int, *roles: str) -> Tensor:
    """The operand, whose number of dimensions must be ``rank``; else InputError."""
    tensor = operand(op, *roles)
    if len(tensor.shape) != rank:
        raise InputError(
            f"{op.aten}: {roles[0]} must have {rank} dimensions, got shape {tensor.shape}"
        )
    return tensor


def members(op: Op, role: str) -> list[Tensor]:
    """Tensors of a list argument, in its order: the operands ``role.0``, ``role.1``, ..."""
    prefix = role + "."
    return [o.tensor for o in op.inputs if o.role.startswith(prefix)]


def some_members(op: Op, role: str) -> list[Tensor]:
    """As :func:`members`; a list without tensors is an InputError."""
    found = members(op, role)
    if not found:
        have = ", ".join(o.role for o in op.inputs) or "none"
        raise InputError(f"{op.aten}: {role} must be a list of tensors, got operands {have}")
    return found


def result(op: Op) -> Tensor:
    """The first tensor the op fills.

    Raises:
        InputError: The op fills none.
    """
    if op.outputs:
        return op.outputs[0]
    for o in op.inputs:
        if o.writes:
            return o.tensor
    raise InputError(f"{op.aten}: must fill a tensor, got no output and no argument it changes")


def in_place(op: Op) -> bool:
    """The op changes its first argument."""
    return bool(op.inputs) and op.inputs[0].writes


def flag(op: Op, name: str, default: bool = False) -> bool:
    """An attribute as true or false."""
    return bool(op.attrs.get(name, default))


def number(op: Op, name: str, default: float) -> float:
    """An attribute that is a number; else InputError."""
    value = op.attrs.get(name, default)
    if not isinstance(value, int | float):
        raise InputError(f"{op.aten}: {name} must be a number, got {value!r}")
    return value


def integers(op: Op, name: str, rank: int, default: int | None = None) -> tuple[int, ...]:
    """An attribute that is an integer per dimension; one alone stands for all.

    Without a default it must be given.

    Raises:
        InputError: It is no integer and no list of 1 or ``rank`` integers.
    """
    value: Attr = op.attrs.get(name, default)
    given = value if isinstance(value, tuple) else (value,)
    numbers = tuple(v for v in given if isinstance(v, int))
    if len(numbers) != len(given) or len(numbers) not in (1, rank):
        raise InputError(f"{op.aten}: {name} must be {rank} integers, got {value!r}")
    return numbers if len(numbers) == rank else numbers * rank


def integer_list(op: Op, name: str) -> tuple[int, ...]:
    """An attribute that is a list of integers; else InputError."""
    value = op.attrs.get(name, ())
    given = value if isinstance(value, tuple) else (value,)
    numbers = tuple(v for v in given if isinstance(v, int))
    if len(numbers) != len(given):
        raise InputError(f"{op.aten}: {name} must be a list of integers, got {value!r}")
    return numbers


def mask(op: Op, name: str, length: int) -> tuple[bool, ...]:
    """Which results are wanted; all of them where the attribute is missing."""
    value = op.attrs.get(name, (True,) * length)
    if not isinstance(value, tuple) or len(value) != length:
        raise InputError(f"{op.aten}: {name} must be {length} flags, got {value!r}")
    return tuple(bool(v) for v in value)


def axis(op: Op, name: str, rank: int) -> int:
    """An attribute that names a dimension, counted from the front; else InputError."""
    value = op.attrs.get(name)
    if not isinstance(value, int) or not -max(rank, 1) <= value < max(rank, 1):
        raise InputError(f"{op.aten}: {name} must be one of {rank} dimensions, got {value!r}")
    return value % max(rank, 1)


def reads_without(op: Op, *roles: str) -> list[Tensor]:
    """What the op reads, but for operands whose content it does not need."""
    return [o.tensor for o in op.inputs if o.reads and o.role not in roles]


def broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that several shapes broadcast to.

    Raises:
        InputError: They do not.
    """
    out: list[int] = []
    for shape in shapes:
        out = [1] * (len(shape) - len(out)) + out
        for i, n in enumerate(reversed(shape), start=1):
            if n != out[-i] and 1 not in (n, out[-i]):
                raise InputError(f"shapes must broadcast, got {n} against {out[-i]}")
            out[-i] = out[-i] if n == 1 else n
    return tuple(out)


def narrowed(tensor: Tensor, dim: int, start: int, length: int) -> Tensor:
    """The part of a tensor along one dimension."""
    shape = list(tensor.shape)
    shape[dim] = length
    offset = tensor.offset + start * tensor.stride[dim]
    return replace(tensor, shape=tuple(shape), offset=offset)


def rows_of(tensor: Tensor, trailing: int = 1) -> int:
    """Product of all dimensions but the last ones."""
    return prod(tensor.shape[: len(tensor.shape) - trailing])


def matrix_math(op: Op, tensor: Tensor) -> str:
    """Key of the matrix roof for products of such a tensor; "" where no matrix unit takes them.

    A float32 product runs as TF32 where the op says so.
    """
    key = _math_key(tensor.dtype)
    return "tf32" if key == "fp32" and op.attrs.get("tf32") else key


def vector_math(op: Op) -> str:
    """Key of the vector roof: that of doubles where a tensor of doubles takes part.

    A double without dimensions among the inputs is a number, and computes in the others' dtype.
    """
    tensors = [*op.writes, *(t for t in op.reads if t.shape)]
    return "fp64" if any(_vector_key(t.dtype) == "fp64" for t in tensors) else "fp32"


def cost(
    op: Op,
    formula: str,
    *,
    matrix: int = 0,
    dense: int | None = None,
    vector: int = 0,
    math: str = "",
    reads: Iterable[Tensor] | None = None,
    writes: Iterable[Tensor] | None = None,
    read_bytes: int | None = None,
    write_bytes: int | None = None,
    kernels: int = 1,
) -> Cost:
    """A Cost whose bytes are the distinct regions the op reads and writes, unless others are given.

    An op all of whose results are empty starts no kernel, and so reads and computes nothing.

    Args:
        op: The op.
        formula: Family and name.
        matrix: FLOP of a matrix unit. Without a roof for them (``math`` is ""), such as products of
            int64, they are vector work.
        dense: The same without the savings of a mask; ``matrix`` where None.
        vector: All other FLOP.
        math: Key of the matrix roof.
        reads: Regions read, where not all that the op's record says.
        writes: Regions written, likewise.
        read_bytes: Bytes read, where they are no regions.
        write_bytes: Bytes written, likewise.
        kernels: Launches.
    """
    if read_bytes is None:
        read_bytes = region_bytes(op.reads if reads is None else reads)
    if write_bytes is None:
        write_bytes = region_bytes(op.writes if writes is None else writes)
    if not write_bytes and op.writes:
        return Cost(kernels=0, formula=formula)
    if not math:
        matrix, dense, vector = 0, 0, vector + matrix
    return Cost(
        matrix_flops=matrix,
        vector_flops=vector,
        read_bytes=read_bytes,
        write_bytes=write_bytes,
        dense_matrix_flops=matrix if dense is None else dense,
        math=math if matrix else "",
        vector_math=vector_math(op),
        kernels=kernels,
        formula=formula,
    )
