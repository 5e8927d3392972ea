"""Derivatives that the ops do not have: refused, where torch would leave them out without a word.

An op's gradient is that of ``torch.autograd``: backward, once. A tangent would be dropped, for
torch looks for none behind an op of a library; ``vmap`` hides from the op that a tensor asks for a
gradient; ``torch.func`` enters no autograd function that keeps what is no result of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch
from torch.autograd import forward_ad

from rooftile.errors import InputError

is_compiling = torch.compiler.is_compiling
_transform = _functorch.peek_interpreter_stack


def check_derivative(name: str, t: Tensor) -> None:
    """No tangent, and no gradient that a transform of torch asks for."""
    if is_compiling():
        if _differentiates():
            raise InputError(
                f"{name} must be outside of torch.func's and forward derivatives in what is "
                "compiled: gradients are those of torch.autograd"
            )
    elif forward_ad._current_level >= 0 or _transform() is not None:
        _look_through(name, t)


@torch.compiler.assume_constant_result
def _differentiates() -> bool:
    """Whether torch's compiler is within a derivative: it enters grad and jvp as it traces."""
    kinds = (_functorch.TransformType.Grad, _functorch.TransformType.Jvp)
    if forward_ad._current_level >= 0:
        return True
    return any(level.key() in kinds for level in _functorch.get_interpreter_stack() or ())


def transforms() -> bool:
    """Whether a transform of torch.func runs: its tensors are wrapped, their values hidden."""
    return _transform() is not None


def _look_through(name: str, t: Tensor) -> None:
    """Ask a tensor and those that transforms have wrapped in it."""
    records = torch.is_grad_enabled()
    transformed = False
    while True:
        batched = _functorch.is_batchedtensor(t)
        if not batched and torch._VF._unpack_dual(t, level=0)[1] is not None:
            raise InputError(
                f"{name} must have no tangent: ops have no derivative in forward mode "
                "(torch.func.jvp, torch.func.jacfwd, torch.autograd.forward_ad)"
            )
        wrapped = _functorch.is_functorch_wrapped_tensor(t)
        transformed |= wrapped
        if transformed and records and t.requires_grad:
            raise InputError(
                f"{name} must ask for no gradient within a transform of torch.func: gradients are "
                "those of torch.autograd, outside of it"
            )
        if not wrapped:
            return
        t = _functorch.get_unwrapped(t)


class _NoSecond(torch.autograd.Function):
    """Gradients as they are, tied to what they were made from by a node that refuses."""

    @staticmethod
    def forward(ctx: Any, n: int, *tensors: Tensor | None) -> Any:
        ctx.set_materialize_grads(False)
        return tuple([t if t is None else t.detach() for t in tensors[:n]])

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> Any:
        raise InputError(
            "create_graph must be False, or what it keeps not be differentiated: ops have no "
            "second derivative"
        )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward whose results cannot be differentiated again, whichever way it is tried.

    torch's own ties them to nothing: then a second derivative is an error only for ``backward()``
    with an upstream gradient that asks for one itself. Elsewhere it is left out: a gradient
    penalty adds 0, a Hessian is 0. An op that keeps gradients made ahead, not what they were made
    from, says so by ``ctx.made_ahead``: there is nothing to tie to, so it is refused at once.
    """

    @wraps(backward)
    def call(ctx: Any, *upstream: Tensor | None) -> Any:
        if is_compiling() or not torch.is_grad_enabled():
            return backward(ctx, *upstream)
        if getattr(ctx, "made_ahead", False):
            raise InputError("create_graph must be False: this op's gradients were made ahead")
        with torch.no_grad():
            found = backward(ctx, *upstream)
        several = found if isinstance(found, tuple) else (found,)
        refused = _NoSecond.apply(len(several), *several, *upstream, *ctx.saved_tensors)
        return refused if isinstance(found, tuple) else refused[0]

    return call
