"""Rotary position embedding: each pair of a head's elements is turned by its position's angle.

Source: Su et al. 2021, https://arxiv.org/abs/2104.09864
Cost:   rooftile.cost.formulas.fused.rotary_embedding (memory-bound at every shape)
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._check import check_device, check_float, check_switch
from rooftile.ops._derivatives import once_differentiable, transforms
from rooftile.ops._launch import compiler_options, launch, register
from rooftile.ops._repeat import repeats
from rooftile.ops._replay import PLAIN, empty
from rooftile.plan.launch import power_of_two, row_launch

# ---- 1. reference ------------------------------------------------------------------


def rotary_embedding_ref(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """The definition, in plain PyTorch. It computes in float32, or in float64 for float64."""
    acc = torch.promote_types(x.dtype, torch.float32)
    half = cos.shape[-1]
    cos, sin = (t.to(acc).unsqueeze(-2) for t in (cos, sin))
    turned, rest = x[..., : 2 * half].to(acc), x[..., 2 * half :]
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    else:
        a, b = turned.chunk(2, -1)
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return torch.cat((turned.to(x.dtype), rest), -1)


# ---- 2. kernels --------------------------------------------------------------------


@triton.jit
def _aligned(ptrs, VEC: tl.constexpr):
    """Pointers along rows of whole vectors, known to be aligned to them."""
    if VEC > 1:
        itemsize: tl.constexpr = ptrs.dtype.element_ty.primitive_bitwidth // 8
        ptrs = tl.multiple_of(ptrs, (itemsize, VEC * itemsize))
    return ptrs


@triton.jit
def _turned(a, b, cos, sin):
    """A pair turned; the roundings are written out, so that every form of the kernel has them."""
    return tl.fma(a, cos, -(b * sin)), tl.fma(b, cos, a * sin)


@triton.jit
def rotary_kernel(
    x_ptr,  # [n_batch, n_seq, n_heads, head_dim]
    y_ptr,  # as x
    cos_ptr,  # [n_batch or 1, n_seq, half]
    sin_ptr,  # [n_batch or 1, n_seq, half]
    n_rows,  # n_batch * n_seq * n_heads
    n_seq,
    n_heads,
    half,
    rest,  # head_dim - 2 * half, copied
    stride_xb,
    stride_xs,
    stride_xh,
    stride_xd,
    stride_yb,
    stride_ys,
    stride_yh,
    stride_yd,
    stride_cb,
    stride_cs,
    sign,  # 1, or -1 to turn back
    INTERLEAVED: tl.constexpr,
    COPY_REST: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    VEC: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < n_rows
    head = row % n_heads
    position = row // n_heads
    batch = position // n_seq
    seq = position % n_seq
    x_row = x_ptr + batch * stride_xb + seq * stride_xs + head * stride_xh
    y_row = y_ptr + batch * stride_yb + seq * stride_ys + head * stride_yh
    offs = tl.arange(0, BLOCK_D)[None, :]
    mask = live & (offs // VEC < half // VEC)
    angle = batch * stride_cb + seq * stride_cs + offs
    cos = tl.load(_aligned(cos_ptr + angle, VEC), mask=mask, other=0.0).to(tl.float32)
    sin = tl.load(_aligned(sin_ptr + angle, VEC), mask=mask, other=0.0).to(tl.float32) * sign
    dtype: tl.constexpr = y_ptr.dtype.element_ty
    if INTERLEAVED:
        pair = tl.arange(0, 2 * BLOCK_D)[None, :]
        pair_mask = live & (pair // VEC < 2 * half // VEC)
        x_ptrs = _aligned(x_row + pair * stride_xd, VEC)
        x = tl.load(x_ptrs, mask=pair_mask, other=0.0).to(tl.float32)
        a, b = tl.split(tl.reshape(x, (ROWS, BLOCK_D, 2)))
        first, second = _turned(a, b, cos, sin)
        y = tl.join(first, second)
        y = tl.reshape(y, (ROWS, 2 * BLOCK_D)).to(dtype)
        tl.store(_aligned(y_row + pair * stride_yd, VEC), y, mask=pair_mask)
    else:
        x_ptrs = x_row + offs * stride_xd
        a = tl.load(_aligned(x_ptrs, VEC), mask=mask, other=0.0).to(tl.float32)
        b = tl.load(_aligned(x_ptrs + half * stride_xd, VEC), mask=mask, other=0.0).to(tl.float32)
        first, second = _turned(a, b, cos, sin)
        y_ptrs = y_row + offs * stride_yd
        tl.store(_aligned(y_ptrs, VEC), first.to(dtype), mask=mask)
        y_ptrs = _aligned(y_ptrs + half * stride_yd, VEC)
        tl.store(y_ptrs, second.to(dtype), mask=mask)
    if COPY_REST:
        col = 2 * half + tl.arange(0, BLOCK_REST)[None, :]
        used = live & (col < 2 * half + rest)
        kept = tl.load(x_row + col * stride_xd, mask=used, other=0.0)
        tl.store(y_row + col * stride_yd, kept, mask=used)


# ---- 3. launchers ------------------------------------------------------------------


def _access(half: int, itemsize: int, *tensors: Tensor) -> int:
    """Elements of an access that suit every row, and the halves of a head."""
    width = 16 // itemsize
    for t in tensors:
        if t.stride(-1) != 1:
            return 1
        for s in (*t.stride()[:-1], half, t.data_ptr() // t.element_size()):
            while s % width:
                width //= 2
    return width


def _rotate(
    x: Tensor, cos: Tensor, sin: Tensor, y: Tensor, interleaved: bool, backward: bool
) -> None:
    if x.numel() == 0:
        return
    head_dim, n_heads, n_seq = x.shape[-1], x.shape[-2], x.shape[-3]
    half = cos.shape[-1]
    x4, y4 = (t if t.dim() == 4 else t.unsqueeze(0) for t in (x, y))
    cos, sin = cos.contiguous(), sin.contiguous()
    rest = 0 if y.data_ptr() == x.data_ptr() else head_dim - 2 * half
    itemsize = max(t.element_size() for t in (x, cos))
    n_rows = x.numel() // head_dim
    block_d = power_of_two(half)
    plan = row_launch("rotary", 2 * half, itemsize)
    launch(
        rotary_kernel, (-(-n_rows // plan.rows),), x.device,
        x4, y4, cos, sin, n_rows, n_seq, n_heads, half, rest, *x4.stride(), *y4.stride(),
        cos.stride(0) if cos.dim() == 3 else 0, half, -1.0 if backward else 1.0,
        INTERLEAVED=interleaved, COPY_REST=rest > 0, ROWS=plan.rows, BLOCK_D=block_d,
        BLOCK_REST=power_of_two(rest), VEC=_access(half, itemsize, x4, y4, cos, sin),
        **compiler_options(plan, x.device),
    )  # fmt: skip


def _rotary(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, backward: bool) -> Tensor:
    y = empty(x.shape, x.dtype, x.device)
    _rotate(x, cos, sin, y, interleaved, backward)
    return y


def _rotary_(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> None:
    # torch does so for ops of its own: a backward that has kept x then knows that it changed
    torch.autograd.graph.increment_version(x)
    _rotate(x, cos, sin, x, interleaved, False)


# ---- 4. registration ---------------------------------------------------------------

fwd_op = register(
    "rotary_embedding",
    "(Tensor x, Tensor cos, Tensor sin, bool interleaved, bool backward) -> Tensor",
    _rotary,
    replays=True,
)
inplace_op = register(
    "rotary_embedding_",
    "(Tensor(a!) x, Tensor cos, Tensor sin, bool interleaved) -> ()",
    _rotary_,
)


@torch.library.register_fake("rooftile::rotary_embedding")
def _(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake("rooftile::rotary_embedding_")
def _(x: Tensor, *_: Any) -> None:
    return None


# ---- 5. autograd -------------------------------------------------------------------


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, inplace: bool
    ) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.interleaved = interleaved
        if not inplace:
            return fwd_op(x, cos, sin, interleaved, False)
        ctx.mark_dirty(x)
        inplace_op(x, cos, sin, interleaved)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        return fwd_op(dy, *ctx.saved_tensors, ctx.interleaved, True), None, None, None, None


# ---- 6. public op ------------------------------------------------------------------


@repeats()
def rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Turn each pair (a, b) of a head by its position's angle: ``(a cos - b sin, b cos + a sin)``.

    Autocast leaves the dtype as it is.

    Args:
        x: Queries or keys, shape ``[B, S, H, D]`` or ``[S, H, D]``, float32, float16 or bfloat16,
            of any strides.
        cos: Cosines, shape ``[S, R / 2]`` or ``[B, S, R / 2]`` with ``R <= D``; the D - R last
            elements of a head stay as they are.
        sin: Sines, of the shape and dtype of ``cos``.
        interleaved: Pairs are neighbours; otherwise they are R / 2 apart.
        inplace: Write over x. Then x may be no leaf that asks for a gradient nor a view of one, and
            cos and sin may not lie in it.

    Returns:
        A contiguous tensor, shape and dtype of x; x itself in place. Computed in float32.

    Raises:
        InputError: A shape, dtype or device is not as above, ``cos`` or ``sin`` asks for a
            gradient, or torch would write over no such x.

    Cost:
        ``fused.rotary_embedding``: one read and one write of each element.

    Source:
        https://arxiv.org/abs/2104.09864
    """
    interleaved = check_switch("interleaved", interleaved)
    inplace = check_switch("inplace", inplace)
    _check(x, cos, sin)
    if inplace:
        _check_inplace(x, cos, sin)
    if x.requires_grad and torch.is_grad_enabled():
        return _Rotary.apply(x, cos, sin, interleaved, inplace)
    if not inplace:
        return fwd_op(x, cos, sin, interleaved, False)
    inplace_op(x, cos, sin, interleaved)
    return x


