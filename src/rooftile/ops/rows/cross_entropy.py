"""Launches of cross-entropy by rows, and its torch ops."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rooftile.ops._launch import compiler_options, is_nvidia, launch, register
from rooftile.ops._replay import empty
from rooftile.ops.rows.address import rows_of, vectors
from rooftile.ops.rows.cross_entropy_kernels import (
    cross_entropy_bwd_kernel,
    cross_entropy_fwd_kernel,
    cross_entropy_sum_kernel,
)
from rooftile.ops.rows.overlap import overlapping, overlaps
from rooftile.plan.launch import row_launch

_SUM_BLOCK = 8192  # rows of most batches in one go: the sum is one program


def class_dim(x: Tensor) -> int:
    """torch's layout: [C], [N, C] or [N, C, d1, ...]."""
    return min(1, x.dim() - 1)


class Extras(NamedTuple):
    """What both forms of the loss take beside logits and targets."""

    ignore_index: int
    smoothing: float
    z_loss: float
    softcap: float


def forward_rows(
    x: Tensor, target: Tensor, extras: Extras, loss: Tensor, lse: Tensor | None,
    then_sums: bool = False,
) -> None:  # fmt: skip
    """Write loss and, where wanted, log-sum-exp of each row of logits, both contiguous.

    ``then_sums`` says that ``sum_rows`` follows at once, which may start while this ends.
    """
    if x.numel() == 0:
        _without_classes(target, extras.ignore_index, loss, lse)
        return
    dim = class_dim(x)
    x, rows = rows_of(x, dim)
    n_cols = x.shape[dim]
    n_rows = x.numel() // n_cols
    plan = row_launch("cross_entropy_fwd", n_cols, x.element_size())
    vec, shift, edge = vectors(n_cols, x.element_size(), (x, rows), line_bytes=plan.line_bytes)
    launch(
        cross_entropy_fwd_kernel, (-(-n_rows // plan.rows),), x.device,
        x, target.contiguous(), loss, lse, n_rows, n_cols, *rows, *extras,
        SMOOTH=extras.smoothing > 0, SOFTCAP=extras.softcap > 0, ROWS=plan.rows,
        BLOCK_N=plan.block_n, VEC=vec, SHIFT=shift, EDGE=edge, STAGES=plan.num_stages,
        PTX=is_nvidia(x.device), OVERLAPS=then_sums and overlaps(x.device),
        **compiler_options(plan, x.device),
    )  # fmt: skip


def _without_classes(target: Tensor, ignore_index: int, loss: Tensor, lse: Tensor | None) -> None:
    """The sum of no exponentials is 0, and a target that is not ignored is outside the classes."""
    loss.fill_(float("nan")).masked_fill_(target == ignore_index, 0.0)
    if lse is not None:
        lse.fill_(-float("inf"))


def sum_rows(
    loss: Tensor, target: Tensor, ignore_index: int, mean: bool, *,
    counts: bool = True, overlap: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The sum or mean of the losses, and where wanted how many rows are not ignored."""
    out = empty((), torch.float32, loss.device)
    count = empty((), torch.float32, loss.device) if counts else None
    overlap = overlap and overlaps(loss.device)
    launch(
        cross_entropy_sum_kernel, (1,), loss.device,
        loss, target.contiguous(), out, count, loss.numel(), ignore_index,
        MEAN=mean, BLOCK_M=_SUM_BLOCK, num_warps=32, OVERLAPS=overlap,
        **(overlapping(loss.device) if overlap else {}),
    )  # fmt: skip
    return out, count


def backward_rows(
    dloss: Tensor, x: Tensor, target: Tensor, lse: Tensor, count: Tensor | None, extras: Extras,
    dx: Tensor,
) -> None:  # fmt: skip
    """Write the gradient of the logits; dx may be x. A count divides, a scalar dloss is shared."""
    if x.numel() == 0:
        return
    dim = class_dim(x)
    x, rows = rows_of(x, dim)
    _, dx_rows = rows_of(dx, dim)
    n_cols = x.shape[dim]
    n_rows = x.numel() // n_cols
    plan = row_launch("cross_entropy_bwd", n_cols, x.element_size())
    vec, shift, edge = vectors(
        n_cols, x.element_size(), (x, rows), (dx, dx_rows), line_bytes=plan.line_bytes
    )
    n_chunks = -(-n_cols // plan.block_n)
    scalar = dloss.dim() == 0 or not any(dloss.stride())
    dloss = dloss if scalar else dloss.contiguous()
    launch(
        cross_entropy_bwd_kernel, (n_rows * n_chunks,), x.device,
        dloss, x, target.contiguous(), lse, count, dx, n_cols, n_chunks, 0 if scalar else 1,
        *rows, *dx_rows, *extras,
        SMOOTH=extras.smoothing > 0, SOFTCAP=extras.softcap > 0, BLOCK_N=plan.block_n, VEC=vec,
        SHIFT=shift, EDGE=edge, PTX=is_nvidia(x.device), **compiler_options(plan, x.device),
    )  # fmt: skip


def _infer(x: Tensor, target: Tensor, reduction: str, *extras: Any) -> Tensor:
    """The loss alone, for calls that no backward follows."""
    loss = empty(target.shape, torch.float32, x.device)
    if reduction == "none":
        forward_rows(x, target, Extras(*extras), loss, None)
        return loss
    target = target.contiguous()  # before the rows: between the two kernels there is no other
    forward_rows(x, target, Extras(*extras), loss, None, then_sums=True)
    mean = reduction == "mean"
    return sum_rows(loss, target, extras[0], mean, counts=False, overlap=x.numel() > 0)[0]


def _fwd(x: Tensor, target: Tensor, reduction: str, *extras: Any) -> tuple[Tensor, Tensor, Tensor]:
    loss = empty(target.shape, torch.float32, x.device)
    lse = empty(target.shape, torch.float32, x.device)
    if reduction == "none":
        forward_rows(x, target, Extras(*extras), loss, lse)
        return loss, empty((0,), torch.float32, x.device), lse
    target = target.contiguous()
    forward_rows(x, target, Extras(*extras), loss, lse, then_sums=True)
    mean = reduction == "mean"
    total, count = sum_rows(loss, target, extras[0], mean, overlap=x.numel() > 0)
    assert count is not None
    return total, count, lse


def _bwd(
    dloss: Tensor, x: Tensor, target: Tensor, lse: Tensor, count: Tensor | None, *extras: Any
) -> Tensor:
    dx = empty(x.shape, x.dtype, x.device)
    backward_rows(dloss, x, target, lse, count, Extras(*extras), dx)
    return dx


_EXTRAS = "int ignore_index, float smoothing, float z_loss, float softcap"
infer_op = register(
    "cross_entropy",
    f"(Tensor x, Tensor target, str reduction, {_EXTRAS}) -> Tensor",
    _infer,
    replays=True,
)
fwd_op = register(
    "cross_entropy_fwd",
    f"(Tensor x, Tensor target, str reduction, {_EXTRAS}) -> (Tensor, Tensor, Tensor)",
    _fwd,
    replays=True,
)
bwd_op = register(
    "cross_entropy_bwd",
    f"(Tensor dloss, Tensor x, Tensor target, Tensor lse, Tensor? count, {_EXTRAS}) -> Tensor",
    _bwd,
    replays=True,
)


@torch.library.register_fake("rooftile::cross_entropy")
def _(x: Tensor, target: Tensor, reduction: str, *_: Any) -> Tensor:
    return x.new_empty(target.shape if reduction == "none" else (), dtype=torch.float32)


@torch.library.register_fake("rooftile::cross_entropy_fwd")
def _(x: Tensor, target: Tensor, reduction: str, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    lse = x.new_empty(target.shape, dtype=torch.float32)
    if reduction == "none":
        return torch.empty_like(lse), lse.new_empty(0), lse
    return lse.new_empty(()), lse.new_empty(()), lse


@torch.library.register_fake("rooftile::cross_entropy_bwd")
def _(dloss: Tensor, x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)
