"""Cross-entropy of a linear layer's logits, which are never in memory as a whole.

Rows go through in groups: their logits by torch's matmul, then loss and gradient of the logits in
place. For a mean or a sum the gradients are made on the way, for the backward to scale; without a
reduction each row has a factor of its own, so the backward makes the logits again.

Source: Hsu et al. 2024, https://arxiv.org/abs/2410.10989 (gradients on the way forward)
Cost:   rooftile.cost.formulas.fused.linear_cross_entropy_forward (compute-bound: matrix products)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._check import check_device, check_float, check_parameter, check_shape
from rooftile.ops._derivatives import once_differentiable
from rooftile.ops._launch import register
from rooftile.ops.cross_entropy import check_target, checked_extras, cross_entropy_ref
from rooftile.ops.flat.scale import scaled
from rooftile.ops.rows.cross_entropy import (
    Extras,
    backward_rows,
    forward_rows,
    sum_rows,
)
from rooftile.ops.rows.logit_groups import Gradients, logits_of

# ---- 1. reference ------------------------------------------------------------------


def linear_cross_entropy_ref(
    input: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    """The definition, in plain PyTorch."""
    logits = torch.nn.functional.linear(input, linear_weight, linear_bias)
    n_classes = logits.shape[-1]
    loss = cross_entropy_ref(logits.reshape(-1, n_classes), target.reshape(-1), **options)
    return loss.view(target.shape) if options.get("reduction") == "none" else loss


# ---- 3. launches -------------------------------------------------------------------


def _fwd(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, reduction: str,
    ignore_index: int, smoothing: float, z_loss: float, softcap: float, wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    extras = Extras(ignore_index, smoothing, z_loss, softcap)
    loss = torch.empty(target.shape, dtype=torch.float32, device=x.device)
    lse = torch.empty_like(loss)
    on_the_way = reduction != "none" and any(wanted)
    sums = Gradients(x, weight, bias, wanted if on_the_way else [False] * 3)
    one = torch.ones((), dtype=torch.float32, device=x.device)
    count = (target != ignore_index).sum(dtype=torch.float32) if reduction == "mean" else None
    for rows in sums.groups():
        logits = logits_of(x[rows], weight, bias)
        forward_rows(logits, target[rows], extras, loss[rows], lse[rows])
        if on_the_way:
            backward_rows(one, logits, target[rows], lse[rows], count, extras, logits)
            sums.add(rows, logits)
        del logits  # before the next group's are made
    if reduction != "none":
        loss, _ = sum_rows(loss, target, ignore_index, reduction == "mean")
    return loss, lse, *sums.results()


def _bwd(
    dloss: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, lse: Tensor,
    ignore_index: int, smoothing: float, z_loss: float, softcap: float, wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    extras = Extras(ignore_index, smoothing, z_loss, softcap)
    sums = Gradients(x, weight, bias, wanted)
    dloss = dloss.contiguous()
    for rows in sums.groups():
        logits = logits_of(x[rows], weight, bias)
        backward_rows(dloss[rows], logits, target[rows], lse[rows], None, extras, logits)
        sums.add(rows, logits)
        del logits
    return sums.results()


# ---- 4. registration ---------------------------------------------------------------

_EXTRAS = "int ignore_index, float smoothing, float z_loss, float softcap, bool[] wanted"
fwd_op = register(
    "linear_cross_entropy_fwd",
    f"(Tensor x, Tensor weight, Tensor? bias, Tensor target, str reduction, {_EXTRAS})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _fwd,
)
bwd_op = register(
    "linear_cross_entropy_bwd",
    f"(Tensor dloss, Tensor x, Tensor weight, Tensor? bias, Tensor target, Tensor lse, {_EXTRAS})"
    " -> (Tensor, Tensor, Tensor)",
    _bwd,
)


def _gradients_like(
    x: Tensor, weight: Tensor, bias: Tensor | None, wanted: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    dweight, dbias = (
        x.new_empty(t.shape if t is not None and w else (0,), dtype=torch.float32)
        for t, w in zip((weight, bias), wanted[1:], strict=True)
    )
    return torch.empty_like(x) if wanted[0] else x.new_empty(0), dweight, dbias


@torch.library.register_fake("rooftile::linear_cross_entropy_fwd")
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, reduction: str, *extras: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    lse = x.new_empty(target.shape, dtype=torch.float32)
    none = reduction == "none"
    loss = torch.empty_like(lse) if none else lse.new_empty(())
    wanted = [False] * 3 if none else extras[-1]
    return loss, lse, *_gradients_like(x, weight, bias, wanted)


@torch.library.register_fake("rooftile::linear_cross_entropy_bwd")
def _(
    dloss: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients_like(x, weight, bias, rest[-1])


# ---- 5. autograd -------------------------------------------------------------------


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, reduction: str,
        *extras: Any,
    ) -> Tensor:  # fmt: skip
        wanted = [*ctx.needs_input_grad[:2], bias is not None and ctx.needs_input_grad[2]]
        loss, lse, *gradients = fwd_op(x, weight, bias, target, reduction, *extras, wanted)
        ctx.reduction, ctx.extras, ctx.wanted = reduction, extras, wanted
        ctx.dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype
        if reduction == "none":
            ctx.save_for_backward(x, weight, bias, target, lse)
        else:
            ctx.save_for_backward(*gradients)
            ctx.made_ahead = True
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> Any:
        if ctx.reduction == "none":
            x, weight, bias, target, lse = ctx.saved_tensors
            found = bwd_op(dloss, x, weight, bias, target, lse, *ctx.extras, ctx.wanted)
            factor = None
        else:
            found, factor = ctx.saved_tensors, dloss
        wanted = zip(found, ctx.dtypes, ctx.wanted, strict=True)
        return (*[_finished(g, factor, t) if w else None for g, t, w in wanted], *[None] * 6)


def _finished(gradient: Tensor, factor: Tensor | None, dtype: torch.dtype) -> Tensor:
    """In the input's dtype, times the gradient of the loss: rounded once, read once."""
    if factor is None or gradient.dtype == dtype or torch.compiler.is_compiling():
        return (gradient if factor is None else gradient * factor).to(dtype)
    return scaled(gradient, factor, dtype)


