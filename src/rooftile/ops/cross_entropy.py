"""Cross-entropy of logits: loss = logsumexp(x) - x[target], with the usual extras.

Source: Szegedy et al. 2015, https://arxiv.org/abs/1512.00567 (label smoothing); Chowdhery et al.
        2022, https://arxiv.org/abs/2204.02311 (z-loss); Gemma Team 2024,
        https://arxiv.org/abs/2408.00118 (soft-cap)
Cost:   rooftile.cost.formulas.loss.cross_entropy_forward (memory-bound at every shape)
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._check import check_device, check_float, check_probability, check_shape
from rooftile.ops._launch import INTERPRETED, compiler_options, launch, register
from rooftile.ops.rows.address import rows_of, vectors
from rooftile.ops.rows.cross_entropy_kernels import (
    cross_entropy_bwd_kernel,
    cross_entropy_fwd_kernel,
    cross_entropy_sum_kernel,
)
from rooftile.plan.launch import row_launch

# ---- 1. reference ------------------------------------------------------------------


def cross_entropy_ref(
    input: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> Tensor:
    """The definition, in plain PyTorch. It accumulates in float32, or in float64 for float64."""
    x = input.to(torch.promote_types(input.dtype, torch.float32))
    dim = _class_dim(x)
    if softcap:
        x = softcap * torch.tanh(x / softcap)
    kept = target != ignore_index
    lse = torch.logsumexp(x, dim)
    picked = x.gather(dim, torch.where(kept, target, 0).unsqueeze(dim)).squeeze(dim)
    loss = lse - (1 - label_smoothing) * picked - label_smoothing * x.mean(dim) + z_loss * lse**2
    loss = torch.where(kept, loss, 0.0)
    if reduction == "none":
        return loss
    return loss.sum() / kept.sum() if reduction == "mean" else loss.sum()


def _class_dim(x: Tensor) -> int:
    """torch's layout: [C], [N, C] or [N, C, d1, ...]."""
    return min(1, x.dim() - 1)


# ---- 3. launchers (the kernels are in rows/cross_entropy_kernels.py) -----------------

_SUM_BLOCK = 2048


class Extras(NamedTuple):
    """What both forms of the loss take beside logits and targets."""

    ignore_index: int
    smoothing: float
    z_loss: float
    softcap: float


