"""Launches the attention forward for Hopper, and says which calls it can take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from rooftile.ops._launch import launch, sm_count
from rooftile.ops.flash.hopper_fwd_kernel import attention_fwd_kernel
from rooftile.ops.flash.hopper_tma import head_tiles, ragged_tiles, why_not
from rooftile.ops.flash.packed_tiles import Packing, Tiling, packed_tiles
from rooftile.plan.launch_hopper import WIDTHS, Band, FlashForward, flash_forward
from rooftile.plan.schedule_hopper import forward_schedule

_LOG2E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Edges:
    """What the kernel masks.

    Attributes:
        where: 0 nothing, 1 the first block of a tile, 2 any block.
        skips: Whether a warpgroup may skip the last block of its tile.
    """

    where: int
    skips: bool


def edges_of(plan: FlashForward, n_keys: int, band: Band) -> Edges:
    """Where tiles of scores have something to mask."""
    right = band.right
    skips = right is not None and (plan.rows != plan.block_n or right % plan.block_n != 0)
    if band.left is None and right is None:
        return Edges(int(n_keys % plan.block_n != 0), False)
    if band.left is None and right is not None and right >= 0 and right % plan.block_m == 0:
        return Edges(1, skips)
    return Edges(2, skips)


def supports(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> str | None:
    """Why the Hopper forward cannot take a call, None if it can.

    Args:
        q: (B, H, Sq, D), of any strides.
        k: (B, Hkv, Sk, D).
        v: (B, Hkv, Sk, Dv).
        scale: Factor of the scores.

    Returns:
        The reason in words, for ``attention_plan``.
    """
    if q.device.type != "cuda" or torch.version.hip is not None:
        return f"{q.device.type} is no NVIDIA GPU"
    capability = torch.cuda.get_device_capability(q.device)
    if capability != (9, 0):
        return f"compute capability {capability[0]}.{capability[1]} is not Hopper's 9.0"
    return shapes_reason(q, k, v, scale)


def shapes_reason(q: Tensor, k: Tensor, v: Tensor, scale: float) -> str | None:
    """``supports`` without the device."""
    for name, t in (("q", q), ("k", k), ("v", v)):
        reason = why_not(name, t)
        if reason:
            return reason
    if q.shape[-1] > WIDTHS[-1] or v.shape[-1] > WIDTHS[-1]:
        return f"head dimension {max(q.shape[-1], v.shape[-1])} is above {WIDTHS[-1]}"
    if q.shape[-1] <= 32 and v.shape[-1] <= 32:
        return f"head dimension {q.shape[-1]} would leave half of each tile of 64 columns empty"
    if not scale > 0.0:
        return f"scale {scale} is not above 0"
    if 0 in q.shape or 0 in k.shape or 0 in v.shape:
        return "a tensor is empty"
    if q.shape[0] * q.shape[1] >= 1 << 15 or max(q.shape[2], k.shape[2]) >= 1 << 22:
        return "more than 32,767 heads or 4,194,303 rows"
    return None


def attention_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    *,
    scale: float,
    left: int | None = None,
    right: int | None = None,
    packing: Packing | None = None,
) -> None:
    """Write softmax(scale q k^T) v and its row log-sum-exp.

    Args:
        q: (B, H, Sq, D) in float16 or bfloat16.
        k: (B, Hkv, Sk, D); Hkv divides H.
        v: (B, Hkv, Sk, Dv).
        o: (B, H, Sq, Dv), of any strides that ``supports`` allows; written. 0 where a query sees no
            key.
        lse: (B, H, Sq) float32, contiguous; the natural logarithm; written. -inf where a query sees
            no key.
        scale: Factor of the scores, above 0.
        left: Query i sees keys from ``i - left`` on; None: all.
        right: Query i sees keys up to ``i + right``; None: all. 0 is the causal mask aligned at the
            top left, Sk - Sq the one aligned at the bottom right.
        packing: Where sequences lie in packed operands: B is 1, and the bounds count as it says.
    """
    band, of = Band(left, right), 1 if packing is None else max(1, packing.batch)
    keys = band.seen(q.shape[2] // of, k.shape[2] // of)  # packed, in one of mean length
    plan = flash_forward(max(q.shape[-1], v.shape[-1]), keys, left is not None)
    launch_fwd(plan, q, k, v, o, lse, scale, band, packing)


def launch_fwd(
    plan: FlashForward,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    scale: float,
    band: Band,
    packing: Packing | None = None,
) -> None:
    """The launch with given parameters."""
    batch, heads, n_queries, _ = q.shape
    n_keys, group = k.shape[2], heads // k.shape[1]
    if packing is None:
        table, count = _schedule(plan, batch * heads, group, n_queries, n_keys, band, q.device)
        tail, edges = n_keys % plan.block_n != 0, edges_of(plan, n_keys, band)
    else:
        tiling = Tiling(plan.rows, plan.block_n, heads, group, plan.width, band)
        table, count = packed_tiles(packing, tiling, n_queries, n_keys)
        tail, edges = True, edges_of(plan, 1, band)  # any number of keys
        if packing.bottom and band != Band():
            edges = Edges(2, band.right is not None)
    columns, tiles = plan.q_registers or plan.width, head_tiles if packing is None else ragged_tiles
    # a second slot of Q spares the causal tiles' ends spills, and costs the others 2 %
    slots = 2 if plan.q_registers == plan.width and band.right is not None else 1
    launch(
        attention_fwd_kernel, (len(count),), q.device,
        tiles(q, plan.block_m, columns), tiles(k, plan.block_n, plan.width),
        tiles(v, plan.block_n, plan.width), tiles(o, plan.block_m, columns), lse,
        table, count, table.shape[1], heads, group, n_queries, n_keys,
        band.left or 0, band.right or 0, scale * _LOG2E,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, D=plan.width, STAGES=plan.stages,
        GROUPS=plan.groups, Q_REG=plan.q_registers, Q_SLOTS=slots,
        PACKED_PLACE=plan.width == 64, CONSUMER_REGS=plan.consumer_registers,
        PRODUCER_REGS=plan.producer_registers, EDGES=edges.where, TAIL=tail,
        RIGHT=band.right is not None, LEFT=band.left is not None, SKIPS=edges.skips,
        POLY=plan.poly, PACKED=0 if packing is None else packing.apart,
        BOTTOM=packing is not None and packing.bottom, num_warps=4,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _schedule(
    plan: FlashForward,
    heads: int,
    group: int,
    n_queries: int,
    n_keys: int,
    band: Band,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """The forward's table of tiles on a device."""
    return tile_table(
        forward_schedule(plan, heads, group, n_queries, n_keys, band, sm_count(device)), device
    )


def tile_table(lists: tuple[tuple[int, ...], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """A list of tiles for each block as a tensor, and how many each has.

    Rows end with two spare entries: the kernels read ahead.
    """
    stride = -(-(max(map(len, lists)) + 2) // 16) * 16
    table = torch.tensor([[*tiles, *[0] * (stride - len(tiles))] for tiles in lists],
                         dtype=torch.int32)  # fmt: skip
    count = torch.tensor([len(tiles) for tiles in lists], dtype=torch.int32)
    return table.to(device), count.to(device)
