"""What a benchmark of one op is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from rooftile.bench.rounds import describe
from rooftile.errors import InputError, TargetError
from rooftile.records.cost import Cost
from rooftile.records.measurement import Direction

Dims = Mapping[str, int]
Inputs = tuple[Tensor, ...]
Results = tuple[Tensor, ...]
Function = Callable[..., Tensor | Results]

DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "forward_backward")


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody else's implementation.

    Attributes:
        load: Imports it and returns a function of the case's inputs. ImportError: not installed.
        adapt: Changes the case's inputs, outside the timed call: a library that wants its weights
            in float32.
    """

    load: Callable[[], Function]
    adapt: Callable[[Inputs], Inputs] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One op: its inputs, who computes it, what is right, and what one call costs.

    Attributes:
        op: Name of the op.
        dims: Names of the dimensions, in the order of ``shapes``.
        inputs: ``(dims, dtype, device) -> tensors``, fresh and random, at unit scale. Those that
            require gradients get them in a backward.
        function: What is benchmarked, of those tensors.
        reference: The definition in plain PyTorch, of the same tensors. It is run in float64 as the
            truth, and in the case's dtype as the peers ``eager`` and ``compile``.
        costs: Direction to ``(dims, itemsize) -> Cost``, from ``rooftile.cost.formulas``.
        shapes: Direction to the shapes to run.
        small: A few small shapes for a check without a GPU.
        variant: Which of several forms of the op.
        peers: Implementations besides ``eager`` and ``compile``.
        resolve: For an op with random results: ``(direction, results, float64 inputs, float64
            gradients) -> what is right, given how the dice fell``. Raises GateError where they
            cannot have fallen so.
        provider: The name ``function`` has in results.
        by_parts: The reference over one part of the inputs after the other, where the whole of it
            in float64 would not fit in a GPU's memory. The truth comes from it.
        claims: Shape to what others have printed of it: arguments of ``rooftile.claim``.
        rounding: For an op whose results cancel: ``(direction, float64 inputs, float64 gradients)
            -> for each result and element, what a float32 error may be``.
    """

    op: str
    dims: tuple[str, ...]
    inputs: Callable[[Dims, torch.dtype, str], Inputs]
    function: Function
    reference: Function
    costs: Mapping[Direction, Callable[[Dims, int], Cost]]
    shapes: Mapping[Direction, Sequence[tuple[int, ...]]]
    small: Sequence[tuple[int, ...]]
    variant: str = ""
    peers: Mapping[str, Peer] = field(default_factory=dict)
    resolve: Callable[[Direction, Results, Inputs, Results], Results] | None = None
    provider: str = "rooftile"
    by_parts: Function | None = None
    claims: Mapping[tuple[int, ...], Sequence[Mapping[str, str]]] = field(default_factory=dict)
    rounding: Callable[[Direction, Inputs, Results], Results] | None = None

    def __post_init__(self) -> None:
        claimed = ("claims", tuple(self.claims))
        for name, shapes in (*self.shapes.items(), ("small", self.small), claimed):
            for shape in shapes:
                check_shape(self, shape, f"shapes of {name}")
        unknown = [*(set(self.costs) | set(self.shapes)) - set(DIRECTIONS)]
        if unknown or not self.costs:
            wanted = ", ".join(DIRECTIONS)
            raise InputError(f"costs and shapes of {self.op} must be of {wanted}, got {unknown}")

    @property
    def definition(self) -> Function:
        """What is right: the reference, by parts where it has such a form."""
        return self.by_parts or self.reference

    @property
    def label(self) -> str:
        """The op with its variant: ``"bias_gelu_dropout_residual[erf]"``."""
        return f"{self.op}[{self.variant}]" if self.variant else self.op

    def cost(self, direction: Direction, shape: Sequence[int], itemsize: int) -> Cost:
        """What one call costs at a shape.

        Raises:
            InputError: The shape does not fit the case.
            TargetError: The case's own formula raises, or gives something else.
        """
        dims = self.sizes(shape)
        try:
            found: object = self.costs[direction](dims, itemsize)
        except InputError:
            raise
        except Exception as error:
            raise TargetError(f"costs of {self.label} at {dims}: {describe(error)}") from error
        if not isinstance(found, Cost):
            got = type(found).__name__
            raise TargetError(f"costs of {self.label} must give rooftile.Cost, got {got}")
        return found

    def sizes(self, shape: Sequence[int]) -> dict[str, int]:
        """Dimension to length.

        Raises:
            InputError: The shape has another number of dimensions, or one below 1.
        """
        check_shape(self, shape, "shape")
        return dict(zip(self.dims, shape, strict=True))


def check_shape(case: Case, shape: Sequence[int], name: str) -> None:
    """Refuse a shape that does not fit the case's dimensions."""
    if len(shape) != len(case.dims) or prod(shape) < 1 or min(shape) < 1:
        wanted = " x ".join(case.dims)
        raise InputError(f"{name} of {case.op} must be {wanted}, each at least 1, got {shape}")


def as_results(value: Tensor | Sequence[Tensor]) -> Results:
    """One tensor or several, as a tuple.

    Raises:
        InputError: Something else came.
    """
    results = (value,) if isinstance(value, Tensor) else value
    if not isinstance(results, tuple | list) or not all(isinstance(t, Tensor) for t in results):
        raise InputError(f"a case must give a tensor or a tuple of them, got {kind_of(results)}")
    return tuple(results)


def kind_of(value: object) -> str:
    """The type, and of what it holds, for a message."""
    if not isinstance(value, tuple | list):
        return type(value).__name__
    return f"{type(value).__name__} of {', '.join(type(one).__name__ for one in value)}"
