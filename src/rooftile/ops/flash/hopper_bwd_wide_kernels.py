"""Attention backward for Hopper in Gluon, of 129 to 256 columns: dK and dV.

The accumulators of dK and dV for 64 keys fill half of the registers of an SM, so there is no room
for dQ beside them; and dQ in float32 through global memory would move as many bytes as the products
read. Two kernels make 7 products where one makes 5, without atomics: the gradients are the same
bits each time, and nothing but two row vectors is stored in between.

A block has 64 keys. One warpgroup makes S^T = K Q^T and dV += P^T dO, the other dP^T = V dO^T and
dK += dS^T Q: it takes P through shared memory. Half of K and of V stay in registers, as Q does in
the forward. ``hopper_bwd_q_kernel`` makes dQ.
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

from rooftile.ops.flash.hopper_band import mask_weights, query_blocks
from rooftile.ops.flash.hopper_packed import RECORD, first_block, load_rows, store_rows, tile_of
from rooftile.ops.flash.hopper_tma import bar_arrive, bar_sync, tma_load

_Q_BAR = gl.constexpr(8)  # 8, 9: a slot of Q is free (both warpgroups and the producer)
_DO_BAR = gl.constexpr(10)  # 10, 11: a slot of dO is free
_P_BAR = gl.constexpr(12)  # 12, 13: a slot of P is written (both warpgroups)


@gluon.jit
def _half_in_registers(a_reg, a, b, init, D: gl.constexpr):
    """Issue a b^T + init; the first half of a's columns comes from registers."""
    H: gl.constexpr = D // 2
    x = warpgroup_mma(a_reg, b.slice(0, H, dim=1).permute((1, 0)), init, is_async=True)
    return warpgroup_mma(a.slice(H, H, dim=1), b.slice(H, H, dim=1).permute((1, 0)), x,
                         is_async=True)  # fmt: skip


@gluon.jit
def _kv_load(args, BLOCK: gl.constexpr, D: gl.constexpr, NB: gl.constexpr, RIGHT: gl.constexpr,
             LEFT: gl.constexpr, PACKED: gl.constexpr, BOTTOM: gl.constexpr):  # fmt: skip
    """One warp: K and V once, Q, dO and row vectors of every query block."""
    (q_desc, do_desc, k_desc, v_desc, nlse_desc, ndelta_desc, q_s, do_s, k_s, v_s, nlse_s, ndelta_s,
     q_full, do_full, k_full, v_full, at, code, n_kv_heads, group, n_queries, n_keys, left,
     right) = args  # fmt: skip
    n_blocks = gl.cdiv(n_queries, BLOCK)
    b, hk, key, q_start, queries, k_start, keys, lo, hi = tile_of(
        at, code, n_kv_heads, n_queries, n_keys, left, right, PACKED, BOTTOM
    )
    first, n = query_blocks(key, queries, lo, hi, BLOCK, BLOCK, RIGHT, LEFT)
    mbarrier.expect(k_full, BLOCK * D * 2)
    load_rows(k_desc, b, hk, key, 0, k_start, keys, k_full, k_s, PACKED)
    mbarrier.expect(v_full, BLOCK * D * 2)
    load_rows(v_desc, b, hk, key, 0, k_start, keys, v_full, v_s, PACKED)
    it = 0
    for hq in range(group):
        head = hk * group + hq
        for i in range(n):
            s = it % NB
            row = (first + i) * BLOCK
            flat = (b * n_kv_heads * group + head) * n_blocks * BLOCK + row
            if PACKED:
                flat += first_block(at) * BLOCK
            if it >= NB:
                bar_sync(_Q_BAR + s, 288)
            mbarrier.expect(q_full.index(s), BLOCK * D * 2 + BLOCK * 4)
            load_rows(q_desc, b, head, row, 0, q_start, queries, q_full.index(s), q_s.index(s),
                      PACKED)  # fmt: skip
            tma_load(nlse_desc, [flat], q_full.index(s), nlse_s.index(s))
            if it >= NB:
                bar_sync(_DO_BAR + s, 288)
            mbarrier.expect(do_full.index(s), BLOCK * D * 2 + BLOCK * 4)
            load_rows(do_desc, b, head, row, 0, q_start, queries, do_full.index(s), do_s.index(s),
                      PACKED)  # fmt: skip
            tma_load(ndelta_desc, [flat], do_full.index(s), ndelta_s.index(s))
            it += 1


