"""The torch ops of the four norms and their one autograd function.

Each norm has three ops: one for inference, one that saves its statistics, and the backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rooftile.ops._derivatives import once_differentiable
from rooftile.ops._launch import register
from rooftile.ops._replay import empty
from rooftile.ops.rows.norm import Norm, Statistics, norm_forward, statistics_like
from rooftile.ops.rows.norm_backward import Wanted, norm_backward

_FORWARD_ARGS = (
    "Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, "
    "int n_dims, float eps, float offset, bool cast"
)
_BACKWARD_SCHEMA = (
    "(Tensor dy, Tensor? dh, Tensor x, Tensor? weight, Tensor? mean, Tensor rstd, "
    "int n_dims, float offset, bool want_dweight, Tensor? bias) -> (Tensor, Tensor, Tensor)"
)


class NormOps(NamedTuple):
    """What ``torch.ops.rooftile`` holds of one norm."""

    infer: Any
    fwd: Any
    bwd: Any


def _sum_like(x: Tensor, residual: Tensor | None) -> Tensor | None:
    """A tensor for x + residual, of the wider dtype; None without a residual."""
    if residual is None:
        return None
    return empty(x.shape, torch.promote_types(x.dtype, residual.dtype), x.device)


def _contiguous_like(parameter: Tensor) -> Tensor:
    """A tensor for the gradient of a weight or a bias."""
    return empty(parameter.shape, parameter.dtype, parameter.device)


def _none_or_empty(t: Tensor | None, like: Tensor) -> Tensor:
    """An op's results are tensors: one of no element stands for None."""
    return empty((0,), like.dtype, like.device) if t is None else t


def _define(name: str, mean: bool, residual: bool) -> NormOps:
    """Register one norm; those with a residual return the sum too."""

    def infer(
        x: Tensor, r: Tensor | None, weight: Tensor | None, bias: Tensor | None,
        n_dims: int, eps: float, offset: float, cast: bool,
    ) -> Any:  # fmt: skip
        y, h = empty(x.shape, x.dtype, x.device), _sum_like(x, r)
        norm = Norm(n_dims, eps, mean, offset, cast)
        norm_forward(x, r, weight, bias, norm, h, y, Statistics(None, None))
        return (y, h) if residual else y

    def fwd(
        x: Tensor, r: Tensor | None, weight: Tensor | None, bias: Tensor | None,
        n_dims: int, eps: float, offset: float, cast: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        y, h = empty(x.shape, x.dtype, x.device), _sum_like(x, r)
        norm = Norm(n_dims, eps, mean, offset, cast)
        stats = statistics_like(x, norm)
        norm_forward(x, r, weight, bias, norm, h, y, stats)
        rstd = _none_or_empty(stats.rstd, x)
        return y, _none_or_empty(h, x), _none_or_empty(stats.mean, rstd), rstd

    results = "(Tensor, Tensor)" if residual else "Tensor"
    ops = NormOps(
        register(name, f"({_FORWARD_ARGS}) -> {results}", infer, True),
        register(
            f"{name}_fwd", f"({_FORWARD_ARGS}) -> (Tensor, Tensor, Tensor, Tensor)", fwd, True
        ),
        register(f"{name}_bwd", _BACKWARD_SCHEMA, _backward, True),
    )
    _define_fakes(name, mean, residual)
    return ops


def _backward(
    dy: Tensor,
    dh: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor | None,
    rstd: Tensor,
    n_dims: int,
    offset: float,
    want_dweight: bool,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    dx = empty(x.shape, x.dtype, x.device)
    dweight = _contiguous_like(weight) if weight is not None and want_dweight else None
    dbias = None if bias is None else _contiguous_like(bias)
    norm = Norm(n_dims, 0.0, mean is not None, offset)
    norm_backward(dy, dh, x, weight, Statistics(mean, rstd), norm, Wanted(dx, dweight, dbias))
    return dx, _none_or_empty(dweight, dx), _none_or_empty(dbias, dx)


def _define_fakes(name: str, mean: bool, residual: bool) -> None:
    """Shapes and dtypes of the results, for tracing."""

    def infer(x: Tensor, r: Tensor | None, *_: Any) -> Any:
        y = x.new_empty(x.shape)
        return (y, _sum_like(x, r)) if residual else y

    def fwd(x: Tensor, r: Tensor | None, weight: Any, bias: Any, n_dims: int, *_: Any) -> Any:
        stats = statistics_like(x, Norm(n_dims, 0.0, mean))
        h = _none_or_empty(_sum_like(x, r), x)
        assert stats.rstd is not None
        return x.new_empty(x.shape), h, _none_or_empty(stats.mean, stats.rstd), stats.rstd

    def bwd(
        dy: Tensor, dh: Any, x: Tensor, weight: Tensor | None, mean: Any, rstd: Any,
        n_dims: int, offset: float, want_dweight: bool, bias: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        dx = x.new_empty(x.shape)
        dweight = torch.empty_like(weight) if weight is not None and want_dweight else None
        dbias = None if bias is None else torch.empty_like(bias)
        return dx, _none_or_empty(dweight, dx), _none_or_empty(dbias, dx)

    torch.library.register_fake(f"rooftile::{name}", infer)
    torch.library.register_fake(f"rooftile::{name}_fwd", fwd)
    torch.library.register_fake(f"rooftile::{name}_bwd", bwd)


OPS = {
    "rms_norm": _define("rms_norm", mean=False, residual=False),
    "layer_norm": _define("layer_norm", mean=True, residual=False),
    "add_rms_norm": _define("add_rms_norm", mean=False, residual=True),
    "add_layer_norm": _define("add_layer_norm", mean=True, residual=True),
}


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str, x: Tensor, residual: Tensor | None, weight: Tensor | None,
        bias: Tensor | None, n_dims: int, eps: float, offset: float, cast: bool,
    ) -> Any:  # fmt: skip
        ctx.set_materialize_grads(False)  # no zeros for a sum that goes nowhere: they would be read
        y, h, mean, rstd = OPS[name].fwd(x, residual, weight, bias, n_dims, eps, offset, cast)
        ctx.save_for_backward(x if residual is None else h, weight, bias, mean, rstd)
        ctx.args = name, n_dims, offset
        ctx.dtypes = x.dtype, None if residual is None else residual.dtype
        return y if residual is None else (y, h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dh: Tensor | None = None) -> Any:
        name, n_dims, offset = ctx.args
        x_dtype, r_dtype = ctx.dtypes
        x, weight, bias, mean, rstd = ctx.saved_tensors
        if dy is None:
            dy = torch.zeros_like(x, dtype=x_dtype)
        want_x, want_r, want_weight, want_bias = ctx.needs_input_grad[1:5]
        dx, dweight, dbias = OPS[name].bwd(
            dy, dh, x, weight, mean if "layer" in name else None, rstd, n_dims, offset,
            want_weight, bias if want_bias else None,
        )  # fmt: skip
        return (
            None,
            dx.to(x_dtype) if want_x else None,
            dx.to(r_dtype) if want_r else None,
            dweight if want_weight else None,
            dbias if want_bias else None,
            *[None] * 4,
        )


def differentiable_norm(
    name: str,
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    norm: Norm,
) -> Any:
    """One of the norms; the graph is recorded only where a gradient can be asked for."""
    args = (x, residual, weight, bias, norm.n_dims, norm.eps, norm.offset, norm.cast)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in args[:4]):
        return _Norm.apply(name, *args)
    return OPS[name].infer(*args)
