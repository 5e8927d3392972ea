"""Launches the attention backward for Hopper, with the passes before and after it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from rooftile.ops._launch import launch, sm_count
from rooftile.ops.flash.hopper_bwd_kernel import attention_bwd_kernel
from rooftile.ops.flash.hopper_bwd_q_kernel import attention_bwd_q_kernel
from rooftile.ops.flash.hopper_bwd_rows import after_kernel, before_kernel
from rooftile.ops.flash.hopper_bwd_wide_kernels import attention_bwd_kv_kernel
from rooftile.ops.flash.hopper_fwd import tile_table
from rooftile.ops.flash.hopper_tma import flat_tiles, head_tiles, ragged_tiles, why_not
from rooftile.ops.flash.packed_tiles import Packing, Tiling, packed_tiles, row_blocks
from rooftile.plan.launch_hopper import (
    Band,
    FlashBackward,
    FlashBackwardWide,
    backward_apart,
    flash_backward,
    sums_queries,
)
from rooftile.plan.schedule_hopper import backward_schedule

_LOG2E = math.log2(math.e)
_ROWS = 64


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
    packing: Packing | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """Of the band, 0 for none."""
        return self.band.left or 0, self.band.right or 0

    @property
    def mask(self) -> dict[str, int]:
        """Which bounds the kernels are compiled for, and whether sequences are packed."""
        return {
            "RIGHT": self.band.right is not None,
            "LEFT": self.band.left is not None,
            "PACKED": 0 if self.packing is None else self.packing.apart,
            "BOTTOM": self.packing is not None and self.packing.bottom,
        }

    @property
    def blocks(self) -> int:
        """Blocks of 64 queries of a head in the vectors of rows."""
        n_queries = self.q.shape[2]
        return (
            -(-n_queries // _ROWS) if self.packing is None else self.packing.row_blocks(n_queries)
        )

    @property
    def lines(self) -> int:
        """Queries of a head as the kernels count them: packed, every block of the vectors whole."""
        return self.q.shape[2] if self.packing is None else self.blocks * _ROWS

    def tiles(self, t: Tensor, rows: int, columns: int) -> TensorDescriptor:
        """Tiles of an operand."""
        return (head_tiles if self.packing is None else ragged_tiles)(t, rows, columns)

    def records(self, rows: int, step: int, width: int, of_keys: bool, dealt: bool = False) -> Any:
        """The device's table of tiles, and how many each block has; (None, None) if not packed."""
        if self.packing is None:
            return None, None
        heads, kv_heads = self.q.shape[1], self.k.shape[1]
        tiling = Tiling(rows, step, kv_heads if of_keys else heads, heads // kv_heads, width,
                        self.band, of_keys, dealt)  # fmt: skip
        return packed_tiles(self.packing, tiling, self.q.shape[2], self.k.shape[2])


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
    packing: Packing | None = None,
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
        packing: As for ``attention_fwd``.
    """
    if why_not("do", do) is not None:
        do = do.contiguous()
    call = Backward(q, k, v, o, lse, do, dq, dk, dv, scale, Band(left, right), packing)
    width = max(q.shape[-1], v.shape[-1])
    if sums_queries(width, deterministic):
        launch_sums(call, flash_backward(width, _steps(call)))
    else:
        launch_apart(call, *backward_apart(width))


def _steps(call: Backward) -> float:
    """Blocks of queries that a tile of keys sees, about, over all heads of its group."""
    q, k = call.q, call.k
    # packed, of a sequence of mean length
    queries = q.shape[2] if call.packing is None else q.shape[2] / max(1, call.packing.batch)
    seen = queries / 2 if call.band.right is not None else queries
    if call.band.left is not None and call.band.right is not None:
        seen = min(seen, call.band.left + call.band.right + 1)
    return seen * q.shape[1] / (k.shape[1] * _ROWS)


def launch_sums(call: Backward, plan: FlashBackward) -> None:
    """All three gradients in one kernel that adds dQ to float32 sums in global memory."""
    batch, heads, n_queries, columns = call.q.shape
    device = call.q.device
    lines = batch * heads * call.blocks * _ROWS * plan.width // 32
    sums = torch.empty(lines, 32, device=device, dtype=torch.float32)
    where = _where(call)
    rows = _row_vectors(call, plan.width, sums, where)
    _launch_keys(call, plan, rows, sums)
    launch(
        after_kernel, (call.blocks * plan.parts, batch * heads), device,
        sums, call.dq, where, heads, n_queries, columns, *call.dq.stride()[:3], call.scale,
        D=plan.width, PARTS=plan.parts, num_warps=4,
    )  # fmt: skip


def launch_apart(
    call: Backward, keys: FlashBackward | FlashBackwardWide, queries: FlashBackwardWide
) -> None:
    """dK and dV in one kernel, dQ in another: 7 products for 5, the same bits each time."""
    rows = _row_vectors(call, keys.width, None, _where(call))
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
    table, count = call.records(plan.keys, plan.block_m, plan.width, True, plan.persistent)
    if table is None:
        table, count = _schedule(
            plan, q.shape[0] * k.shape[1], q.shape[2], k.shape[2], call.band, q.device
        )
        tiles = q.shape[0] * k.shape[1] * -(-k.shape[2] // plan.keys)
    else:
        tiles = len(table)
    tail = call.packing is not None or k.shape[2] % plan.keys != 0
    bottom = call.packing is not None and call.packing.bottom
    grouped = q.shape[1] != k.shape[1]
    launch(
        attention_bwd_kernel, (len(count) if plan.persistent else tiles,), q.device,
        *(call.tiles(t, plan.block_m, plan.width) for t in (q, call.do)),
        *(call.tiles(t, plan.block_n, plan.width) for t in (k, call.v, call.dk, call.dv)),
        None if sums is None else flat_tiles(sums, [2 * plan.width // plan.parts, 32]),
        *(flat_tiles(t, [_ROWS]) for t in rows),
        table, count, table.shape[1], k.shape[1], q.shape[1] // k.shape[1], call.lines, k.shape[2],
        *call.bounds, call.scale * _LOG2E,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, D=plan.width, NB=plan.stages,
        NS=plan.ds_stages, K_SLOTS=plan.k_stages, V_SLOTS=plan.v_stages, PARTS=plan.parts,
        MAIN_REGS=plan.main_registers, DQ_REGS=plan.dq_registers,
        PRODUCER_REGS=plan.producer_registers, P16=plan.p_16bit, KV_REG=plan.kv_in_registers,
        BRANCH=plan.branch or tail or call.band != Band(), TAIL=tail, **call.mask,
        SKIPS=call.band.right is not None and (plan.skips or grouped or bottom), GROUPED=grouped,
        DQ=sums is not None, PERSISTENT=plan.persistent, num_warps=4,
    )  # fmt: skip


def _launch_wide_keys(call: Backward, plan: FlashBackwardWide, rows: tuple[Tensor, Tensor]) -> None:
    """dK and dV of more than 128 columns."""
    q, k = call.q, call.k
    table, _ = call.records(plan.block, plan.block, plan.width, True)
    grid = (-(-k.shape[2] // plan.block), k.shape[0] * k.shape[1])
    launch(
        attention_bwd_kv_kernel, grid if table is None else (len(table), 1), q.device,
        *(call.tiles(t, plan.block, plan.width) for t in (q, call.do, k, call.v, call.dk, call.dv)),
        *(flat_tiles(t, [_ROWS]) for t in rows), table,
        k.shape[1], q.shape[1] // k.shape[1], call.lines, k.shape[2],
        *call.bounds, call.scale * _LOG2E, call.scale,
        BLOCK=plan.block, D=plan.width, NB=plan.stages, MAIN_REGS=plan.main_registers,
        PRODUCER_REGS=plan.producer_registers, **call.mask, num_warps=4,
    )  # fmt: skip


def _launch_queries(call: Backward, plan: FlashBackwardWide, rows: tuple[Tensor, Tensor]) -> None:
    """dQ alone."""
    q, k = call.q, call.k
    table, _ = call.records(2 * plan.block, plan.block, plan.width, False)
    grid = (-(-q.shape[2] // (2 * plan.block)), q.shape[0] * q.shape[1])
    launch(
        attention_bwd_q_kernel, grid if table is None else (len(table), 1), q.device,
        *(call.tiles(t, plan.block, plan.width) for t in (q, call.do, call.dq, k, call.v)), *rows,
        table, q.shape[1], q.shape[1] // k.shape[1], call.lines, k.shape[2],
        *call.bounds, call.scale * _LOG2E, call.scale,
        BLOCK_M=plan.block, BLOCK_N=plan.block, D=plan.width, SLOTS=plan.slots,
        MAIN_REGS=plan.main_registers, PRODUCER_REGS=plan.producer_registers, **call.mask,
        num_warps=4,
    )  # fmt: skip


def _where(call: Backward) -> Tensor | None:
    """Where the rows of each block of the vectors of rows lie; None if it is where they do."""
    return None if call.packing is None else row_blocks(call.packing, call.q.shape[2])


def _row_vectors(
    call: Backward, width: int, sums: Tensor | None, where: Tensor | None
) -> tuple[Tensor, Tensor]:
    """-lse / scale and -rowsum(o do), each head padded to 64 rows; zeros in sums.

    One block more than there is: a tile of 128 queries may end past the last one.
    """
    batch, heads, n_queries, columns = call.o.shape
    size = (batch * heads * call.blocks + 1) * _ROWS
    nlse = torch.empty(size, device=call.o.device, dtype=torch.float32)
    ndelta = torch.empty_like(nlse)
    launch(
        before_kernel, (call.blocks, batch * heads), call.o.device,
        call.o, call.do, call.lse, nlse, ndelta, sums, where, heads, n_queries, columns,
        *call.o.stride()[:3], *call.do.stride()[:3], 1.0 / call.scale,
        D=width, SUMS=sums is not None, num_warps=4,
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
