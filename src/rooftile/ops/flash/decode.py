"""Launch of the kernel for few queries, which merges the parts of its keys."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rooftile.ops._launch import launch
from rooftile.ops.flash.arrivals import arrivals
from rooftile.ops.flash.call import Call, mask_strides, slope_strides
from rooftile.ops.flash.decode_kernels import attention_decode_kernel
from rooftile.ops.flash.fwd import as_bytes
from rooftile.ops.flash.problem import Problem, itemsize_of
from rooftile.plan.launch import power_of_two
from rooftile.plan.launch_attention import AttentionLaunch, attention_launch, split_count

MOST_ROWS = 64  # of a tile: more are cut into several tiles
_LEAST_ROWS = 16  # of a matrix instruction
MERGED_PARTS = 16  # that a merge reads at a time
_MERGED = 8192  # elements that it holds: 64 registers of 128 threads


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


def merged_rows(plan: AttentionLaunch, width: int) -> int:
    """Rows of a tile that a merge holds at a time, of values padded to that width."""
    return min(plan.block_m, max(1, _MERGED // (MERGED_PARTS * width)))


def launch_decode(call: Call, plan: AttentionLaunch, splits: int, o: Tensor, lse: Tensor) -> None:
    """Write the output and the log-sum-exp of a call whose keys are read in ``splits`` parts."""
    q, k, v, table = call.q, call.k, call.v, call.block_table
    tiles = -(-call.longest_q * call.group // plan.block_m)
    programs = tiles * k.shape[1] * call.batch
    parts = sums = arrived = None
    if splits > 1 and programs:
        parts = torch.empty((splits, *o.shape), dtype=torch.float32, device=o.device)
        sums = torch.empty((2, splits, *lse.shape), dtype=torch.float32, device=o.device)
        arrived = arrivals(programs, o.device)
    constants = call.constants(plan)
    constants.pop("WIDE")
    launch(
        attention_decode_kernel, (splits * programs,), q.device,
        q, k, v, o, lse, parts, sums, arrived,
        as_bytes(call.mask), call.slopes, call.sinks, call.k_lens, table,
        *q.stride(), *k.stride(), *v.stride(), *o.stride(),
        *mask_strides(call.mask), *slope_strides(call.slopes),
        0 if table is None else table.stride(0),
        call.batch, call.heads, call.group, call.longest_q, call.longest_k, k.shape[2], splits,
        call.scale, call.softcap, call.window_left, call.window_right,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, **constants,
        MERGED_ROWS=merged_rows(plan, constants["BLOCK_DV"]), MERGED_PARTS=MERGED_PARTS,
    )  # fmt: skip
