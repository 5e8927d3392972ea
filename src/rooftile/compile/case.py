"""A bench case beside a kernel: how it launches the kernel, and what one call must move.

A case is known by what it has, ``sizes``, ``inputs``, ``function`` and ``costs``: the bench's room
need not be loaded for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from rooftile.errors import InputError, TargetError


def case_call(module: ModuleType, name: str, shape: Sequence[int], dtype: str) -> Callable[[], Any]:
    """A function that calls the case's own with tensors that have no memory.

    Args:
        module: The user's file.
        name: Of the case there.
        shape: One of the case's.
        dtype: As torch names it.

    Raises:
        InputError: There is no such case, shape or dtype.
        TargetError: The case's inputs cannot be made.
    """
    case, sizes = _case(module, name, shape)
    import torch

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise InputError(f"dtype must be one of torch's, such as bfloat16, got {dtype!r}")
    try:
        inputs = case.inputs(sizes, kind, "meta")
    except Exception as error:
        raise TargetError(f"inputs of {name} fail: {type(error).__name__}: {error}") from error

    def call() -> Any:
        return case.function(*inputs)

    call.__name__ = name
    return call


def case_bytes(module: ModuleType, name: str, shape: Sequence[int], dtype: str) -> int:
    """What one forward call of the case must move, by its own formula [B].

    Raises:
        InputError: There is no such case or shape, or it has no cost of a forward.
    """
    import torch

    case, sizes = _case(module, name, shape)
    cost = case.costs.get("forward")
    if cost is None:
        has = ", ".join(case.costs)
        raise InputError(f"case {name} must have a cost of a forward, it has that of {has}")
    return int(cost(sizes, getattr(torch, dtype).itemsize).bytes)


def _case(module: ModuleType, name: str, shape: Sequence[int]) -> tuple[Any, dict[str, int]]:
    """The case with the lengths of its dimensions."""
    found: Any = getattr(module, name, None)
    wanted = ("sizes", "inputs", "function", "costs")
    if not all(hasattr(found, field) for field in wanted):
        kind = "nothing" if found is None else type(found).__name__
        raise InputError(f"case must be a Case of {module.__name__}, {name} is {kind}")
    return found, found.sizes(shape)
