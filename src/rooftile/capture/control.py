"""Control flow that torch knows as ops: run as an uncompiled program runs it.

Where the values that decide are not known, of two branches the one that touches more memory counts,
and the body of a loop once; the user is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.cond import CondOp
from torch._higher_order_ops.flex_attention import FlexAttentionHOP
from torch._higher_order_ops.map import MapImpl
from torch._higher_order_ops.scan import ScanOp
from torch._higher_order_ops.while_loop import WhileLoopOp
from torch.utils._pytree import tree_map

from rooftile.capture.flex import Flex, flex_allowed
from rooftile.capture.notes import note
from rooftile.capture.recorder import Recorder
from rooftile.records.graph import Op


@contextmanager
def control_flow(recorder: Recorder) -> Iterator[None]:
    """Stand in for torch's higher-order ops while it lasts."""
    control = _Control(recorder)
    stand_ins: dict[Any, Callable[..., Any]] = {
        CondOp: control.cond,
        WhileLoopOp: control.while_loop,
        MapImpl: control.map,
        ScanOp: control.scan,
        FlexAttentionHOP: Flex(recorder),
    }
    originals = {kind: kind.__call__ for kind in stand_ins}
    try:
        for kind, stand_in in stand_ins.items():
            kind.__call__ = _without_self(stand_in)
        with flex_allowed(recorder):
            yield
    finally:
        for kind, original in originals.items():
            kind.__call__ = original


def _without_self(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: function(*args, **kwargs)


class _Control:
    """The ops, on Python functions and tensors alike."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def _holds(self, flag: Any) -> bool | None:
        """A condition's value; None where it is not known."""
        if not isinstance(flag, Tensor):
            return bool(flag)
        known = self._recorder.values.of(flag)
        with torch._C._DisableTorchDispatch():
            return None if known is None else bool(known)

    def cond(
        self,
        pred: Any,
        true_fn: Callable[..., Any],
        false_fn: Callable[..., Any],
        operands: Sequence[Any] = (),
    ) -> Any:
        """One of two branches."""
        holds = self._holds(pred)
        if holds is not None:
            return (true_fn if holds else false_fn)(*operands)
        note(
            f"torch.cond at {self._recorder.here()}: which branch runs is in the values; the one "
            "that touches more memory is counted"
        )
        if_true, ops_true = self._recorder.aside(true_fn, operands)
        if_false, ops_false = self._recorder.aside(false_fn, operands)
        heavier = _touched(ops_true) >= _touched(ops_false)
        self._recorder.ops += ops_true if heavier else ops_false
        return if_true if heavier else if_false

    def while_loop(
        self,
        cond_fn: Callable[..., Any],
        body_fn: Callable[..., Any],
        carried_inputs: Sequence[Any],
        additional_inputs: Sequence[Any] = (),
    ) -> tuple[Any, ...]:
        """As long as its condition holds."""
        state, additional = tuple(carried_inputs), tuple(additional_inputs)
        holds = self._holds(cond_fn(*state, *additional))
        while holds:
            state = tuple(body_fn(*state, *additional))
            holds = self._holds(cond_fn(*state, *additional))
        if holds is None:
            note(
                f"torch.while_loop at {self._recorder.here()}: how often it runs is in the values; "
                "its body is counted once from there on"
            )
            state = tuple(body_fn(*state, *additional))
        return state

    def map(self, function: Callable[..., Any], xs: Sequence[Tensor], pos_args: Any = ()) -> Any:
        """A function of each slice, the results stacked."""
        slices = zip(*(x.unbind() for x in xs), strict=True)
        made = [function(*parts, *pos_args) for parts in slices]
        return tree_map(lambda *results: torch.stack(results), *made)

    def scan(
        self,
        combine_fn: Callable[..., Any],
        init: Sequence[Any],
        xs: Sequence[Tensor],
        additional_inputs: Sequence[Any] = (),
    ) -> list[Any]:
        """A state carried along the slices; the states and what each step gave, stacked."""
        state, made = list(init), []
        for slices in zip(*(x.unbind() for x in xs), strict=True):
            results = list(combine_fn(*state, *slices, *additional_inputs))
            state = results[: len(init)]
            made.append(results[len(init) :])
        return [*state, *(torch.stack(results) for results in zip(*made, strict=True))]


def _touched(ops: Sequence[Op]) -> int:
    """Elements of all operands and results, views apart."""
    tensors = (t for op in ops if op.name != "view" for t in (*op.reads, *op.writes))
    return sum(prod(t.shape) for t in tensors)
