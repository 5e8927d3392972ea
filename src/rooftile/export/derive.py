"""From an op's recorded launches to what a manifest says of its kernel: formulas, roles, limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooftile.compile.build import Build
from rooftile.compile.kernel import DIVISIBLE, Argument
from rooftile.compile.launch import Launch
from rooftile.compile.targets import Target
from rooftile.errors import InputError
from rooftile.export.formula import divisors_in, evaluate, fit
from rooftile.export.ops import DTYPES, OpSpec, Tuned
from rooftile.export.probe import Prober
from rooftile.export.trace import Traced, declared_constants, same_kernel
from rooftile.records.manifest import Form, Role, Size, TensorSpec
from rooftile.records.resources import Constant


@dataclass(frozen=True)
class Visible:
    """A parameter that the kernel's source names.

    Attributes:
        name: As there.
        argument: Its type and divisibility.
        role: What it means.
        tensor: For the address of one.
        formula: For a whole number.
        default: For a scalar.
    """

    name: str
    argument: Argument
    role: Role
    tensor: str = ""
    formula: str = ""
    default: float | None = None


@dataclass(frozen=True)
class Derived:
    """A kernel to be exported, and how it is launched.

    Attributes:
        op: What it computes.
        dtype: Of its tensors; "" for a user's own.
        form: What it takes for granted.
        symbol: Its name.
        build: What is compiled.
        parameters: In order.
        sizes: What the formulas are over.
        tensors: What the pointers mean.
        grid: Three formulas, or none.
    """

    op: str
    dtype: str
    form: Form
    symbol: str
    build: Build
    parameters: tuple[Visible, ...]
    sizes: tuple[Size, ...]
    tensors: tuple[TensorSpec, ...]
    grid: tuple[str, ...]


def derive(
    name: str, spec: OpSpec, dtype: str, tuned: int, target: Target, form: Form,
    options: dict[str, Constant], planned: Target | None = None,
) -> Derived:  # fmt: skip
    """The kernel that an op launches for one value of its tuned size.

    Args:
        name: Of the op.
        spec: The op.
        dtype: Of every tensor.
        tuned: Value of the size that decides about the kernel.
        target: What is compiled for.
        form: What the kernel may take for granted.
        options: Compiler options besides the op's own.
        planned: Whose kernel the op chooses; None: that of ``target``.

    Raises:
        InputError: The launch follows its sizes by no formula.
    """
    prober = Prober(name, spec, dtype, planned or target, form)
    step = _step(spec.tuned, tuned, form)
    probes = prober.around(tuned, step)
    launch = probes[0].launch
    parameters = _parameters(spec, name, probes, form)
    grid = _grid(spec, name, probes)

    def holds(value: int) -> bool:
        return _holds(launch, parameters, grid, prober.at(value))

    marks = (
        DTYPES[dtype][1],
        f"{spec.tuned.letter}{tuned}",
        *(() if form == "aligned" else (form,)),
    )
    build = Build(
        kernel=launch.kernel,
        target=target,
        arguments={p.name: p.argument for p in parameters},
        constants=launch.call.constants,
        options={**launch.call.options, **options},
    )
    unit = prober.unit
    sizes = (
        _limits(spec.tuned, tuned, step, holds)
        if size == spec.tuned.size
        else Size(size, unit[size], None, unit[size])
        for size in spec.sizes()
    )
    return Derived(
        op=name,
        dtype=dtype,
        form=form,
        symbol="_".join((spec.symbol, *marks, target.name.replace("_", ""))),
        build=build,
        parameters=parameters,
        sizes=tuple(sizes),
        tensors=_tensors(spec, dtype),
        grid=grid,
    )


def _step(rule: Tuned, tuned: int, form: Form) -> int:
    """By how much the tuned size may change: the aligned form's vectors must stay whole."""
    if form == "any":
        return rule.step
    whole = DIVISIBLE * rule.step  # halves of a head are divisible too, where heads go by twos
    return whole if tuned % whole == 0 else 0


def _tensors(spec: OpSpec, dtype: str) -> tuple[TensorSpec, ...]:
    read = [
        TensorSpec(name, "input", spec.dtype_of(name, dtype), shape, spec.below.get(name, ""))
        for name, shape in spec.inputs.items()
    ]
    written = [
        TensorSpec(name, "output", spec.dtype_of(name, dtype), shape)
        for name, shape in spec.outputs.items()
    ]
    return (*read, *written)


def _parameters(
    spec: OpSpec, name: str, probes: Sequence[Traced], form: Form
) -> tuple[Visible, ...]:
    """Every argument that is left at run time."""
    launch = probes[0].launch
    order = [p.name for p in launch.kernel.params if p.name in launch.call.arguments]
    for probe in probes:
        if set(probe.launch.call.arguments) != set(order):
            raise InputError(
                f"op {name!r} cannot be exported: which arguments of {launch.kernel.__name__} are"
                " compiled in depends on the sizes"
            )
    return tuple(_visible(spec, name, argument, probes, form) for argument in order)