# ---- 6. public op ------------------------------------------------------------------


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> Tensor:
    """Take the cross-entropy of ``input @ linear_weight.T + linear_bias``.

    The logits exist for a group of rows at a time: at most 512 MiB of them, or as many bytes as
    ``linear_weight`` has where that is more and its gradient is wanted, but never fewer than 1,024
    rows. The loss is that of ``cross_entropy``, as are its checks of the targets. Under autocast
    the operands of the matrix products are cast to its dtype, as for
    ``torch.nn.functional.linear``.

    Args:
        input: Shape ``[..., H]``, float32, float16 or bfloat16, of any strides.
        linear_weight: Shape ``[V, H]``, dtype and device of ``input``.
        target: Classes, int32 or int64, of the shape of ``input`` without ``H``.
        linear_bias: Shape ``[V]``, dtype of ``input``.
        ignore_index: A target of this value costs 0 and gets no gradient.
        reduction: ``"none"``, ``"mean"`` over the rows that are not ignored (NaN if there is none)
            or ``"sum"``.
        label_smoothing: Weight of the uniform distribution, in [0, 1].
        z_loss: Factor of the squared log-sum-exp, at least 0.
        softcap: Bound of the logits, 0 for none.

    Returns:
        The loss in float32: a scalar, or of the shape of ``target`` for ``"none"``. Logits are
        rounded to the dtype of ``input``; gradients of weight and bias are summed in float32.

    Raises:
        InputError: A shape, dtype, device, range or, where looked for, a target is not as above.

    Cost:
        ``fused.linear_cross_entropy_forward``, ``fused.linear_cross_entropy_forward_backward``.

    Source:
        https://arxiv.org/abs/2410.10989
    """
    extras = checked_extras(reduction, ignore_index, label_smoothing, z_loss, softcap)
    for name, given in (("input", input), ("linear_weight", linear_weight)):
        check_float(name, given)
    if linear_bias is not None:
        check_float("linear_bias", linear_bias)  # before it is cast
    input, linear_weight, linear_bias = _autocast(input, linear_weight, linear_bias)
    if input.dim() == 0 or linear_weight.dim() != 2:
        raise InputError(
            "linear_weight must have shape [V, H] and input [..., H], "
            f"got {list(linear_weight.shape)} and {list(input.shape)}"
        )
    n_classes, width = linear_weight.shape
    check_shape("linear_weight", linear_weight, (n_classes, input.shape[-1]))
    check_device("linear_weight", linear_weight, "input", input)
    check_parameter("linear_bias", linear_bias, (n_classes,), input)
    for name, t in (("linear_weight", linear_weight), ("linear_bias", linear_bias)):
        if t is not None and t.dtype != input.dtype:
            raise InputError(f"{name} must be {input.dtype} like input, got {t.dtype}")
    check_target(target, input, tuple(input.shape[:-1]), n_classes, extras.ignore_index)
    rows = target.reshape(-1)
    x = input.reshape(rows.shape[0], width)  # -1 says nothing where the width is 0
    tensors = (x, linear_weight, linear_bias)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        loss = _LinearCrossEntropy.apply(*tensors, rows, reduction, *extras)
    else:
        loss = fwd_op(*tensors, rows, reduction, *extras, [False] * 3)[0]
    return loss.view(target.shape) if reduction == "none" else loss


def _autocast(*tensors: Tensor | None) -> Any:
    """The operands as autocast would hand them to a linear layer."""
    first = tensors[0]
    assert first is not None
    device = first.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(t if t is None else t.to(dtype) for t in tensors)