@gluon.jit
def _make_dv(args, BLOCK: gl.constexpr, D: gl.constexpr, NB: gl.constexpr, RIGHT: gl.constexpr,
             LEFT: gl.constexpr, PACKED: gl.constexpr, BOTTOM: gl.constexpr):  # fmt: skip
    """One warpgroup: P^T = exp2(scale K Q^T - lse) and dV."""
    (dv_desc, q_s, do_s, k_s, p_s, nlse_s, q_full, do_full, p_empty, k_full, at, code,
     n_kv_heads, group, n_queries, n_keys, left, right, scale_log2) = args  # fmt: skip
    dtype: gl.constexpr = k_s.dtype
    s_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    d_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=d_l, k_width=2)
    a_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=s_l, k_width=2)
    col_l: gl.constexpr = gl.SliceLayout(0, s_l)
    shape = gl.zeros([BLOCK, BLOCK], gl.float32, s_l)
    rows = gl.arange(0, BLOCK, gl.SliceLayout(1, s_l))
    cols = gl.arange(0, BLOCK, col_l)
    b, hk, key, _, queries, k_start, keys, lo, hi = tile_of(
        at, code, n_kv_heads, n_queries, n_keys, left, right, PACKED, BOTTOM
    )
    first, n = query_blocks(key, queries, lo, hi, BLOCK, BLOCK, RIGHT, LEFT)
    dv = gl.zeros([BLOCK, D], gl.float32, d_l)
    mbarrier.wait(k_full, 0)
    k_reg = k_s.slice(0, D // 2, dim=1).load(a_l)
    it = 0
    for _ in range(group):
        for i in range(n):
            s = it % NB
            ph = (it // NB) & 1
            mbarrier.wait(q_full.index(s), ph)
            init = gl.broadcast(gl.expand_dims(nlse_s.index(s).load(col_l), 0), shape)[0]
            st = _half_in_registers(k_reg, k_s, q_s.index(s), init, D)
            scores = warpgroup_mma_wait(0, deps=(st,))
            bar_arrive(_Q_BAR + s, 288)
            p = gl.exp2(scores * scale_log2)
            row = (first + i) * BLOCK
            edge = key + BLOCK > keys
            if RIGHT:
                edge = edge | (row + hi < key + BLOCK - 1)
            if LEFT:
                edge = edge | (row + BLOCK - 1 - lo > key)
            if edge:
                p = mask_weights(p, key, row, keys, lo, hi, rows, cols, True, RIGHT, LEFT)
            p16 = p.to(dtype)
            mbarrier.wait(p_empty.index(s), ph ^ 1)
            p_s.index(s).store(p16)
            gl.inline_asm_elementwise("bar.arrive $1, 256; mov.b32 $0, $1;", "=r,r", [_P_BAR + s],
                                      dtype=gl.int32, is_pure=False, pack=1)  # fmt: skip
            mbarrier.wait(do_full.index(s), ph)
            dvt = warpgroup_mma(gl.convert_layout(p16, p_l), do_s.index(s), dv, is_async=True)
            dv = warpgroup_mma_wait(0, deps=(dvt,))
            bar_arrive(_DO_BAR + s, 288)
            it += 1
    k_s.store(dv.to(dtype))
    fence_async_shared()
    store_rows(dv_desc, b, hk, key, 0, k_start, keys, k_s, PACKED)
    tma.store_wait(0)


@gluon.jit
def _make_dk(args, BLOCK: gl.constexpr, D: gl.constexpr, NB: gl.constexpr, RIGHT: gl.constexpr,
             LEFT: gl.constexpr, PACKED: gl.constexpr, BOTTOM: gl.constexpr):  # fmt: skip
    """One warpgroup: dP^T = V dO^T - delta, dS^T = P^T dP^T and dK."""
    (dk_desc, q_s, do_s, v_s, p_s, ndelta_s, q_full, do_full, p_empty, v_full, at, code,
     n_kv_heads, group, n_queries, n_keys, left, right, scale) = args  # fmt: skip
    dtype: gl.constexpr = v_s.dtype
    s_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    d_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=d_l, k_width=2)
    a_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=s_l, k_width=2)
    col_l: gl.constexpr = gl.SliceLayout(0, s_l)
    shape = gl.zeros([BLOCK, BLOCK], gl.float32, s_l)
    b, hk, key, _, queries, k_start, keys, lo, hi = tile_of(
        at, code, n_kv_heads, n_queries, n_keys, left, right, PACKED, BOTTOM
    )
    _, n = query_blocks(key, queries, lo, hi, BLOCK, BLOCK, RIGHT, LEFT)
    dk = gl.zeros([BLOCK, D], gl.float32, d_l)
    mbarrier.wait(v_full, 0)
    v_reg = v_s.slice(0, D // 2, dim=1).load(a_l)
    it = 0
    for _ in range(group):
        for _ in range(n):
            s = it % NB
            ph = (it // NB) & 1
            mbarrier.wait(do_full.index(s), ph)
            init = gl.broadcast(gl.expand_dims(ndelta_s.index(s).load(col_l), 0), shape)[0]
            dpt = _half_in_registers(v_reg, v_s, do_s.index(s), init, D)
            dp = warpgroup_mma_wait(0, deps=(dpt,))
            bar_arrive(_DO_BAR + s, 288)
            gl.inline_asm_elementwise("bar.sync $1, 256; mov.b32 $0, $1;", "=r,r", [_P_BAR + s],
                                      dtype=gl.int32, is_pure=False, pack=1)  # fmt: skip
            p = p_s.index(s).load(s_l).to(gl.float32)
            mbarrier.arrive(p_empty.index(s), count=1)
            ds16 = (p * dp).to(dtype)
            mbarrier.wait(q_full.index(s), ph)
            dkt = warpgroup_mma(gl.convert_layout(ds16, p_l), q_s.index(s), dk, is_async=True)
            dk = warpgroup_mma_wait(0, deps=(dkt,))
            bar_arrive(_Q_BAR + s, 288)
            it += 1
    v_s.store((dk * scale).to(dtype))
    fence_async_shared()
    store_rows(dk_desc, b, hk, key, 0, k_start, keys, v_s, PACKED)
    tma.store_wait(0)


_KV_INTEGERS = ["n_kv_heads", "group", "n_queries", "n_keys", "left", "right"]


@gluon.jit(do_not_specialize=_KV_INTEGERS)
def attention_bwd_kv_kernel(
    q_desc,  # (B, H, Sq, D), tiles of BLOCK rows; ragged if PACKED, as are the next five
    do_desc,  # likewise
    k_desc,  # (B, Hkv, Sk, D), tiles of BLOCK rows
    v_desc,  # likewise
    dk_desc,  # likewise
    dv_desc,  # likewise
    nlse_desc,  # (B H blocks BLOCK,) float32: -lse in units of the raw product
    ndelta_desc,  # likewise: -rowsum(o do)
    sched_ptr,  # (tiles, 8) int32: records, if PACKED
    n_kv_heads,
    group,  # query heads of a key head
    n_queries,  # PACKED: rows of the vectors of rows, of a head
    n_keys,
    left,
    right,
    scale_log2,
    scale,
    BLOCK: gl.constexpr,
    D: gl.constexpr,
    NB: gl.constexpr,
    MAIN_REGS: gl.constexpr,
    PRODUCER_REGS: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    PACKED: gl.constexpr = 0,
    BOTTOM: gl.constexpr = False,
):
    dtype: gl.constexpr = q_desc.dtype
    tile_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK, D], dtype)
    p_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK, BLOCK], dtype)
    q_s = gl.allocate_shared_memory(dtype, [NB, BLOCK, D], tile_l)
    do_s = gl.allocate_shared_memory(dtype, [NB, BLOCK, D], tile_l)
    k_s = gl.allocate_shared_memory(dtype, [BLOCK, D], tile_l)
    v_s = gl.allocate_shared_memory(dtype, [BLOCK, D], tile_l)
    p_s = gl.allocate_shared_memory(dtype, [NB, BLOCK, BLOCK], p_l)
    nlse_s = gl.allocate_shared_memory(gl.float32, [NB, BLOCK], nlse_desc.layout)
    ndelta_s = gl.allocate_shared_memory(gl.float32, [NB, BLOCK], ndelta_desc.layout)
    bar_l: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [NB, 1], bar_l)
    do_full = gl.allocate_shared_memory(gl.int64, [NB, 1], bar_l)
    p_empty = gl.allocate_shared_memory(gl.int64, [NB, 1], bar_l)
    k_full = gl.allocate_shared_memory(gl.int64, [1], bar_l)
    v_full = gl.allocate_shared_memory(gl.int64, [1], bar_l)
    mbarrier.init(k_full, count=1)
    mbarrier.init(v_full, count=1)
    for s in gl.static_range(NB):
        mbarrier.init(q_full.index(s), count=1)
        mbarrier.init(do_full.index(s), count=1)
        mbarrier.init(p_empty.index(s), count=1)
    fence_async_shared()
    # the first tiles of a causal mask are the longest: they start first
    code = gl.program_id(1) << 16 | gl.program_id(0) * (BLOCK // 64)
    at = code
    if PACKED:
        at = sched_ptr + gl.program_id(0) * RECORD
    dv_args = (dv_desc, q_s, do_s, k_s, p_s, nlse_s, q_full, do_full, p_empty, k_full, at, code,
               n_kv_heads, group, n_queries, n_keys, left, right, scale_log2)  # fmt: skip
    dk_args = (dk_desc, q_s, do_s, v_s, p_s, ndelta_s, q_full, do_full, p_empty, v_full, at, code,
               n_kv_heads, group, n_queries, n_keys, left, right, scale)  # fmt: skip
    feed = (q_desc, do_desc, k_desc, v_desc, nlse_desc, ndelta_desc, q_s, do_s, k_s, v_s, nlse_s,
            ndelta_s, q_full, do_full, k_full, v_full, at, code, n_kv_heads, group, n_queries,
            n_keys, left, right)  # fmt: skip
    gl.warp_specialize([
        (_make_dv, (dv_args, BLOCK, D, NB, RIGHT, LEFT, PACKED, BOTTOM)),
        (_make_dk, (dk_args, BLOCK, D, NB, RIGHT, LEFT, PACKED, BOTTOM)),
        (_kv_load, (feed, BLOCK, D, NB, RIGHT, LEFT, PACKED, BOTTOM)),
    ], [4, 1], [MAIN_REGS, PRODUCER_REGS])  # fmt: skip