def forward_rows(x: Tensor, target: Tensor, extras: Extras, loss: Tensor, lse: Tensor) -> None:
    """Write loss and log-sum-exp of each row of logits, both contiguous."""
    if x.numel() == 0:
        return
    dim = _class_dim(x)
    x, rows = rows_of(x, dim)
    n_cols = x.shape[dim]
    n_rows = x.numel() // n_cols
    vec, shift, edge = vectors(n_cols, x.element_size(), (x, rows))
    plan = row_launch("cross_entropy_fwd", n_cols, x.element_size())
    launch(
        cross_entropy_fwd_kernel, (-(-n_rows // plan.rows),), x.device,
        x, target.contiguous(), loss, lse, n_rows, n_cols, *rows, *extras,
        SMOOTH=extras.smoothing > 0, SOFTCAP=extras.softcap > 0, ROWS=plan.rows,
        BLOCK_N=plan.block_n, VEC=vec, SHIFT=shift, EDGE=edge, STAGES=plan.num_stages,
        **compiler_options(plan, x.device),
    )  # fmt: skip


def sum_rows(loss: Tensor, target: Tensor, ignore_index: int, mean: bool) -> tuple[Tensor, Tensor]:
    """The sum or mean of the losses, and how many rows are not ignored."""
    out, count = (torch.empty((), dtype=torch.float32, device=loss.device) for _ in range(2))
    launch(
        cross_entropy_sum_kernel, (1,), loss.device,
        loss, target.contiguous(), out, count, loss.numel(), ignore_index,
        MEAN=mean, BLOCK_M=_SUM_BLOCK, num_warps=16,
    )  # fmt: skip
    return out, count


def backward_rows(
    dloss: Tensor, x: Tensor, target: Tensor, lse: Tensor, count: Tensor | None, extras: Extras,
    dx: Tensor,
) -> None:  # fmt: skip
    """Write the gradient of the logits; dx may be x. A count divides, a scalar dloss is shared."""
    if x.numel() == 0:
        return
    dim = _class_dim(x)
    x, rows = rows_of(x, dim)
    _, dx_rows = rows_of(dx, dim)
    n_cols = x.shape[dim]
    n_rows = x.numel() // n_cols
    vec, shift, edge = vectors(n_cols, x.element_size(), (x, rows), (dx, dx_rows))
    plan = row_launch("cross_entropy_bwd", n_cols, x.element_size())
    n_chunks = -(-n_cols // plan.block_n)
    scalar = dloss.dim() == 0 or not any(dloss.stride())
    dloss = dloss if scalar else dloss.contiguous()
    launch(
        cross_entropy_bwd_kernel, (n_rows * n_chunks,), x.device,
        dloss, x, target.contiguous(), lse, count, dx, n_cols, n_chunks, 0 if scalar else 1,
        *rows, *dx_rows, *extras,
        SMOOTH=extras.smoothing > 0, SOFTCAP=extras.softcap > 0, BLOCK_N=plan.block_n, VEC=vec,
        SHIFT=shift, EDGE=edge, **compiler_options(plan, x.device),
    )  # fmt: skip


def _cross_entropy_fwd(x: Tensor, target: Tensor, *extras: Any) -> tuple[Tensor, Tensor]:
    loss = torch.empty(target.shape, dtype=torch.float32, device=x.device)
    lse = torch.empty_like(loss)
    forward_rows(x, target, Extras(*extras), loss, lse)
    return loss, lse


def _cross_entropy_bwd(
    dloss: Tensor, x: Tensor, target: Tensor, lse: Tensor, count: Tensor | None, *extras: Any
) -> Tensor:
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    backward_rows(dloss, x, target, lse, count, Extras(*extras), dx)
    return dx


# ---- 4. registration ---------------------------------------------------------------

_EXTRAS = "int ignore_index, float smoothing, float z_loss, float softcap"
fwd_op = register(
    "cross_entropy_fwd", f"(Tensor x, Tensor target, {_EXTRAS}) -> (Tensor, Tensor)",
    _cross_entropy_fwd,
)  # fmt: skip
sum_op = register(
    "cross_entropy_sum",
    "(Tensor loss, Tensor target, int ignore_index, bool mean) -> (Tensor, Tensor)",
    sum_rows,
)
bwd_op = register(
    "cross_entropy_bwd",
    f"(Tensor dloss, Tensor x, Tensor target, Tensor lse, Tensor? count, {_EXTRAS}) -> Tensor",
    _cross_entropy_bwd,
)


@torch.library.register_fake("rooftile::cross_entropy_fwd")
def _(x: Tensor, target: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    loss = x.new_empty(target.shape, dtype=torch.float32)
    return loss, torch.empty_like(loss)


@torch.library.register_fake("rooftile::cross_entropy_sum")
def _(loss: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return loss.new_empty(()), loss.new_empty(())


@torch.library.register_fake("rooftile::cross_entropy_bwd")
def _(dloss: Tensor, x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


# ---- 5. autograd -------------------------------------------------------------------


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Tensor, reduction: str, *extras: Any) -> Tensor:
        loss, count, lse = _reduced(x, target, reduction, *extras)
        ctx.save_for_backward(x, target, lse, count if reduction == "mean" else None)
        ctx.extras = extras
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> Any:
        x, target, lse, count = ctx.saved_tensors
        dx = bwd_op(dloss, x, target, lse, count, *ctx.extras)
        return (dx, *[None] * 6)


def _reduced(
    x: Tensor, target: Tensor, reduction: str, *extras: Any
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The loss, the number of rows that count, and the log-sum-exp of each row."""
    loss, lse = fwd_op(x, target, *extras)
    if reduction == "none":
        return loss, None, lse
    total, count = sum_op(loss, target, extras[0], reduction == "mean")
    return total, count, lse


# ---- 6. public op ------------------------------------------------------------------


def cross_entropy(
    input: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> Tensor:
    """Take the negative log-probability of the target class of each row, in one pass.

    Computes ``lse - (1 - label_smoothing) * x[target] - label_smoothing * mean(x) + z_loss *
    lse**2`` with ``x = softcap * tanh(input / softcap)`` where a soft-cap is given and
    ``lse = log(sum(exp(x)))``.

    A target that is neither a class nor ``ignore_index`` is an error. To find it takes a wait for
    the GPU, so it is looked for only with ``ROOFTILE_CHECK_TARGETS=1`` in the environment (and on
    the interpreter); otherwise its loss and gradient are NaN, and no memory outside is touched.

    Args:
        input: Logits, shape ``[C]``, ``[N, C]`` or ``[N, C, d1, ...]``, float32, float16 or
            bfloat16, of any strides.
        target: Classes, int32 or int64, of that shape without ``C``.
        ignore_index: A target of this value costs 0 and gets no gradient.
        reduction: ``"none"``, ``"mean"`` over the rows that are not ignored (NaN if there is none)
            or ``"sum"``.
        label_smoothing: Weight of the uniform distribution, in [0, 1].
        z_loss: Factor of the squared log-sum-exp, at least 0.
        softcap: Bound of the logits, 0 for none.

    Returns:
        The loss in float32: a scalar, or of the shape of ``target`` for ``"none"``.

    Raises:
        InputError: A shape, dtype, device, range or, where looked for, a target is not as above.

    Cost:
        ``loss.cross_entropy_forward`` and ``loss.cross_entropy_backward``: logits read once, then
        read and their gradient written.

    Source:
        https://arxiv.org/abs/1512.00567, https://arxiv.org/abs/2204.02311,
        https://arxiv.org/abs/2408.00118
    """
    check_cross_entropy(reduction, label_smoothing, z_loss, softcap)
    check_float("input", input)
    if input.dim() == 0:
        raise InputError("input must have a dimension of classes, got a scalar")
    dim = _class_dim(input)
    check_shape("target", target, (*input.shape[:dim], *input.shape[dim + 1 :]))
    check_target(target, input, input.shape[dim], ignore_index)
    extras = (ignore_index, label_smoothing, z_loss, softcap)
    if input.requires_grad and torch.is_grad_enabled():
        return _CrossEntropy.apply(input, target, reduction, *extras)
    return _reduced(input, target, reduction, *extras)[0]


def check_cross_entropy(
    reduction: str, label_smoothing: float, z_loss: float, softcap: float
) -> None:
    """The numbers that both forms of the loss take."""
    if reduction not in ("none", "mean", "sum"):
        raise InputError(f"reduction must be none, mean or sum, got {reduction!r}")
    check_probability("label_smoothing", label_smoothing)
    for name, value in (("z_loss", z_loss), ("softcap", softcap)):
        if value < 0:
            raise InputError(f"{name} must be at least 0, got {value}")


def check_target(target: Tensor, input: Tensor, n_classes: int, ignore_index: int) -> None:
    """Dtype and device; the values only where that needs no wait, or is asked for."""
    if target.dtype not in (torch.int64, torch.int32):
        raise InputError(f"target must be int64 or int32, got {target.dtype}")
    check_device("target", target, "input", input)
    asked = INTERPRETED or os.environ.get("ROOFTILE_CHECK_TARGETS") == "1"
    if not asked or torch.compiler.is_compiling() or target.is_meta:
        return
    bad = (target != ignore_index) & ((target < 0) | (target >= n_classes))
    if bool(bad.any()):
        value = int(target[bad][0])
        raise InputError(
            f"target must be in [0, {n_classes - 1}] or {ignore_index} (ignore_index), got {value}"
        )


class CrossEntropyLoss(torch.nn.Module):
    """``torch.nn.CrossEntropyLoss`` without class weights, on ``rooftile.ops.cross_entropy``."""

    def __init__(
        self,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        softcap: float = 0.0,
    ) -> None:
        super().__init__()
        check_cross_entropy(reduction, label_smoothing, z_loss, softcap)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.softcap = softcap

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of logits and their targets."""
        return cross_entropy(
            input,
            target,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            softcap=self.softcap,
        )
