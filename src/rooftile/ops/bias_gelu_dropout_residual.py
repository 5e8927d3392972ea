"""The tail of a transformer's linear layer: y = dropout(gelu(x + bias)) + residual.

Source: Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415 (GELU); Srivastava et al. 2014,
        https://jmlr.org/papers/v15/srivastava14a.html (dropout)
Cost:   rooftile.cost.formulas.fused.bias_gelu_dropout_residual_forward
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._check import (
    check_approximate,
    check_device,
    check_float,
    check_like,
    check_parameter,
    check_probability,
    check_switch,
)
from rooftile.ops._derivatives import once_differentiable
from rooftile.ops._launch import compiler_options, is_nvidia, launch, register, sm_count
from rooftile.ops._repeat import repeats
from rooftile.ops._replay import empty
from rooftile.ops.flat.bias_gelu_kernels import (
    bias_gelu_dropout_residual_bwd_kernel,
    bias_gelu_dropout_residual_fwd_kernel,
    bias_grad_sum_kernel,
)
from rooftile.ops.flat.dropout import threshold
from rooftile.ops.rows.address import Rows, rows_of, vectors
from rooftile.ops.rows.overlap import overlapping, overlaps
from rooftile.plan.launch import row_launch

_GRID_Y = 32768  # of 65,535 that a grid may have in its second dimension
_SUM_COLS = 16  # columns of the last sum's programs: few, so that many run at once

# ---- 1. reference ------------------------------------------------------------------


def bias_gelu_dropout_residual_ref(
    x: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    approximate: str = "none",
    gelu: bool = True,
) -> Tensor:
    """The definition without dropout, in plain PyTorch: in float32, or in float64 for float64."""
    acc = torch.promote_types(x.dtype, torch.float32)
    y = x.to(acc) if bias is None else x.to(acc) + bias.to(acc)
    if gelu:
        y = torch.nn.functional.gelu(y, approximate=approximate)
    return (y if residual is None else y + residual.to(acc)).to(x.dtype)


# ---- 2. launchers ------------------------------------------------------------------


def _fwd(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, seed: Tensor | None,
    p: float, activation: str,
) -> Tensor:  # fmt: skip
    y = empty(x.shape, x.dtype, x.device)
    if y.numel() == 0:
        return y
    n_cols = x.shape[-1]
    n_rows = x.numel() // n_cols
    x, x_rows = rows_of(x, x.dim() - 1)
    r, r_rows = (x, x_rows) if residual is None else rows_of(residual, x.dim() - 1)
    itemsize = x.element_size()
    vec, shift, edge = vectors(
        n_cols, itemsize, (x, x_rows), (r, r_rows), (y, Rows(1, n_cols, 0, 1))
    )
    plan = row_launch("column_blocks", n_cols, itemsize)
    n_tiles = -(-n_rows // plan.rows)
    most = min(n_tiles, _GRID_Y)
    grid = (-(-n_cols // plan.block_n), most, -(-n_tiles // most))
    dropped, scale = threshold(p)
    launch(
        bias_gelu_dropout_residual_fwd_kernel, grid, x.device,
        x, bias if bias is None else bias.contiguous(), None if residual is None else r, seed, y,
        n_rows, n_cols, *x_rows, *r_rows, dropped, scale,
        ACTIVATION=activation, FAST=itemsize == 2, PTX=is_nvidia(x.device), ROWS=plan.rows,
        BLOCK_N=plan.block_n, VEC=1 if shift or edge else vec, **compiler_options(plan, x.device),
    )  # fmt: skip
    return y


def _bwd(
    dy: Tensor, x: Tensor, bias: Tensor | None, seed: Tensor | None,
    p: float, activation: str, want_dbias: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    dx = empty(x.shape, x.dtype, x.device)
    dbias = empty((0,), x.dtype, x.device)
    if bias is not None and want_dbias:
        dbias = empty(bias.shape, bias.dtype, x.device)
    if dx.numel() == 0:
        return dx, dbias.zero_()
    n_cols = x.shape[-1]
    n_rows = x.numel() // n_cols
    x, x_rows = rows_of(x, x.dim() - 1)
    dy, dy_rows = rows_of(dy, dy.dim() - 1)
    itemsize = max(x.element_size(), dy.element_size())
    vec, shift, edge = vectors(
        n_cols, itemsize, (x, x_rows), (dy, dy_rows), (dx, Rows(1, n_cols, 0, 1))
    )
    plan = row_launch("column_sums", n_cols, itemsize)
    n_blocks = -(-n_cols // plan.block_n)
    n_tiles = -(-n_rows // plan.rows)
    n_splits = n_tiles
    if dbias.numel():
        n_splits = max(1, min(n_tiles, plan.programs_per_sm * sm_count(x.device) // n_blocks))
    part = empty((n_splits, n_cols), torch.float32, x.device) if dbias.numel() else None
    dropped, scale = threshold(p)
    launch(
        bias_gelu_dropout_residual_bwd_kernel, (n_blocks * n_splits,), x.device,
        dy, x, bias if bias is None else bias.contiguous(), seed, dx, part,
        n_rows, n_cols, n_blocks, n_splits, *dy_rows, *x_rows, dropped, scale,
        ACTIVATION=activation, FAST=itemsize == 2, PTX=is_nvidia(x.device), ROWS=plan.rows,
        BLOCK_N=plan.block_n, VEC=1 if shift or edge else vec, STAGES=plan.num_stages,
        OVERLAPS=part is not None and overlaps(x.device), **compiler_options(plan, x.device),
    )  # fmt: skip
    if part is not None:
        launch(
            bias_grad_sum_kernel, (-(-n_cols // _SUM_COLS),), x.device,
            part, dbias, n_splits, n_cols, ROWS=128, BLOCK_N=_SUM_COLS, num_warps=4,
            OVERLAPS=overlaps(x.device), **overlapping(x.device),
        )  # fmt: skip
    return dx, dbias


# ---- 3. registration ---------------------------------------------------------------

fwd_op = register(
    "bias_gelu_dropout_residual_fwd",
    "(Tensor x, Tensor? bias, Tensor? residual, Tensor? seed, float p, str activation) -> Tensor",
    _fwd,
    replays=True,
)
bwd_op = register(
    "bias_gelu_dropout_residual_bwd",
    "(Tensor dy, Tensor x, Tensor? bias, Tensor? seed, float p, str activation, bool want_dbias)"
    " -> (Tensor, Tensor)",
    _bwd,
    replays=True,
)


@torch.library.register_fake("rooftile::bias_gelu_dropout_residual_fwd")
def _(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake("rooftile::bias_gelu_dropout_residual_bwd")
def _(
    dy: Tensor, x: Tensor, bias: Tensor | None, seed: Any, p: float, activation: str,
    want_dbias: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    dbias = x.new_empty(0) if bias is None or not want_dbias else torch.empty_like(bias)
    return x.new_empty(x.shape), dbias


# ---- 4. autograd -------------------------------------------------------------------


class _BiasGeluDropoutResidual(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, residual: Tensor | None, seed: Tensor | None,
        p: float, activation: str,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(x, bias, seed)
        ctx.args = p, activation
        return fwd_op(x, bias, residual, seed, p, activation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, bias, seed = ctx.saved_tensors
        want_x, want_bias, want_residual = ctx.needs_input_grad[:3]
        dx = dbias = None
        if want_x or want_bias:
            dx, dbias = bwd_op(dy, x, bias, seed, *ctx.args, want_bias)
        dresidual = dy if want_residual else None
        return dx if want_x else None, dbias if want_bias else None, dresidual, None, None, None


# ---- 5. public op ------------------------------------------------------------------


@repeats()
def bias_gelu_dropout_residual(
    x: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    p: float = 0.0,
    *,
    approximate: str = "none",
    gelu: bool = True,
    training: bool = True,
    seed: Tensor | None = None,
) -> Tensor:
    """Add a bias, apply GELU and dropout and add a residual, in one pass; each part is optional.

    The dropout mask is drawn from a seed and each element's place, and drawn again in the backward:
    it is never stored. It is not torch's mask for the same seed. Autocast leaves the dtype.

    Args:
        x: Shape ``[..., N]``, float32, float16 or bfloat16, of any strides.
        bias: Shape ``[N]``; its dtype may differ from that of x.
        residual: Of the shape, dtype and device of x.
        p: Probability that an element becomes 0, rounded to a multiple of 2^-16, in [0, 1].
        approximate: ``"none"`` for GELU with the error function, ``"tanh"`` for torch's other form.
        gelu: Whether GELU is applied.
        training: Whether dropout happens.
        seed: One int64 on the device of x, for the same mask again; drawn from torch's generator
            where None.

    Returns:
        A contiguous tensor, shape and dtype of x. Computed in float32; for 16-bit dtypes the
        distribution function in GELU is a polynomial that is wrong by at most 1.7e-6, and by 6.6e-6
        of itself between -6 and 6.

    Raises:
        InputError: A shape, dtype, device or range is not as above.

    Cost:
        ``fused.bias_gelu_dropout_residual_forward`` and ``..._backward``: two reads and a write of
        each element, each way.

    Source:
        https://arxiv.org/abs/1606.08415, https://jmlr.org/papers/v15/srivastava14a.html,
        https://doi.org/10.1145/2063384.2063405 (the generator)
    """
    check_float("x", x)
    if x.dim() == 0:
        raise InputError("x must have a dimension, got a scalar")
    p = check_probability("p", p)
    check_approximate(approximate)
    gelu = check_switch("gelu", gelu)
    training = check_switch("training", training)
    check_parameter("bias", bias, (x.shape[-1],), x)
    if residual is not None:
        check_like("residual", residual, "x", x)
    if seed is not None:
        seed = _given_seed(x, seed)
    drops = training and threshold(p)[0] > 0
    if drops and seed is None:  # out of torch's generator, on the device: nothing waits for it
        seed = torch.randint(2**62, (1,), device=x.device)
    seed = seed if drops else None
    activation = {"none": "gelu", "tanh": "gelu_tanh"}[approximate] if gelu else "none"
    args = (x, bias, residual, seed, p if drops else 0.0, activation)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in args[:3]):
        return _BiasGeluDropoutResidual.apply(*args)
    return fwd_op(*args)


def _given_seed(x: Tensor, seed: Tensor) -> Tensor:
    """A seed of one dimension: 64 bits of any value, which are not looked at."""
    check_device("seed", seed, "x", x)
    if seed.dtype != torch.int64 or seed.numel() != 1:
        raise InputError(f"seed must be one int64, got {seed.numel()} of {seed.dtype}")
    return seed if seed.dim() == 1 else seed.view(1)  # the given one: its calls are repeated
