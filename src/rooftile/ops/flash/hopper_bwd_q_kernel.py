"""Attention backward for Hopper in Gluon: dQ alone, in an order of its own, at any width.

A block has 128 queries, a warpgroup 64: S, dP, then dQ += dS K.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from rooftile.ops.flash.hopper_band import key_blocks
from rooftile.ops.flash.hopper_packed import RECORD, first_block, load_rows, store_rows, tile_of
from rooftile.ops.flash.hopper_tma import bar_arrive, bar_sync

_KV_BAR = gl.constexpr(8)  # 8 .. 8 + SLOTS - 1: a slot of K or V is free


@gluon.jit
def _q_load(args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr,
            SLOTS: gl.constexpr, RIGHT: gl.constexpr, LEFT: gl.constexpr,
            PACKED: gl.constexpr):  # fmt: skip
    """One warp: Q and dO once, then V and K of every key block through one ring of slots."""
    (q_desc, do_desc, k_desc, v_desc, q_s, do_s, kv_s, q_full, do_full, kv_full, b, h, row, q_start,
     queries, k_start, n_keys, group, left, right) = args  # fmt: skip
    first, end = key_blocks(row, 2 * BLOCK_M, n_keys, left, right, BLOCK_N, RIGHT, LEFT, PACKED)
    for g in gl.static_range(2):
        mbarrier.expect(q_full.index(g), BLOCK_M * D * 2)
        load_rows(q_desc, b, h, row + g * BLOCK_M, 0, q_start, queries, q_full.index(g),
                  q_s.index(g), PACKED)  # fmt: skip
        mbarrier.expect(do_full.index(g), BLOCK_M * D * 2)
        load_rows(do_desc, b, h, row + g * BLOCK_M, 0, q_start, queries, do_full.index(g),
                  do_s.index(g), PACKED)  # fmt: skip
    # V, K, V, K ...: with three slots the next pair is under way while K still serves dQ
    for i in range(2 * (end - first)):
        s = i % SLOTS
        if i >= SLOTS:
            bar_sync(_KV_BAR + s, 288)
        col = (first + i // 2) * BLOCK_N
        mbarrier.expect(kv_full.index(s), BLOCK_N * D * 2)
        if i % 2 == 1:
            load_rows(k_desc, b, h // group, col, 0, k_start, n_keys, kv_full.index(s),
                      kv_s.index(s), PACKED)  # fmt: skip
        else:
            load_rows(v_desc, b, h // group, col, 0, k_start, n_keys, kv_full.index(s),
                      kv_s.index(s), PACKED)  # fmt: skip


@gluon.jit
def _make_dq(g: gl.constexpr, args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
             D: gl.constexpr, SLOTS: gl.constexpr, RIGHT: gl.constexpr, LEFT: gl.constexpr,
             PACKED: gl.constexpr):  # fmt: skip
    """One warpgroup: dQ of 64 rows."""
    (dq_desc, nlse_ptr, ndelta_ptr, q_s, do_s, kv_s, q_full, do_full, kv_full, b, h, tile_row, line,
     q_start, queries, n_keys, left, right, scale_log2, scale) = args  # fmt: skip
    dtype: gl.constexpr = q_s.dtype
    s_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    d_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=d_l, k_width=2)
    row_l: gl.constexpr = gl.SliceLayout(1, s_l)
    rows = gl.arange(0, BLOCK_M, row_l)
    cols = gl.arange(0, BLOCK_N, gl.SliceLayout(0, s_l))
    row = tile_row + g * BLOCK_M
    first, end = key_blocks(tile_row, 2 * BLOCK_M, n_keys, left, right, BLOCK_N, RIGHT, LEFT,
                            PACKED)  # fmt: skip
    # -lse in base 2, and -delta
    nlse = gl.load(nlse_ptr + line + g * BLOCK_M + rows) * scale_log2
    ndelta = gl.load(ndelta_ptr + line + g * BLOCK_M + rows)
    zero = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, s_l)
    dq = gl.zeros([BLOCK_M, D], gl.float32, d_l)
    q = q_s.index(g)
    do = do_s.index(g)
    mbarrier.wait(q_full.index(g), 0)
    mbarrier.wait(do_full.index(g), 0)
    for i in range(end - first):
        vs = (2 * i) % SLOTS
        ks = (2 * i + 1) % SLOTS
        mbarrier.wait(kv_full.index(vs), (2 * i // SLOTS) & 1)
        dpt = warpgroup_mma(do, kv_s.index(vs).permute((1, 0)), zero, use_acc=False, is_async=True)
        mbarrier.wait(kv_full.index(ks), ((2 * i + 1) // SLOTS) & 1)
        st = warpgroup_mma(q, kv_s.index(ks).permute((1, 0)), zero, use_acc=False, is_async=True)
        dp = warpgroup_mma_wait(1, deps=(dpt,))
        bar_arrive(_KV_BAR + vs, 288)
        scores = warpgroup_mma_wait(0, deps=(st,))
        p = gl.exp2(scores * scale_log2 + gl.expand_dims(nlse, 1))
        col = (first + i) * BLOCK_N
        edge = col + BLOCK_N > n_keys
        if RIGHT:
            edge = edge | (col + BLOCK_N - 1 > row + right)
        if LEFT:
            edge = edge | (col < row + BLOCK_M - 1 - left)
        if edge:
            last = rows * 0 + (n_keys - 1 - col)
            if RIGHT:
                last = gl.minimum(last, rows + (row + right - col))
            seen = gl.expand_dims(cols, 0) <= gl.expand_dims(last, 1)
            if LEFT:
                seen = seen & (gl.expand_dims(cols, 0)
                               >= gl.expand_dims(rows + (row - left - col), 1))  # fmt: skip
            p = gl.where(seen, p, 0.0)
        ds16 = (p * (dp + gl.expand_dims(ndelta, 1))).to(dtype)
        dqt = warpgroup_mma(gl.convert_layout(ds16, p_l), kv_s.index(ks), dq, is_async=True)
        dq = warpgroup_mma_wait(0, deps=(dqt,))
        bar_arrive(_KV_BAR + ks, 288)
    q.store((dq * scale).to(dtype))
    fence_async_shared()
    store_rows(dq_desc, b, h, row, 0, q_start, queries, q, PACKED)
    tma.store_wait(0)


_Q_INTEGERS = ["n_heads", "group", "n_queries", "n_keys", "left", "right"]


@gluon.jit(do_not_specialize=_Q_INTEGERS)
def attention_bwd_q_kernel(
    q_desc,  # (B, H, Sq, D), tiles of BLOCK_M rows; ragged if PACKED, as are the next four
    do_desc,  # likewise
    dq_desc,  # likewise
    k_desc,  # (B, Hkv, Sk, D), tiles of BLOCK_N rows
    v_desc,  # likewise
    nlse_ptr,  # (B, H, blocks, 64) float32: -lse in units of the raw product; an odd last row too
    ndelta_ptr,  # likewise: -rowsum(o do)
    sched_ptr,  # (tiles, 8) int32: records, if PACKED
    n_heads,
    group,
    n_queries,  # PACKED: rows of the vectors of rows, of a head
    n_keys,
    left,
    right,
    scale_log2,
    scale,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    D: gl.constexpr,
    SLOTS: gl.constexpr,
    MAIN_REGS: gl.constexpr,
    PRODUCER_REGS: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    PACKED: gl.constexpr = 0,
    BOTTOM: gl.constexpr = False,
):
    dtype: gl.constexpr = q_desc.dtype
    q_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, D], dtype)
    k_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, D], dtype)
    q_s = gl.allocate_shared_memory(dtype, [2, BLOCK_M, D], q_l)
    do_s = gl.allocate_shared_memory(dtype, [2, BLOCK_M, D], q_l)
    kv_s = gl.allocate_shared_memory(dtype, [SLOTS, BLOCK_N, D], k_l)
    bar_l: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], bar_l)
    do_full = gl.allocate_shared_memory(gl.int64, [2, 1], bar_l)
    kv_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], bar_l)
    for g in gl.static_range(2):
        mbarrier.init(q_full.index(g), count=1)
        mbarrier.init(do_full.index(g), count=1)
    for s in gl.static_range(SLOTS):
        mbarrier.init(kv_full.index(s), count=1)
    fence_async_shared()
    if PACKED:
        at = sched_ptr + gl.program_id(0) * RECORD
        b, h, row, q_start, queries, k_start, keys, lo, hi = tile_of(
            at, 0, n_heads, n_queries, n_keys, left, right, PACKED, BOTTOM
        )
        line = h * n_queries + first_block(at) * 64 + row
    else:
        # the last rows of a causal mask are the longest tiles: they start first
        row = (gl.num_programs(0) - 1 - gl.program_id(0)) * (2 * BLOCK_M)
        bh = gl.program_id(1)
        b = bh // n_heads
        h = bh - b * n_heads
        line = bh * (gl.cdiv(n_queries, 64) * 64) + row
        q_start, queries, k_start, keys, lo, hi = 0, 0, 0, n_keys, left, right
    dq_args = (dq_desc, nlse_ptr, ndelta_ptr, q_s, do_s, kv_s, q_full, do_full, kv_full, b, h, row,
               line, q_start, queries, keys, lo, hi, scale_log2, scale)  # fmt: skip
    feed = (q_desc, do_desc, k_desc, v_desc, q_s, do_s, kv_s, q_full, do_full, kv_full, b, h, row,
            q_start, queries, k_start, keys, group, lo, hi)  # fmt: skip
    gl.warp_specialize([
        (_make_dq, (0, dq_args, BLOCK_M, BLOCK_N, D, SLOTS, RIGHT, LEFT, PACKED)),
        (_make_dq, (1, dq_args, BLOCK_M, BLOCK_N, D, SLOTS, RIGHT, LEFT, PACKED)),
        (_q_load, (feed, BLOCK_M, BLOCK_N, D, SLOTS, RIGHT, LEFT, PACKED)),
    ], [4, 1], [MAIN_REGS, PRODUCER_REGS])  # fmt: skip