def _visible(spec: OpSpec, op: str, name: str, probes: Sequence[Traced], form: Form) -> Visible:
    """One argument: its meaning, and the divisibility that all probes have."""
    arguments = [probe.launch.call.arguments[name] for probe in probes]
    values = [probe.launch.values[name] for probe in probes]
    divisible = form != "any" and all(argument.divisible for argument in arguments)
    argument = replace(arguments[0], divisible=divisible)
    if argument.type.startswith("*"):
        tensors = {
            probe.tensors.get(value.data_ptr(), "")
            for probe, value in zip(probes, values, strict=True)
        }
        if len(tensors) != 1 or "" in tensors:
            raise _no_formula(op, name, "is the address of no tensor that the op is given or gives")
        return Visible(name, argument, "tensor", tensor=tensors.pop())
    if argument.type.startswith("fp"):
        if len(set(values)) != 1:
            raise _no_formula(op, name, "changes with the sizes")
        role: Role = "fixed" if name in spec.fixed else "scalar"
        return Visible(name, argument, role, default=float(values[0]))
    formula = _fitted(spec, probes, [int(value) for value in values])
    if formula is None:
        raise _no_formula(op, name, f"is {values} for sizes {[dict(p.sizes) for p in probes]}")
    role = _role(name, formula, probes[0], form == "any" or divisible)
    return Visible(name, argument, role, formula=formula)


def _role(name: str, formula: str, probe: Traced, free: bool) -> Role:
    """What a whole number is; a stride that is not free may hide vectors that it keeps whole."""
    if formula.removeprefix("-").isdigit():
        return "fixed"
    if name.startswith("stride"):
        return "stride" if free else "fixed"
    return "size" if formula in probe.sizes else "fixed"


def _grid(spec: OpSpec, name: str, probes: Sequence[Traced]) -> tuple[str, ...]:
    found = []
    for axis in range(3):
        extents = [probe.launch.grid[axis] for probe in probes]
        formula = _fitted(spec, probes, extents)
        if formula is None:
            raise _no_formula(
                name, f"grid {'xyz'[axis]}", f"is {extents} for {[dict(p.sizes) for p in probes]}"
            )
        found.append(formula)
    return tuple(found)


def _fitted(spec: OpSpec, probes: Sequence[Traced], values: Sequence[int]) -> str | None:
    """A formula over the sizes, which may divide as shapes do, or by the kernel's constants."""
    constants = declared_constants(probes[0].launch).values()
    divisors = [c for c in constants if isinstance(c, int) and not isinstance(c, bool)]
    shapes = [*spec.inputs.values(), *spec.outputs.values()]
    divisors += [number for shape in shapes for extent in shape for number in divisors_in(extent)]
    return fit(values, [probe.sizes for probe in probes], divisors)


def _no_formula(op: str, what: str, why: str) -> InputError:
    return InputError(f"op {op!r} cannot be exported: {what} {why}")


def _holds(
    launch: Launch, parameters: Sequence[Visible], grid: Sequence[str], probe: Traced
) -> bool:
    """Whether at these sizes the op launches this very kernel, by these formulas."""
    if not same_kernel(launch, probe.launch):
        return False
    folded: dict[str, Any] = dict(launch.call.constants)
    given = {name: probe.launch.values.get(name, value) for name, value in folded.items()}
    if any(given[name] != value for name, value in folded.items()):
        return False
    for parameter in parameters:
        value = probe.launch.values[parameter.name]
        if parameter.formula and int(value) != evaluate(parameter.formula, probe.sizes):
            return False
        argument = probe.launch.call.arguments.get(parameter.name)
        divisible = argument.divisible if argument else not parameter.argument.divisible
        if parameter.argument.divisible and not divisible:
            return False
    extents = tuple(evaluate(formula, probe.sizes) for formula in grid)
    return extents == probe.launch.grid


def _limits(rule: Tuned, tuned: int, step: int, holds: Callable[[int], bool]) -> Size:
    """The range around a tuned size in which the op launches the same kernel."""
    if step == 0:
        return Size(rule.size, tuned, tuned)
    below = _last(lambda i: tuned - i * step > 0 and holds(tuned - i * step), tuned // step)
    above = _last(lambda i: holds(tuned + i * step), (rule.farthest - tuned) // step)
    most = tuned + above * step
    least = tuned - below * step
    if least == most:
        return Size(rule.size, tuned, tuned)
    return Size(rule.size, least, None if most + step > rule.farthest else most, step)


def _last(holds: Callable[[int], bool], end: int) -> int:
    """The largest i up to the end for which it holds; it holds for 0, and once not, no more."""
    low, high = 0, end + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
