"""Check every access of an interpreted kernel: it must fall inside a tensor that was passed to it.

No address may be stored by two programs, nor stored by one and loaded by another: on a GPU they run
at the same time. Atomics are exempt from that, not from the bounds. What a program did before an
atomic that releases is known to those that acquire at the same address later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from triton._C.libtriton import ir
from triton.runtime import interpreter

_BUILDER = interpreter.InterpreterBuilder
_init_args = interpreter.GridExecutor._init_args_hst
_load, _store = _BUILDER.create_masked_load, _BUILDER.create_masked_store
_rmw = _BUILDER.create_atomic_rmw
_NOBODY, _SEVERAL = -1, -2
_SEM = ir.MEM_SEMANTIC


class KernelMemoryError(AssertionError):
    """A kernel reads or writes where it must not."""


@dataclass
class _Range:
    """The bytes of one tensor argument, and which program stored and loaded each."""

    start: int
    end: int
    label: str
    stored_by: np.ndarray
    loaded_by: np.ndarray


@dataclass
class _Order:
    """What happened before what. A program is a new writer after each of its atomics.

    Attributes:
        program: Of each writer.
        now: The writer that each program is.
        known: Writers whose accesses each program may rely on.
        released: Those that an address hands on.
    """

    program: list[int] = field(default_factory=list)
    now: dict[int, int] = field(default_factory=dict)
    known: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    released: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def writer(self, program: int) -> int:
        """Who a program is now."""
        if program not in self.now:
            self.begin(program)
        return self.now[program]

    def begin(self, program: int) -> None:
        """Make a program a new writer, which knows its former selves."""
        self.now[program] = len(self.program)
        self.program.append(program)
        self.known[program].add(self.now[program])

    def meet(self, program: int, addresses: np.ndarray, sem: Any) -> None:
        """An atomic at these addresses."""
        self.writer(program)
        for address in addresses.tolist():
            if sem in (_SEM.ACQUIRE, _SEM.ACQUIRE_RELEASE):
                self.known[program] |= self.released[address]
            if sem in (_SEM.RELEASE, _SEM.ACQUIRE_RELEASE):
                self.released[address] |= self.known[program]
        self.begin(program)

    def strangers(self, program: int, by: np.ndarray) -> np.ndarray:
        """Where somebody wrote whom the program knows nothing of."""
        other = (by != _NOBODY) & (by != self.writer(program))
        if other.any():
            other &= ~np.isin(by, list(self.known[program]))
        return other


_order = _Order()
_ranges: list[_Range] = []
_kernel = "?"


def _tensors(argument: Any) -> Iterator[Any]:
    if isinstance(argument, tuple):
        for part in argument:
            yield from _tensors(part)
    elif hasattr(argument, "base") and hasattr(argument, "block_shape"):
        yield argument.base
    elif hasattr(argument, "data_ptr"):
        yield argument


def _range_of(name: str, t: Any) -> _Range:
    start = t.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    n_bytes = (last + 1) * t.element_size()
    owners = [np.full(n_bytes, _NOBODY, np.int32) for _ in range(2)]
    return _Range(start, start + n_bytes, f"{name}{list(t.shape)}", *owners)


def _init_args_hst(self: Any, args: Any, kwargs: Any) -> Any:
    global _kernel, _order
    host_args, host_kwargs = _init_args(self, args, kwargs)
    named = [*zip(self.arg_names, host_args, strict=False), *host_kwargs.items()]
    _ranges[:] = [
        _range_of(name, tensor)
        for name, argument in named
        for tensor in map(interpreter._unwrap_tensor, _tensors(argument))
        if tensor.numel()
    ]
    _kernel = getattr(self.fn, "__name__", "?")
    _order = _Order()
    return host_args, host_kwargs


def _program() -> tuple[int, tuple[int, ...]]:
    builder = interpreter.interpreter_builder
    x, y, z = builder.grid_idx
    return (x * builder.grid_dim[1] + y) * builder.grid_dim[2] + z, builder.grid_idx


def _check_owner(kind: str, found: _Range, offsets: np.ndarray, size: int) -> None:
    program, index = _program()
    writer = _order.writer(program)
    by = found.stored_by[offsets]
    other = _order.strangers(program, by)
    if other.any():
        raise KernelMemoryError(
            f"{_kernel}: program {index} {kind}s {found.label} at byte {int(offsets[other][0])}, "
            f"which program number {_order.program[by[other][0]]} stored: a race"
        )
    by = found.loaded_by[offsets]
    if kind == "load":
        alone = (by == _NOBODY) | (by == writer)
        found.loaded_by[offsets] = np.where(alone, writer, _SEVERAL)
        return
    other = _order.strangers(program, by)
    if other.any():
        raise KernelMemoryError(
            f"{_kernel}: program {index} stores {found.label} at byte {int(offsets[other][0])}, "
            "which another program loaded: a race"
        )
    for byte in range(size):
        found.stored_by[offsets + byte] = writer


def _check(kind: str, ptrs: Any, mask: Any, atomic: bool = False, sem: Any = None) -> None:
    size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
    active = np.asarray(mask.data, bool)
    addresses = np.broadcast_to(np.asarray(ptrs.data).astype(np.uint64), active.shape)
    addresses = addresses[active].astype(np.int64)
    left = np.ones(addresses.shape, bool)
    if atomic:
        _order.meet(_program()[0], addresses, sem)
    for found in _ranges:
        inside = left & (addresses >= found.start) & (addresses + size <= found.end)
        if inside.any() and not atomic:
            _check_owner(kind, found, addresses[inside] - found.start, size)
        left &= ~inside
    if _ranges and left.any():
        raise KernelMemoryError(_outside(kind, addresses, left, size))


def _outside(kind: str, addresses: np.ndarray, left: np.ndarray, size: int) -> str:
    first = int(addresses[left][0])
    near = min(_ranges, key=lambda r: min(abs(first - r.start), abs(first - r.end)))
    if first >= near.start:
        where = f"{first - near.end + size} bytes past the end"
    else:
        where = f"{near.start - first} bytes before the start"
    return (
        f"{_kernel}: program {_program()[1]}: {kind} of {int(left.sum())} of {addresses.size} "
        f"active lanes outside every tensor argument; the first is {where} of {near.label}"
    )


def _masked_load(self: Any, ptrs: Any, mask: Any, *rest: Any, **kwargs: Any) -> Any:
    _check("load", ptrs, mask)
    return _load(self, ptrs, mask, *rest, **kwargs)


def _masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **kwargs: Any) -> Any:
    _check("store", ptrs, mask)
    return _store(self, ptrs, value, mask, *rest, **kwargs)


def _atomic_rmw(self: Any, op: Any, ptrs: Any, value: Any, mask: Any, sem: Any, *rest: Any) -> Any:
    _check("atomic", ptrs, mask, atomic=True, sem=sem)
    return _rmw(self, op, ptrs, value, mask, sem, *rest)


def install() -> None:
    """Guard every kernel that the interpreter runs from now on."""
    interpreter.GridExecutor._init_args_hst = _init_args_hst
    _BUILDER.create_masked_load = _masked_load
    _BUILDER.create_masked_store = _masked_store
    _BUILDER.create_atomic_rmw = _atomic_rmw
