"""Launch of the kernels for few queries, and of the merge of their parts."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rooftile.ops._launch import launch
from rooftile.ops.flash.call import Call, mask_strides, slope_strides
from rooftile.ops.flash.decode_kernels import attention_decode_kernel, attention_merge_kernel
from rooftile.ops.flash.fwd import as_bytes
from rooftile.ops.flash.problem import Problem, itemsize_of
from rooftile.plan.launch import power_of_two
from rooftile.plan.launch_attention import AttentionLaunch, attention_launch, split_count

MOST_ROWS = 64  # of a tile: more are cut into several tiles
_LEAST_ROWS = 16  # of a matrix instruction
_MERGED = 16  # parts that a merge reads at a time


def decode_launch(problem: Problem) -> AttentionLaunch:
    """The tile: as many rows as there are queries in a group, up to 64."""
    width = max(problem.head_dim, problem.v_dim)
    plan = attention_launch("attention_decode", width, itemsize_of(problem), problem.arch)
    rows = power_of_two(problem.q_len * problem.group)
    return replace(plan, block_m=min(MOST_ROWS, max(_LEAST_ROWS, rows, plan.block_m)))


def decode_splits(problem: Problem, plan: AttentionLaunch, multiprocessors: int) -> int:
    """Parts that the keys are split into."""
    tiles = -(-problem.q_len * problem.group // plan.block_m)
    blocks = -(-problem.k_len // plan.block_n)
    return split_count(problem.batch * problem.kv_heads * tiles, blocks, multiprocessors)


def launch_decode(call: Call, plan: AttentionLaunch, splits: int, o: Tensor, lse: Tensor) -> None:
    """Write the output and the log-sum-exp of a call whose keys are read in ``splits`` parts."""
    if splits == 1:
        _launch_parts(call, plan, 1, o, (0, *o.stride()), lse, call.sinks)
        return
    parts = torch.empty((splits, *o.shape), dtype=torch.float32, device=o.device)
    part_lse = torch.empty((splits, *lse.shape), dtype=torch.float32, device=o.device)
    _launch_parts(call, plan, splits, parts, parts.stride(), part_lse, None)
    rows = lse.numel()
    launch(
        attention_merge_kernel, (rows,), o.device,
        parts, part_lse, o, lse, call.sinks, *o.stride(), rows, call.heads, call.longest_q, splits,
        V_DIM=o.shape[-1], BLOCK_DV=power_of_two(o.shape[-1]), BLOCK_S=_MERGED, num_warps=4,
    )  # fmt: skip


def _launch_parts(
    call: Call, plan: AttentionLaunch, splits: int,
    o: Tensor, o_strides: tuple[int, ...], lse: Tensor, sinks: Tensor | None,
) -> None:  # fmt: skip
    q, k, v, table = call.q, call.k, call.v, call.block_table
    tiles = -(-call.longest_q * call.group // plan.block_m)
    constants = call.constants(plan)
    constants.pop("WIDE")
    launch(
        attention_decode_kernel, (splits * tiles * k.shape[1] * call.batch,), q.device,
        q, k, v, o, lse, as_bytes(call.mask), call.slopes, sinks, call.k_lens, table,
        *q.stride(), *k.stride(), *v.stride(), *o_strides,
        *mask_strides(call.mask), *slope_strides(call.slopes),
        0 if table is None else table.stride(0),
        call.batch, call.heads, call.group, call.longest_q, call.longest_k, k.shape[2], splits,
        call.scale, call.softcap, call.window_left, call.window_right,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, **constants,
    )  # fmt: skip
