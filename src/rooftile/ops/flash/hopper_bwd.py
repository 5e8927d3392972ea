"""Launches the attention backward for Hopper, with the passes before and after it."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
    Band,
    FlashBackward,
    FlashBackwardWide,
    backward_apart,
    backward_schedule,
    flash_backward,
    sums_queries,
)

_LOG2E = math.log2(math.e)
_ROWS = 64


@triton.jit
def _before_kernel(o_ptr, do_ptr, lse_ptr, nlse_ptr, ndelta_ptr, acc_ptr, n_heads,
                   n_queries, n_columns, stride_ob, stride_oh, stride_om, stride_db, stride_dh,
                   stride_dm, inv_scale, BLOCK_M: tl.constexpr, D: tl.constexpr,
                   SUMS: tl.constexpr):  # fmt: skip
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


@dataclass(frozen=True, slots=True)
class Backward:
    """What a backward reads and writes, as ``attention_bwd`` says."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    lse: Tensor
    do: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor
    scale: float
    band: Band

    @property
    def bounds(self) -> tuple[int, int]:
        """Of the band, 0 for none."""
        return self.band.left or 0, self.band.right or 0

    @property
    def mask(self) -> dict[str, bool]:
        """Which bounds the kernels are compiled for."""
        return {"RIGHT": self.band.right is not None, "LEFT": self.band.left is not None}


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
    call = Backward(q, k, v, o, lse, do, dq, dk, dv, scale, Band(left, right))
    width = max(q.shape[-1], v.shape[-1])
    if sums_queries(width, deterministic):
        launch_sums(call, flash_backward(width, _steps(call)))
    else:
        launch_apart(call, *backward_apart(width))


def _steps(call: Backward) -> float:
    """Blocks of queries that a tile of keys sees, about, over all heads of its group."""
    q, k = call.q, call.k
    seen = q.shape[2] / 2 if call.band.right is not None else q.shape[2]
    if call.band.left is not None and call.band.right is not None:
        seen = min(seen, call.band.left + call.band.right + 1)
    return seen * q.shape[1] / (k.shape[1] * _ROWS)


