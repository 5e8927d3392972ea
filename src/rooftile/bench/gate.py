"""The result is right before a time is taken: a speed-up is never reported on a red gate.

A result may be as far from float64 as twice what torch's own op of that dtype makes of the same
inputs, and one rounding (half a unit in the last place) in norm over all its elements, one whole
unit of the largest element at the worst of them. NaN never passes. Where a float32 result cancels,
each of its elements has a bound of its own instead, out of what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rooftile.bench.case import Case, Function, Inputs, Results, as_results
from rooftile.errors import GateError
from rooftile.records.measurement import Check, Direction

_TINY = torch.finfo(torch.float64).tiny
WRONG = 1e30  # error of a result that cannot be compared; JSON has no infinity


@dataclass(frozen=True, slots=True)
class Truth:
    """What is right at one shape, and how far torch's own op is from it.

    Attributes:
        inputs: The inputs in float64.
        grads: Gradients of the outputs, in float64; none in a forward.
        results: What is right; empty where the op is random and it depends on the result.
        baseline: Error of torch's own op for each result: in norm, and at the worst element.
    """

    inputs: Inputs
    grads: Results
    results: Results
    baseline: tuple[tuple[float, float], ...]


def own_inputs(inputs: Inputs, dtype: torch.dtype | None = None) -> Inputs:
    """Copies as new leaves: some libraries write into what they are given."""
    return tuple(
        t.detach()
        .to(dtype if dtype and t.is_floating_point() else t.dtype, copy=True)
        .requires_grad_(t.requires_grad)
        for t in inputs
    )


def run_forward(function: Function, inputs: Inputs, direction: Direction) -> Results:
    """The outputs, with gradients recorded unless only a forward is wanted."""
    if direction == "forward":
        with torch.no_grad():
            return as_results(function(*(t.detach() for t in inputs)))
    return as_results(function(*inputs))


def run_backward(outputs: Results, grads: Results, inputs: Inputs, *, keep: bool) -> None:
    """Gradients of all inputs that want one. They are set, never added to older ones."""
    drop_grads(inputs)
    torch.autograd.backward(outputs, grads, retain_graph=keep)


def drop_grads(inputs: Inputs) -> None:
    """Give the gradients' memory back, so that the next call's is seen."""
    for t in inputs:
        t.grad = None


def evaluate(
    function: Function, inputs: Inputs, grads: Results, direction: Direction
) -> tuple[Results, Results]:
    """Outputs, and what is checked: the outputs of a forward, else the gradients too.

    A copy of the outputs is checked, so that a backward may write into them.
    """
    outputs = run_forward(function, inputs, direction)
    if direction == "forward":
        return outputs, outputs
    both = direction == "forward_backward"
    checked = tuple(t.detach().clone() for t in outputs) if both else ()
    run_backward(outputs, fitted(grads, outputs), inputs, keep=not both)
    got = tuple(t.grad for t in inputs if t.requires_grad)
    return outputs, (*checked, *(t for t in got if t is not None))


def fitted(grads: Results, outputs: Results) -> Results:
    """Copies of the outputs' gradients in the dtypes that these outputs have."""
    return tuple(g.to(o.dtype, copy=True).view_as(o) for g, o in zip(grads, outputs, strict=True))


def output_grads(case: Case, inputs: Inputs, direction: Direction) -> Results:
    """Random gradients for the outputs, ones for a scalar; none in a forward."""
    if direction == "forward":
        return ()
    with torch.no_grad():
        outputs = as_results(case.definition(*inputs))
    return tuple(torch.randn_like(o) if o.dim() else torch.ones_like(o) for o in outputs)


def truth(case: Case, inputs: Inputs, grads: Results, direction: Direction) -> Truth:
    """Run the definition in float64, and in the dtype of the inputs to see how well torch does."""
    exact = own_inputs(inputs, torch.float64)
    exact_grads = tuple(g.double() for g in grads)
    results: Results = ()
    if case.resolve is None:
        _, results = evaluate(case.definition, exact, exact_grads, direction)
        results = tuple(t.detach() for t in results)
    plain = tuple(t.detach() for t in exact)
    bare = Truth(plain, exact_grads, results, ())
    _, own = evaluate(case.definition, own_inputs(inputs), grads, direction)
    right = _right(case, direction, own, bare)
    baseline = tuple(_errors(got, want) for got, want in zip(own, right, strict=True))
    return Truth(plain, exact_grads, results, baseline)


def poison(known: Truth, dtype: torch.dtype) -> None:
    """Fill the memory that the results will probably get with NaN, so that unwritten parts show."""
    like = known.results or known.inputs
    for block in [torch.full(t.shape, float("nan"), dtype=dtype, device=t.device) for t in like]:
        del block


def check(case: Case, direction: Direction, got: Results, known: Truth) -> Check:
    """Whether a result is right."""
    if len(got) != len(known.baseline):
        detail = f"must give {len(known.baseline)} results, got {len(got)}"
        return Check(False, WRONG, 0.0, detail)
    try:
        right = _right(case, direction, got, known)
    except GateError as error:
        return Check(False, WRONG, 0.0, str(error))
    bounds: Sequence[Tensor | None] = [None] * len(got)
    if case.rounding is not None and got[0].dtype == torch.float32:
        bounds = case.rounding(direction, known.inputs, known.grads)
    worst, allowed = 0.0, 0.0
    results = zip(got, right, known.baseline, bounds, strict=True)
    for i, (one, want, own, bound) in enumerate(results):
        if one.shape != want.shape:
            detail = f"result {i} must have shape {list(want.shape)}, got {list(one.shape)}"
            return Check(False, WRONG, 0.0, detail)
        unit = torch.finfo(one.dtype).eps
        norm, peak = _errors(one, want)
        most_norm, most_peak = 2 * own[0] + unit / 2, 2 * own[1] + unit
        if bound is not None:
            peak, most_peak = float(((one - want).abs() / bound.clamp_min(_TINY)).max()), 1.0
        if not (norm <= most_norm and peak <= most_peak):
            detail = (
                f"result {i}: error {norm:.3g} of {most_norm:.3g} allowed in norm, "
                f"{peak:.3g} of {most_peak:.3g} at the worst element"
            )
            return Check(False, _finite(norm), most_norm, detail)
        if norm >= worst:
            worst, allowed = norm, most_norm
    return Check(True, worst, allowed)


def _right(case: Case, direction: Direction, got: Results, known: Truth) -> Results:
    """What is right, given the result where the op is random."""
    if case.resolve is None:
        return known.results
    return case.resolve(direction, got, known.inputs, known.grads)


def _errors(got: Tensor, want: Tensor) -> tuple[float, float]:
    """Norm of the difference over the norm, largest difference over the largest element."""
    if not want.numel():
        return 0.0, 0.0
    difference = got.detach().to(torch.float64, copy=True).sub_(want)
    norm, peak = want.norm(), want.abs().max()
    return (
        float(difference.norm() / norm.clamp_min(_TINY)),
        float(difference.abs_().max() / peak.clamp_min(_TINY)),
    )


def _finite(value: float) -> float:
    """A number that JSON can hold; NaN is as wrong as can be."""
    return value if value < WRONG else WRONG
