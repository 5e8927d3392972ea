"""How a user's own code calls a kernel: recorded, not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rooftile.compile.kernel import Argument, Call
from rooftile.compile.targets import Target
from rooftile.errors import InputError, TargetError


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch that was recorded.

    Attributes:
        kernel: The JIT function.
        grid: Blocks in x, y and z.
        values: What every argument was given, constants included.
        call: What Triton makes of them.
    """

    kernel: Any
    grid: tuple[int, int, int]
    values: Mapping[str, Any]
    call: Call


class _Recorded(BaseException):
    """Ends the user's function at the launch that was looked for."""


def record_call(function: Callable[[], Any], kernel: Any, target: Target) -> Call:
    """Run a function up to its first launch of a kernel, and say how it was called.

    Tensors may live on the CPU or the meta device: nothing is launched. Their types, the divisors
    of numbers and addresses follow the installed Triton's own rules.

    Args:
        function: Takes nothing and launches the kernel.
        kernel: The JIT function.
        target: What is compiled for.

    Raises:
        TargetError: The function fails before, or never launches the kernel.
        InputError: The launch does not fit the kernel.
    """
    seen: list[Call] = []

    def record(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        if self is kernel:
            seen.append(replace(_call(kernel, args, kwargs, target), grid=grid))
            raise _Recorded

    with _instead_of_launches(record):
        try:
            function()
        except _Recorded:
            return seen[0]
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise TargetError(
                f"{function.__name__} fails: {type(error).__name__}: {error}"
            ) from error
    raise TargetError(f"{function.__name__} does not launch {kernel.__name__}")


def record_launches(function: Callable[[], Any], target: Target) -> tuple[Any, list[Launch]]:
    """Run a function to its end and record its launches instead of doing them.

    Args:
        function: Takes nothing.
        target: What is compiled for.

    Returns:
        What the function gives, and its launches in order.
    """
    seen: list[Launch] = []

    def record(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        call = _call(self, args, kwargs, target)
        seen.append(Launch(self, extents(grid, call.values), call.values, call))

    with _instead_of_launches(record):
        result = function()
    return result, seen


def extents(grid: Any, values: Mapping[str, Any]) -> tuple[int, int, int]:
    """Blocks in x, y and z of a launch.

    Args:
        grid: Extents, or a function of the values.
        values: What every argument was given, constants included.

    Raises:
        InputError: It is no grid, or its function fails.
    """
    try:
        found = tuple(int(extent) for extent in (grid(values) if callable(grid) else grid))
    except Exception as error:
        raise InputError(f"grid fails: {type(error).__name__}: {error}") from error
    if not 1 <= len(found) <= 3:
        raise InputError(f"grid must have 1 to 3 extents, got {found}")
    x, y, z = (*found, 1, 1)[:3]
    return x, y, z


@contextmanager
def _instead_of_launches(record: Callable[..., None]) -> Iterator[None]:
    """Every launch in the block goes to ``record``; an autotuner takes its first configuration."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.fn.run(*args, **{**kwargs, **self.configs[0].all_kwargs()})

    launch, tune = JITFunction.run, Autotuner.run
    JITFunction.run, Autotuner.run = record, first
    try:
        yield
    finally:
        JITFunction.run, Autotuner.run = launch, tune


def _call(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: Target) -> Call:
    """A launch's arguments by what Triton makes of them."""
    names = [param.name for param in kernel.params]
    values = {**dict(zip(names, args, strict=False)), **kwargs}
    missing = [
        param.name for param in kernel.params if param.name not in values and not param.has_default
    ]
    if missing or len(args) > len(names):
        raise InputError(
            f"call of {kernel.__name__} must give {', '.join(names)}; it"
            f" {'lacks ' + ', '.join(missing) if missing else 'gives more'}"
        )
    arguments: dict[str, Argument] = {}
    constants: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for param in kernel.params:
        value = values.pop(param.name, param.default if param.has_default else None)
        given[param.name] = value
        kind, key = _specialised(param, value, target)
        if kind == "constexpr":
            constants[param.name] = value
        else:
            arguments[param.name] = _argument(kind, key, value)
    return Call(arguments, constants, values, values=given)


def _argument(kind: Any, key: Any, value: Any) -> Argument:
    """What Triton makes of a value; of a tuple, of each part."""
    if isinstance(kind, tuple):
        parts = zip(kind, key, value, strict=True)
        return Argument("tuple", parts=tuple(_argument(*part) for part in parts))
    return Argument(kind, "D" in str(key or ""), value=value if kind == "constexpr" else None)


def _specialised(param: Any, value: Any, target: Target) -> tuple[Any, Any]:
    """Type and specialisation of one value."""
    from triton._C.libtriton import native_specialize_impl
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    if param.is_constexpr:
        return "constexpr", None
    backend = make_backend(GPUTarget(target.backend, target.arch, target.warp_size))
    kind, key = native_specialize_impl(
        type(backend),
        value,
        param.is_const,
        not param.do_not_specialize,
        not param.do_not_specialize_on_alignment,
    )
    return (param.annotation_type or kind) if kind != "constexpr" else kind, key
