"""Launches the attention backward for Hopper, with the passes before and after it."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from rooftile.ops._launch import launch, sm_count
from rooftile.ops.flash.hopper_bwd_kernel import attention_bwd_kernel
from rooftile.ops.flash.hopper_bwd_wide_kernels import (
    attention_bwd_kv_kernel,
    attention_bwd_q_kernel,
)
from rooftile.ops.flash.hopper_fwd import tile_table
from rooftile.ops.flash.hopper_tma import flat_tiles, head_tiles, why_not
from rooftile.plan.launch_hopper import (
    BACKWARD_WIDE,
    Band,
    FlashBackward,
    backward_schedule,
    flash_backward,
)

_LOG2E = math.log2(math.e)
_ROWS = 64


@triton.jit
def _before_kernel(o_ptr, do_ptr, lse_ptr, nlse_ptr, ndelta_ptr, acc_ptr, turn_ptr, n_heads,
                   n_queries, n_columns, stride_ob, stride_oh, stride_om, stride_db, stride_dh,
                   stride_dm, inv_scale, BLOCK_M: tl.constexpr, D: tl.constexpr,
                   SUMS: tl.constexpr, ORDERED: tl.constexpr):  # fmt: skip
    """-rowsum(o do), -lse in units of the raw product, and zeros for dQ; 64 queries a program."""
    block, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = bh // n_heads, bh % n_heads
    offs_m = block * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    mask_m = offs_m < n_queries
    mask = mask_m[:, None] & (offs_d < n_columns)[None, :]
    rows = offs_m.to(tl.int64)[:, None]
    o = tl.load(o_ptr + b * stride_ob + h * stride_oh + rows * stride_om + offs_d[None, :],
                mask=mask, other=0.0).to(tl.float32)  # fmt: skip
    do = tl.load(do_ptr + b * stride_db + h * stride_dh + rows * stride_dm + offs_d[None, :],
                 mask=mask, other=0.0).to(tl.float32)  # fmt: skip
    at = bh * tl.num_programs(0) + block
    flat = at * BLOCK_M + tl.arange(0, BLOCK_M)
    lse = tl.load(lse_ptr + bh * n_queries + offs_m, mask=mask_m, other=float("-inf"))
    # a row past the end or one that sees no key: every weight is exp2(-inf) = 0
    nlse = tl.where(lse == float("-inf"), lse, -lse * inv_scale)
    tl.store(nlse_ptr + flat, nlse)
    tl.store(ndelta_ptr + flat, -tl.sum(o * do, 1))
    if SUMS:
        zeros = tl.zeros([BLOCK_M * D], tl.float32)
        tl.store(acc_ptr + at * (BLOCK_M * D) + tl.arange(0, BLOCK_M * D), zeros)
    if ORDERED:
        tl.store(turn_ptr + at, 0)


@triton.jit
def _after_kernel(acc_ptr, dq_ptr, n_heads, n_queries, n_columns, stride_b, stride_h, stride_m,
                  scale, D: tl.constexpr, PARTS: tl.constexpr):  # fmt: skip
    """dQ in fragment order to scaled rows; 64 rows and D / PARTS columns a program."""
    W: tl.constexpr = D // PARTS
    block, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // n_heads, bh % n_heads
    at = bh * tl.num_programs(0) + tl.program_id(0)
    x = tl.load(acc_ptr + at * (64 * W) + tl.arange(0, 64 * W))
    y = tl.permute(tl.reshape(x, [4, W // 8, 4, 2, 4, 2, 2]), (0, 5, 2, 3, 1, 4, 6))
    y = tl.reshape(y, [64, W]) * scale
    offs_m = block * 64 + tl.arange(0, 64)
    offs_d = part * W + tl.arange(0, W)
    rows = offs_m.to(tl.int64)[:, None] * stride_m
    mask = (offs_m < n_queries)[:, None] & (offs_d < n_columns)[None, :]
    tl.store(dq_ptr + b * stride_b + h * stride_h + rows + offs_d[None, :],
             y.to(dq_ptr.dtype.element_ty), mask=mask)  # fmt: skip


def attention_bwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    do: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    *,
    scale: float,
    left: int | None = None,
    right: int | None = None,
    deterministic: bool = False,
) -> None:
    """Write the gradients of ``attention_fwd``.

    Args:
        q: As for ``attention_fwd``, as are k, v, o, lse, scale, left and right.
        k: Keys.
        v: Values.
        o: The forward's output.
        lse: The forward's log-sum-exp.
        do: Gradient of o; copied where its strides do not serve.
        dq: Like q; written.
        dk: Like k; written.
        dv: Like v; written.
        scale: Factor of the scores.
        left: Left bound of the band.
        right: Right bound of the band.
        deterministic: Sum dQ in one order; else its last bits may differ between runs. dK and dV
            are the same each time.
    """
    if why_not("do", do) is not None:
        do = do.contiguous()
    band = Band(left, right)
    width = max(q.shape[-1], v.shape[-1])
    if width > 128:
        launch_bwd_wide(q, k, v, o, lse, do, dq, dk, dv, scale, band)
        return
    plan = flash_backward(width)
    launch_bwd(plan, q, k, v, o, lse, do, dq, dk, dv, scale, band, deterministic)


def launch_bwd(
    plan: FlashBackward,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    do: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    scale: float,
    band: Band,
    deterministic: bool,
) -> None:
    """The launches with given parameters."""
    batch, heads, n_queries, _ = q.shape
    kv_heads, n_keys = k.shape[1], k.shape[2]
    blocks = -(-n_queries // _ROWS)
    lines = batch * heads * blocks
    acc = torch.empty(lines * _ROWS * plan.width // 32, 32, device=q.device, dtype=torch.float32)
    turn = torch.empty(lines, device=q.device, dtype=torch.int32) if deterministic else None
    nlse, ndelta = _row_vectors(o, lse, do, scale, plan.width, acc, turn)
    table, count = _schedule(plan, batch * kv_heads, n_queries, n_keys, band, q.device)
    part = plan.width // plan.parts
    launch(
        attention_bwd_kernel, (len(count),), q.device,
        *(head_tiles(t, plan.block_m, plan.width) for t in (q, do)),
        *(head_tiles(t, plan.block_n, plan.width) for t in (k, v, dk, dv)),
        flat_tiles(acc, [2 * part, 32]), flat_tiles(nlse, [_ROWS]), flat_tiles(ndelta, [_ROWS]),
        turn if turn is not None else count, table, count, table.shape[1], kv_heads,
        heads // kv_heads, n_queries, n_keys,
        band.left or 0, band.right or 0, scale * _LOG2E, scale,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, D=plan.width, NB=plan.stages,
        NS=plan.ds_stages, V_SLOTS=plan.v_stages, PARTS=plan.parts,
        MAIN_REGS=plan.main_registers, DQ_REGS=plan.dq_registers,
        PRODUCER_REGS=plan.producer_registers, P16=plan.p_16bit, KV_REG=plan.kv_in_registers,
        BRANCH=plan.branch or n_keys % plan.keys != 0 or band != Band(),
        RIGHT=band.right is not None, LEFT=band.left is not None, ORDERED=deterministic,
        num_warps=4,
    )  # fmt: skip
    launch(
        _after_kernel, (blocks * plan.parts, batch * heads), q.device,
        acc, dq, heads, n_queries, q.shape[-1], *dq.stride()[:3], scale,
        D=plan.width, PARTS=plan.parts, num_warps=4,
    )  # fmt: skip


def launch_bwd_wide(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    do: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    scale: float,
    band: Band,
) -> None:
    """The launches above 128 columns: dK and dV, then dQ; the same bits each time."""
    batch, heads, n_queries, _ = q.shape
    kv_heads, n_keys = k.shape[1], k.shape[2]
    plan = BACKWARD_WIDE
    nlse, ndelta = _row_vectors(o, lse, do, scale, plan.width, None, None)
    mask = {"RIGHT": band.right is not None, "LEFT": band.left is not None}
    registers = {
        "MAIN_REGS": plan.main_registers, "PRODUCER_REGS": plan.producer_registers, "num_warps": 4,
    }  # fmt: skip
    bounds = (band.left or 0, band.right or 0, scale * _LOG2E, scale)
    launch(
        attention_bwd_kv_kernel, (-(-n_keys // plan.block), batch * kv_heads), q.device,
        *(head_tiles(t, plan.block, plan.width) for t in (q, do, k, v, dk, dv)),
        flat_tiles(nlse, [_ROWS]), flat_tiles(ndelta, [_ROWS]),
        kv_heads, heads // kv_heads, n_queries, n_keys, *bounds,
        BLOCK=plan.block, D=plan.width, NB=plan.stages, **mask, **registers,
    )  # fmt: skip
    launch(
        attention_bwd_q_kernel, (-(-n_queries // (2 * plan.block)), batch * heads), q.device,
        *(head_tiles(t, plan.block, plan.width) for t in (q, do, dq, k, v)), nlse, ndelta,
        heads, heads // kv_heads, n_queries, n_keys, *bounds,
        BLOCK_M=plan.block, BLOCK_N=plan.block, D=plan.width, SLOTS=plan.slots, **mask, **registers,
    )  # fmt: skip


def _row_vectors(
    o: Tensor, lse: Tensor, do: Tensor, scale: float, width: int, acc: Tensor | None,
    turn: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """-lse / scale and -rowsum(o do), each head padded to 64 rows; zeros in acc and turn.

    One block more than there is: a tile of 128 queries may end past the last one.
    """
    batch, heads, n_queries, columns = o.shape
    blocks = -(-n_queries // _ROWS)
    size = (batch * heads * blocks + 1) * _ROWS
    nlse = torch.empty(size, device=o.device, dtype=torch.float32)
    ndelta = torch.empty_like(nlse)
    launch(
        _before_kernel, (blocks, batch * heads), o.device,
        o, do, lse, nlse, ndelta, acc, turn, heads, n_queries, columns,
        *o.stride()[:3], *do.stride()[:3], 1.0 / scale,
        BLOCK_M=_ROWS, D=width, SUMS=acc is not None,
        ORDERED=turn is not None, num_warps=4,
    )  # fmt: skip
    return nlse, ndelta


@lru_cache(maxsize=64)
def _schedule(
    plan: FlashBackward, heads: int, n_queries: int, n_keys: int, band: Band, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The backward's table of tiles on a device."""
    lists = backward_schedule(plan, heads, n_queries, n_keys, band, sm_count(device))
    return tile_table(lists, device)
