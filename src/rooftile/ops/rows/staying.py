"""How large a grid of clusters that stay on the SMs is, and how many rows ahead they hold."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from rooftile.ops.rows.address import VECTOR_BYTES
from rooftile.ops.rows.resident import (
    LINE_VECTORS,
    OTHER_BYTES,
    clusters_at_once,
    launchable,
    may_stay,
    sm_bytes,
)
from rooftile.ops.rows.warp_ptx import exchange_bytes
from rooftile.plan.launch import RowLaunch


def stages_that_fit(
    plan: RowLaunch, n_cols: int, vec: int, rows: Iterable[Tensor], combine: str
) -> int | None:
    """Rows ahead that a program of a plan has in shared memory: 0 for one ahead, in registers.

    None where the plan is of another kind, or does not suit the rows.

    Args:
        plan: The launch.
        n_cols: Elements of a row.
        vec: Elements of an access.
        rows: Tensors of which rows are read ahead.
        combine: What is sent.
    """
    device = next(iter(rows)).device
    itemsizes = [t.element_size() for t in rows]
    line = LINE_VECTORS * vec * plan.cluster
    whole = -(-n_cols // vec * vec // line) * line
    if plan.kind != "resident" or vec * max(itemsizes) != VECTOR_BYTES or not may_stay(device):
        return None
    if whole > plan.block_n * plan.cluster or plan.block_n % (32 * plan.num_warps * vec):
        return None
    if plan.num_stages == 0:
        return 0
    room = sm_bytes(device) // plan.programs_per_sm - OTHER_BYTES
    slots = exchange_bytes(plan.cluster, plan.num_warps, combine)
    stage_bytes = plan.block_n * sum(itemsizes)
    stages = min(plan.num_stages, (room - slots) // stage_bytes)
    stages = launchable(stages, stage_bytes, 0, slots)
    return stages if stages > 0 else None


def n_clusters(plan: RowLaunch, n_rows: int, device: torch.device) -> int:
    """Clusters of a persistent grid: as many as run at a time."""
    return min(n_rows, clusters_at_once(plan.cluster, device, plan.programs_per_sm))