def launch_sums(call: Backward, plan: FlashBackward) -> None:
    """All three gradients in one kernel that adds dQ to float32 sums in global memory."""
    batch, heads, n_queries, columns = call.q.shape
    device, blocks = call.q.device, -(-n_queries // _ROWS)
    lines = batch * heads * blocks * _ROWS * plan.width // 32
    sums = torch.empty(lines, 32, device=device, dtype=torch.float32)
    rows = _row_vectors(call, plan.width, sums)
    _launch_keys(call, plan, rows, sums)
    launch(
        _after_kernel, (blocks * plan.parts, batch * heads), device,
        sums, call.dq, heads, n_queries, columns, *call.dq.stride()[:3], call.scale,
        D=plan.width, PARTS=plan.parts, num_warps=4,
    )  # fmt: skip


def launch_apart(
    call: Backward, keys: FlashBackward | FlashBackwardWide, queries: FlashBackwardWide
) -> None:
    """dK and dV in one kernel, dQ in another: 7 products for 5, the same bits each time."""
    rows = _row_vectors(call, keys.width, None)
    if isinstance(keys, FlashBackward):
        _launch_keys(call, keys, rows, None)
    else:
        _launch_wide_keys(call, keys, rows)
    _launch_queries(call, queries, rows)


def _launch_keys(
    call: Backward, plan: FlashBackward, rows: tuple[Tensor, Tensor], sums: Tensor | None
) -> None:
    """dK and dV of up to 128 columns, and the sums of dQ if there are any."""
    q, k = call.q, call.k
    tiles = q.shape[0] * k.shape[1] * -(-k.shape[2] // plan.keys)
    table, count = _schedule(
        plan, q.shape[0] * k.shape[1], q.shape[2], k.shape[2], call.band, q.device
    )
    tail = k.shape[2] % plan.keys != 0
    grouped = q.shape[1] != k.shape[1]
    launch(
        attention_bwd_kernel, (len(count) if plan.persistent else tiles,), q.device,
        *(head_tiles(t, plan.block_m, plan.width) for t in (q, call.do)),
        *(head_tiles(t, plan.block_n, plan.width) for t in (k, call.v, call.dk, call.dv)),
        None if sums is None else flat_tiles(sums, [2 * plan.width // plan.parts, 32]),
        *(flat_tiles(t, [_ROWS]) for t in rows),
        table, count, table.shape[1], k.shape[1], q.shape[1] // k.shape[1], q.shape[2], k.shape[2],
        *call.bounds, call.scale * _LOG2E,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, D=plan.width, NB=plan.stages,
        NS=plan.ds_stages, K_SLOTS=plan.k_stages, V_SLOTS=plan.v_stages, PARTS=plan.parts,
        MAIN_REGS=plan.main_registers, DQ_REGS=plan.dq_registers,
        PRODUCER_REGS=plan.producer_registers, P16=plan.p_16bit, KV_REG=plan.kv_in_registers,
        BRANCH=plan.branch or tail or call.band != Band(), TAIL=tail, **call.mask,
        SKIPS=call.band.right is not None and (plan.skips or grouped), GROUPED=grouped,
        DQ=sums is not None, PERSISTENT=plan.persistent, num_warps=4,
    )  # fmt: skip


def _launch_wide_keys(call: Backward, plan: FlashBackwardWide, rows: tuple[Tensor, Tensor]) -> None:
    """dK and dV of more than 128 columns."""
    q, k = call.q, call.k
    launch(
        attention_bwd_kv_kernel, (-(-k.shape[2] // plan.block), k.shape[0] * k.shape[1]), q.device,
        *(head_tiles(t, plan.block, plan.width) for t in (q, call.do, k, call.v, call.dk, call.dv)),
        *(flat_tiles(t, [_ROWS]) for t in rows),
        k.shape[1], q.shape[1] // k.shape[1], q.shape[2], k.shape[2],
        *call.bounds, call.scale * _LOG2E, call.scale,
        BLOCK=plan.block, D=plan.width, NB=plan.stages, MAIN_REGS=plan.main_registers,
        PRODUCER_REGS=plan.producer_registers, **call.mask, num_warps=4,
    )  # fmt: skip


def _launch_queries(call: Backward, plan: FlashBackwardWide, rows: tuple[Tensor, Tensor]) -> None:
    """dQ alone."""
    q, k = call.q, call.k
    launch(
        attention_bwd_q_kernel,
        (-(-q.shape[2] // (2 * plan.block)), q.shape[0] * q.shape[1]), q.device,
        *(head_tiles(t, plan.block, plan.width) for t in (q, call.do, call.dq, k, call.v)), *rows,
        q.shape[1], q.shape[1] // k.shape[1], q.shape[2], k.shape[2],
        *call.bounds, call.scale * _LOG2E, call.scale,
        BLOCK_M=plan.block, BLOCK_N=plan.block, D=plan.width, SLOTS=plan.slots,
        MAIN_REGS=plan.main_registers, PRODUCER_REGS=plan.producer_registers, **call.mask,
        num_warps=4,
    )  # fmt: skip


def _row_vectors(call: Backward, width: int, sums: Tensor | None) -> tuple[Tensor, Tensor]:
    """-lse / scale and -rowsum(o do), each head padded to 64 rows; zeros in sums.

    One block more than there is: a tile of 128 queries may end past the last one.
    """
    batch, heads, n_queries, columns = call.o.shape
    blocks = -(-n_queries // _ROWS)
    size = (batch * heads * blocks + 1) * _ROWS
    nlse = torch.empty(size, device=call.o.device, dtype=torch.float32)
    ndelta = torch.empty_like(nlse)
    launch(
        _before_kernel, (blocks, batch * heads), call.o.device,
        call.o, call.do, call.lse, nlse, ndelta, sums, heads, n_queries, columns,
        *call.o.stride()[:3], *call.do.stride()[:3], 1.0 / call.scale,
        BLOCK_M=_ROWS, D=width, SUMS=sums is not None, num_warps=4,
    )  # fmt: skip
    return nlse, ndelta


@lru_cache(maxsize=64)
def _schedule(
    plan: FlashBackward, heads: int, n_queries: int, n_keys: int, band: Band, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The backward's table of tiles on a device."""
    blocks = sm_count(device) if plan.persistent else 1  # one list: in the order of the grid
    lists = backward_schedule(plan, heads, n_queries, n_keys, band, blocks)
    return tile_table(lists, device)