def _check(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    check_float("x", x)
    if x.dim() not in (3, 4):
        raise InputError(f"x must have shape [B, S, H, D] or [S, H, D], got {list(x.shape)}")
    n_seq, head_dim = x.shape[-3], x.shape[-1]
    for name, t in (("cos", cos), ("sin", sin)):
        check_float(name, t)
        check_device(name, t, "x", x)
        if t.requires_grad and torch.is_grad_enabled():
            raise InputError(f"{name} must not ask for a gradient: none is computed")
        whole = t.dim() == 2 or (t.dim() == 3 and x.dim() == 4 and t.shape[0] == x.shape[0])
        if not whole or t.shape[-2] != n_seq or not 1 <= t.shape[-1] <= head_dim // 2:
            raise InputError(
                f"{name} must have shape [S, R / 2] or [B, S, R / 2] with S = {n_seq} and "
                f"R <= {head_dim}, got {list(t.shape)}"
            )
    if cos.shape != sin.shape or cos.dtype != sin.dtype:
        raise InputError(
            f"sin must be like cos, {list(cos.shape)} {cos.dtype}, "
            f"got {list(sin.shape)} {sin.dtype}"
        )


def _check_inplace(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """What torch refuses to write over; it would look only after the launch."""
    if 0 in [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]:
        raise InputError("x must not be expanded when inplace is set: its rows lie over each other")
    if x.requires_grad and torch.is_grad_enabled():
        if not torch.compiler.is_compiling() and x._is_view() and _made_apart(x):
            raise InputError(
                "x must be no view made by chunk, split or unbind, nor one made under no_grad, "
                "when inplace is set: its gradient would be lost"
            )
        if x.is_leaf or (x._base is not None and x._base.is_leaf):
            raise InputError("x must be no leaf that asks for a gradient when inplace is set")
    if torch.compiler.is_compiling():
        return
    if transforms():
        raise InputError("inplace must be False within a transform of torch.func")
    if x.is_inference() and not torch.is_inference_mode_enabled():
        raise InputError("x must be no tensor of torch.inference_mode when inplace is set outside")
    for name, t in (("cos", cos), ("sin", sin)):
        if type(x) in PLAIN and type(t) in PLAIN and _lies_in(t, x):
            raise InputError(f"{name} must not lie in x when inplace is set")


def _made_apart(x: Tensor) -> bool:
    """Whether a view's gradient does not reach its base."""
    return bool(torch._C._autograd._get_creation_meta(x) != torch._C._autograd.CreationMeta.DEFAULT)


def _lies_in(t: Tensor, x: Tensor) -> bool:
    """Whether they share memory, of those that have no gaps, as torch looks for it."""
    if not (t.is_contiguous() and x.is_contiguous()) or t.is_meta or not t.numel():
        return False
    t_start, x_start = t.data_ptr(), x.data_ptr()
    return t_start < x_start + x.nbytes and x_start < t_start + t.nbytes
