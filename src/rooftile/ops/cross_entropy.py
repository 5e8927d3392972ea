"""Cross-entropy of logits: loss = logsumexp(x) - x[target], with the usual extras.

Source: Szegedy et al. 2015, https://arxiv.org/abs/1512.00567 (label smoothing); Chowdhery et al.
        2022, https://arxiv.org/abs/2204.02311 (z-loss); Gemma Team 2024,
        https://arxiv.org/abs/2408.00118 (soft-cap)
Cost:   rooftile.cost.formulas.loss.cross_entropy_forward (memory-bound at every shape)
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._check import (
    check_choice,
    check_device,
    check_float,
    check_number,
    check_probability,
    check_shape,
    check_softcap,
    check_tensor,
    check_whole,
)
from rooftile.ops._derivatives import once_differentiable, transforms
from rooftile.ops._launch import INTERPRETED
from rooftile.ops._repeat import repeats
from rooftile.ops.rows.cross_entropy import Extras, bwd_op, class_dim, fwd_op, infer_op

_asked = INTERPRETED or os.environ.get("ROOFTILE_CHECK_TARGETS") == "1"


def checks_targets() -> bool:
    """Whether targets are looked at, for which the host waits."""
    return _asked


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
    dim = class_dim(x)
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


# ---- 2. autograd (kernels and launches are in rows/) ---------------------------------


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Tensor, reduction: str, *extras: Any) -> Tensor:
        loss, count, lse = fwd_op(x, target, reduction, *extras)
        ctx.save_for_backward(x, target, lse, count if reduction == "mean" else None)
        ctx.extras = extras
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> Any:
        x, target, lse, count = ctx.saved_tensors
        dx = bwd_op(dloss, x, target, lse, count, *ctx.extras)
        return (dx, *[None] * 6)


# ---- 3. public op ------------------------------------------------------------------


@repeats(unless=checks_targets)
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
    the GPU, so it is looked for only where ``ROOFTILE_CHECK_TARGETS=1`` was in the environment when
    this module was imported (and on the interpreter); otherwise its loss and gradient are NaN, and
    no memory outside is touched.

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
    extras = checked_extras(reduction, ignore_index, label_smoothing, z_loss, softcap)
    check_float("input", input)
    if input.dim() == 0:
        raise InputError("input must have a dimension of classes, got a scalar")
    dim = class_dim(input)
    rows = (*input.shape[:dim], *input.shape[dim + 1 :])
    check_target(target, input, rows, input.shape[dim], extras.ignore_index)
    if input.requires_grad and torch.is_grad_enabled():
        return _CrossEntropy.apply(input, target, reduction, *extras)
    return infer_op(input, target, reduction, *extras)


def checked_extras(
    reduction: str, ignore_index: int, label_smoothing: float, z_loss: float, softcap: float
) -> Extras:
    """The numbers that both forms of the loss take."""
    check_choice("reduction", reduction, ("none", "mean", "sum"))
    softcap = check_softcap(softcap)
    return Extras(
        check_whole("ignore_index", ignore_index),
        check_probability("label_smoothing", label_smoothing),
        check_number("z_loss", z_loss),
        softcap,
    )


def check_target(
    target: Tensor, input: Tensor, rows: tuple[int, ...], n_classes: int, ignore_index: int
) -> None:
    """Dtype, device and shape; the values only where that needs no wait, or is asked for."""
    check_tensor("target", target)
    if target.dtype not in (torch.int64, torch.int32):
        raise InputError(f"target must be int64 or int32, got {target.dtype}")
    check_device("target", target, "input", input)
    check_shape("target", target, rows)
    if not checks_targets() or torch.compiler.is_compiling() or target.is_meta or transforms():
        return
    bad = (target != ignore_index) & ((target < 0) | (target >= n_classes))
    if bool(bad.any()):
        value = int(target[bad][0])
        ignored = f"{ignore_index} (ignore_index)"
        wanted = f"in [0, {n_classes - 1}] or {ignored}"
        if n_classes == 0:
            wanted = f"{ignored} where there are no classes"
        raise InputError(f"target must be {wanted}, got {value}")


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
        checked_extras(reduction, ignore_index, label_smoothing, z_loss, softcap)
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
