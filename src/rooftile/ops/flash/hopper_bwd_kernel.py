"""Attention backward for Hopper in Gluon, up to 128 columns.

One persistent block a SM takes tiles of 128 keys from a table and walks over the queries that see
them, 64 at a time, for every query head of the key head. Four roles:

- two main warpgroups of 64 keys each: S^T = K Q^T and dP^T = V dO^T, then dV += P^T dO and
  dK += dS^T Q with P^T and dS^T as operands in registers. They never wait for each other;
- one warpgroup for dQ = dS K over the 128 keys, from the dS that the main ones leave in shared
  memory; TMA adds it to a float32 buffer. Apart, it is out of the main warpgroups' chain of
  dependences and registers, and half as much is added as with one dQ a warpgroup;
- one producer warp: Q, dO, -lse and -delta, and the next tile's K and V, through TMA.

The accumulators of S and dP start at -lse/scale and -delta, so P = exp2(scale S) and dS = P dP need
no row vectors in registers. At 128 columns P is kept as the 16-bit operand of dV alone and unpacked
for dS, by volatile inline assembly: a plain cast is hoisted above the wait and costs 32 registers.
There, too, a branch stands between exp2 and dP in every case: without it ptxas runs out of
registers and serialises every wgmma (C7512).
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

from rooftile.ops.flash.hopper_band import mask_weights, query_blocks, tile_place
from rooftile.ops.flash.hopper_tma import bar_arrive, bar_sync, tma_add, tma_load, tma_store

# Named barriers. 384 threads: the main warpgroups and that of dQ; 288: the main ones and the
# producer.
_DS_BAR = gl.constexpr(8)  # 8, 9: a slot of dS is written
_Q_BAR = gl.constexpr(10)  # 10, 11: a slot of Q is free
_DO_BAR = gl.constexpr(12)  # 12, 13: a slot of dO is free


# ---------------------------------------------------------------- producer
@gluon.jit
def _load(args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, NB: gl.constexpr,
          V_SLOTS: gl.constexpr, RIGHT: gl.constexpr, LEFT: gl.constexpr):  # fmt: skip
    """One warp: K and V of every tile, Q, dO and row vectors of every query block."""
    (q_desc, do_desc, k_desc, v_desc, nlse_desc, ndelta_desc, q_s, do_s, k_s, v_s, nlse_s,
     ndelta_s, q_full, do_full, k_full, v_full, k_empty, v_empty, sched, n_tiles, n_kv_heads, group,
     n_queries, left, right) = args  # fmt: skip
    n_blocks = gl.cdiv(n_queries, BLOCK_M)
    it = 0
    code = gl.load(sched)
    for t in range(n_tiles):
        b, hk, key = tile_place(code, n_kv_heads)
        code = gl.load(sched + t + 1)
        first, n = query_blocks(key, n_queries, left, right, BLOCK_M, 2 * BLOCK_N, RIGHT, LEFT)
        ks = t % 2
        vs = t % V_SLOTS
        mbarrier.wait(k_empty.index(ks), ((t // 2) & 1) ^ 1)
        mbarrier.expect(k_full.index(ks), 2 * BLOCK_N * D * 2)
        for g in gl.static_range(2):
            tma_load(k_desc, [b, hk, key + g * BLOCK_N, 0], k_full.index(ks), k_s.index(2 * ks + g))
        if n == 0:
            mbarrier.wait(v_empty.index(vs), ((t // V_SLOTS) & 1) ^ 1)
            mbarrier.expect(v_full.index(vs), 2 * BLOCK_N * D * 2)
            for g in gl.static_range(2):
                tma_load(v_desc, [b, hk, key + g * BLOCK_N, 0], v_full.index(vs),
                         v_s.index(2 * vs + g))  # fmt: skip
        for hq in range(group):
            line = (b * n_kv_heads + hk) * group + hq
            for i in range(n):
                s = it % NB
                row = (first + i) * BLOCK_M
                flat = line * n_blocks * BLOCK_M + row
                if it >= NB:
                    bar_sync(_Q_BAR + s, 288)
                mbarrier.expect(q_full.index(s), BLOCK_M * D * 2 + BLOCK_M * 4)
                tma_load(q_desc, [b, hk * group + hq, row, 0], q_full.index(s), q_s.index(s))
                tma_load(nlse_desc, [flat], q_full.index(s), nlse_s.index(s))
                if (hq == 0) & (i == 0):
                    # V after the first Q: its slot is free only when the last tile's dV has left
                    mbarrier.wait(v_empty.index(vs), ((t // V_SLOTS) & 1) ^ 1)
                    mbarrier.expect(v_full.index(vs), 2 * BLOCK_N * D * 2)
                    for g in gl.static_range(2):
                        tma_load(v_desc, [b, hk, key + g * BLOCK_N, 0], v_full.index(vs),
                                 v_s.index(2 * vs + g))  # fmt: skip
                if it >= NB:
                    bar_sync(_DO_BAR + s, 288)
                mbarrier.expect(do_full.index(s), BLOCK_M * D * 2 + BLOCK_M * 4)
                tma_load(do_desc, [b, hk * group + hq, row, 0], do_full.index(s), do_s.index(s))
                tma_load(ndelta_desc, [flat], do_full.index(s), ndelta_s.index(s))
                it += 1


# ---------------------------------------------------------------- dQ
@gluon.jit
def _fragment_order(x, W: gl.constexpr):
    """[64, W] accumulator -> [2W, 32], row-major (warp, 8-column group, lane, its 4 values).

    Each lane then writes 16 bytes at a time, without bank conflicts. ``unfragment`` undoes it.
    """
    y = gl.reshape(x, [4, 2, 4, 2, W // 8, 4, 2])
    y = gl.permute(y, (0, 4, 2, 3, 5, 1, 6))
    return gl.reshape(y, [2 * W, 32])


@gluon.jit
def _await_turn(turn_ptr, rank):
    """Wait until all tiles before this one have added to the block; order what follows after."""
    gl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b32 v; again: ld.acquire.gpu.global.b32 v, [$1]; "
        "setp.lt.s32 p, v, $2; @p bra again; fence.proxy.async.global; mov.b32 $0, v; }",
        "=r,l,r", [turn_ptr.to(gl.int64), rank], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def _pass_turn(turn_ptr, PENDING: gl.constexpr):
    """Once all but PENDING additions are complete: the next tile may add to the block."""
    gl.inline_asm_elementwise(
        f"cp.async.bulk.wait_group {PENDING}; fence.proxy.async.global; "
        "red.release.gpu.global.add.s32 [$1], 1; mov.b32 $0, 0;",
        "=r,l", [turn_ptr.to(gl.int64)], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def _dq(args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, NS: gl.constexpr,
        PARTS: gl.constexpr, RIGHT: gl.constexpr, LEFT: gl.constexpr,
        ORDERED: gl.constexpr):  # fmt: skip
    """One warpgroup: dQ of every query block, W columns at a time so that 72 registers do.

    With ORDERED the tiles of a head add to a query block in the order of their keys: a counter for
    each block, raised by all 128 threads, says whose turn it is.
    """
    (dq_desc, turn_ptr, k_s, ds_s, dq_s, ds_empty, k_full, sched, n_tiles, n_kv_heads, group,
     n_queries, left, right) = args  # fmt: skip
    W: gl.constexpr = D // PARTS
    w_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, W, 16])
    zero = gl.zeros([BLOCK_M, W], gl.float32, w_l)
    n_blocks = gl.cdiv(n_queries, BLOCK_M)
    it = 0
    last_turn = turn_ptr
    code = gl.load(sched)
    for t in range(n_tiles):
        b, hk, key = tile_place(code, n_kv_heads)
        code = gl.load(sched + t + 1)
        first, n = query_blocks(key, n_queries, left, right, BLOCK_M, 2 * BLOCK_N, RIGHT, LEFT)
        ks = t % 2
        mbarrier.wait(k_full.index(ks), (t // 2) & 1)
        for hq in range(group):
            line = ((b * n_kv_heads + hk) * group + hq) * n_blocks
            for i in range(n):
                block = line + first + i
                if ORDERED:
                    rank = key // (2 * BLOCK_N)
                    if LEFT:
                        rank -= gl.maximum((first + i) * BLOCK_M - left, 0) // (2 * BLOCK_N)
                    _await_turn(turn_ptr + block, rank * 128)
                slot = it % NS
                bar_sync(_DS_BAR + slot, 384)
                for part in gl.static_range(PARTS):
                    k0 = k_s.index(2 * ks).slice(part * W, W, dim=1)
                    k1 = k_s.index(2 * ks + 1).slice(part * W, W, dim=1)
                    x = warpgroup_mma(ds_s.index(slot * 2).permute((1, 0)), k0, zero, use_acc=False,
                                      is_async=True)  # fmt: skip
                    x = warpgroup_mma(ds_s.index(slot * 2 + 1).permute((1, 0)), k1, x,
                                      is_async=True)  # fmt: skip
                    dq = warpgroup_mma_wait(0, deps=(x,))
                    if part == PARTS - 1:
                        mbarrier.arrive(ds_empty.index(slot), count=1)
                    tma.store_wait(PARTS - 1)  # what was added last from this slot has been read
                    dq_s.index(part).store(_fragment_order(dq, W))
                    fence_async_shared()
                    tma_add(dq_desc, [(block * PARTS + part) * (2 * W), 0], dq_s.index(part))
                if ORDERED:
                    if hq + i > 0:  # one block late: its additions are then complete
                        _pass_turn(last_turn, PARTS)
                    last_turn = turn_ptr + block
                it += 1
        if ORDERED:  # before the next tile, which may wait for one that waits for this
            if n > 0:
                _pass_turn(last_turn, 0)
    tma.store_wait(0)


# ---------------------------------------------------------------- main warpgroups
@gluon.jit
def _main(g: gl.constexpr, args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr,
          NB: gl.constexpr, NS: gl.constexpr, V_SLOTS: gl.constexpr, P16: gl.constexpr,
          KV_REG: gl.constexpr, BRANCH: gl.constexpr, RIGHT: gl.constexpr,
          LEFT: gl.constexpr):  # fmt: skip
    """One warpgroup: dK and dV of 64 keys of every tile."""
    (dk_desc, dv_desc, q_s, do_s, k_s, v_s, ds_s, nlse_s, ndelta_s, q_full, do_full, ds_empty,
     k_full, v_full, k_empty, v_empty, sched, n_tiles, n_kv_heads, group, n_queries, n_keys, left,
     right, scale_log2, scale) = args  # fmt: skip
    dtype: gl.constexpr = k_s.dtype
    s_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    d_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=d_l, k_width=2)
    a_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=s_l, k_width=2)
    col_l: gl.constexpr = gl.SliceLayout(0, s_l)
    shape = gl.zeros([BLOCK_N, BLOCK_M], gl.float32, s_l)
    rows = gl.arange(0, BLOCK_N, gl.SliceLayout(1, s_l))
    cols = gl.arange(0, BLOCK_M, col_l)
    it = 0
    code = gl.load(sched)
    for t in range(n_tiles):
        b, hk, tile_key = tile_place(code, n_kv_heads)
        code = gl.load(sched + t + 1)
        key = tile_key + g * BLOCK_N
        first, n = query_blocks(tile_key, n_queries, left, right, BLOCK_M, 2 * BLOCK_N, RIGHT, LEFT)
        vs = t % V_SLOTS
        K = k_s.index(2 * (t % 2) + g)
        V = v_s.index(2 * vs + g)
        dk = gl.zeros([BLOCK_N, D], gl.float32, d_l)
        dv = gl.zeros([BLOCK_N, D], gl.float32, d_l)
        mbarrier.wait(k_full.index(t % 2), (t // 2) & 1)
        if KV_REG:  # 64 columns leave registers for K and V
            mbarrier.wait(v_full.index(vs), (t // V_SLOTS) & 1)
            Ka = K.load(a_l)
            Va = V.load(a_l)
        else:
            Ka = K
            Va = V
        for _ in range(group):
            for i in range(n):
                s = it % NB
                ph = (it // NB) & 1
                Q = q_s.index(s)
                dO = do_s.index(s)
                mbarrier.wait(q_full.index(s), ph)
                row_init = gl.expand_dims(nlse_s.index(s).load(col_l), 0)
                st = warpgroup_mma(Ka, Q.permute((1, 0)), gl.broadcast(row_init, shape)[0],
                                   is_async=True)  # fmt: skip
                if not KV_REG:
                    mbarrier.wait(v_full.index(vs), (t // V_SLOTS) & 1)
                mbarrier.wait(do_full.index(s), ph)
                scores = warpgroup_mma_wait(0, deps=(st,))
                p = gl.exp2(scores * scale_log2)
                if BRANCH:
                    row = (first + i) * BLOCK_M
                    edge = key + BLOCK_N > n_keys
                    if RIGHT:
                        edge = edge | (row + right < key + BLOCK_N - 1)
                    if LEFT:
                        edge = edge | (row + BLOCK_M - 1 - left > key)
                    if edge:
                        p = mask_weights(p, key, row, n_keys, left, right, rows, cols, RIGHT, LEFT)
                p16 = p.to(dtype)
                pb = gl.convert_layout(p16, p_l)
                row_init = gl.expand_dims(ndelta_s.index(s).load(col_l), 0)
                dpt = warpgroup_mma(Va, dO.permute((1, 0)), gl.broadcast(row_init, shape)[0],
                                    is_async=True)  # fmt: skip
                dvt = warpgroup_mma(pb, dO, dv, is_async=True)
                dp = warpgroup_mma_wait(1, deps=(dpt,))
                if P16:
                    if dtype == gl.bfloat16:
                        p = gl.inline_asm_elementwise(
                            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=f,=f,r", [p16],
                            dtype=gl.float32, is_pure=False, pack=2,
                        )  # fmt: skip
                    else:
                        p = gl.inline_asm_elementwise(
                            "{ .reg .b16 l, h; mov.b32 {l, h}, $2; cvt.f32.f16 $0, l; "
                            "cvt.f32.f16 $1, h; }", "=f,=f,r", [p16],
                            dtype=gl.float32, is_pure=False, pack=2,
                        )  # fmt: skip
                ds16 = (p * dp).to(dtype)
                slot = it % NS
                mbarrier.wait(ds_empty.index(slot), ((it // NS) & 1) ^ 1)
                ds_s.index(slot * 2 + g).store(ds16)
                fence_async_shared()
                bar_arrive(_DS_BAR + slot, 384)
                dkt = warpgroup_mma(gl.convert_layout(ds16, p_l), Q, dk, is_async=True)
                dv = warpgroup_mma_wait(1, deps=(dvt,))
                bar_arrive(_DO_BAR + s, 288)
                dk = warpgroup_mma_wait(0, deps=(dkt,))
                bar_arrive(_Q_BAR + s, 288)
                it += 1
        # The gradients leave through their operands' slots
        if not KV_REG:
            mbarrier.wait(v_full.index(vs), (t // V_SLOTS) & 1)
        V.store(dv.to(dtype))
        fence_async_shared()
        tma_store(dv_desc, [b, hk, key, 0], V)
        # K is free once the warpgroup of dQ has used the last dS
        mbarrier.wait(ds_empty.index((it + NS - 1) % NS), ((it + NS - 1) // NS & 1) ^ 1)
        tma.store_wait(0)
        mbarrier.arrive(v_empty.index(vs), count=1)
        K.store((dk * scale).to(dtype))
        fence_async_shared()
        tma_store(dk_desc, [b, hk, key, 0], K)
        tma.store_wait(0)
        mbarrier.arrive(k_empty.index(t % 2), count=1)


_INTEGERS = ["sched_stride", "n_kv_heads", "group", "n_queries", "n_keys", "left", "right"]


@gluon.jit(do_not_specialize=_INTEGERS)
def attention_bwd_kernel(
    q_desc,  # (B, H, Sq, D), tiles of BLOCK_M rows
    do_desc,  # likewise
    k_desc,  # (B, Hkv, Sk, D), tiles of BLOCK_N rows
    v_desc,  # likewise
    dk_desc,  # likewise
    dv_desc,  # likewise
    dq_desc,  # (B H blocks D / 32 * BLOCK_M, 32) float32, in fragment order, added to
    nlse_desc,  # (B H blocks BLOCK_M,) float32: -lse in units of the raw product
    ndelta_desc,  # likewise: -rowsum(o do)
    turn_ptr,  # (B H blocks,) int32, zeros: who may add to a query block
    sched_ptr,  # (blocks, sched_stride) int32: tiles of every block
    count_ptr,  # (blocks,) int32: how many
    sched_stride,
    n_kv_heads,
    group,  # query heads of a key head
    n_queries,
    n_keys,
    left,
    right,
    scale_log2,
    scale,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    D: gl.constexpr,
    NB: gl.constexpr,
    NS: gl.constexpr,
    V_SLOTS: gl.constexpr,
    PARTS: gl.constexpr,
    MAIN_REGS: gl.constexpr,
    DQ_REGS: gl.constexpr,
    PRODUCER_REGS: gl.constexpr,
    P16: gl.constexpr,
    KV_REG: gl.constexpr,
    BRANCH: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    ORDERED: gl.constexpr,
):
    dtype: gl.constexpr = q_desc.dtype
    q_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, D], dtype)
    k_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, D], dtype)
    ds_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_M], dtype)
    q_s = gl.allocate_shared_memory(dtype, [NB, BLOCK_M, D], q_l)
    do_s = gl.allocate_shared_memory(dtype, [NB, BLOCK_M, D], q_l)
    k_s = gl.allocate_shared_memory(dtype, [4, BLOCK_N, D], k_l)
    v_s = gl.allocate_shared_memory(dtype, [2 * V_SLOTS, BLOCK_N, D], k_l)
    ds_s = gl.allocate_shared_memory(dtype, [NS * 2, BLOCK_N, BLOCK_M], ds_l)
    dq_s = gl.allocate_shared_memory(gl.float32, [PARTS, 2 * (D // PARTS), 32], dq_desc.layout)
    nlse_s = gl.allocate_shared_memory(gl.float32, [NB, BLOCK_M], nlse_desc.layout)
    ndelta_s = gl.allocate_shared_memory(gl.float32, [NB, BLOCK_M], ndelta_desc.layout)
    bar_l: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [NB, 1], bar_l)
    do_full = gl.allocate_shared_memory(gl.int64, [NB, 1], bar_l)
    ds_empty = gl.allocate_shared_memory(gl.int64, [NS, 1], bar_l)
    k_full = gl.allocate_shared_memory(gl.int64, [2, 1], bar_l)
    k_empty = gl.allocate_shared_memory(gl.int64, [2, 1], bar_l)
    v_full = gl.allocate_shared_memory(gl.int64, [V_SLOTS, 1], bar_l)
    v_empty = gl.allocate_shared_memory(gl.int64, [V_SLOTS, 1], bar_l)
    for s in gl.static_range(NB):
        mbarrier.init(q_full.index(s), count=1)
        mbarrier.init(do_full.index(s), count=1)
    for s in gl.static_range(NS):
        mbarrier.init(ds_empty.index(s), count=1)
    for s in gl.static_range(2):
        mbarrier.init(k_full.index(s), count=1)
        mbarrier.init(k_empty.index(s), count=2)
    for s in gl.static_range(V_SLOTS):
        mbarrier.init(v_full.index(s), count=1)
        mbarrier.init(v_empty.index(s), count=2)
    fence_async_shared()
    pid = gl.program_id(0)
    sched = sched_ptr + pid * sched_stride
    n_tiles = gl.load(count_ptr + pid)
    main = (dk_desc, dv_desc, q_s, do_s, k_s, v_s, ds_s, nlse_s, ndelta_s, q_full, do_full,
            ds_empty, k_full, v_full, k_empty, v_empty, sched, n_tiles, n_kv_heads, group,
            n_queries, n_keys, left, right, scale_log2, scale)  # fmt: skip
    add = (dq_desc, turn_ptr, k_s, ds_s, dq_s, ds_empty, k_full, sched, n_tiles, n_kv_heads, group,
           n_queries, left, right)  # fmt: skip
    feed = (q_desc, do_desc, k_desc, v_desc, nlse_desc, ndelta_desc, q_s, do_s, k_s, v_s, nlse_s,
            ndelta_s, q_full, do_full, k_full, v_full, k_empty, v_empty, sched, n_tiles,
            n_kv_heads, group, n_queries, left, right)  # fmt: skip
    gl.warp_specialize([
        (_main, (0, main, BLOCK_M, BLOCK_N, D, NB, NS, V_SLOTS, P16, KV_REG, BRANCH, RIGHT, LEFT)),
        (_main, (1, main, BLOCK_M, BLOCK_N, D, NB, NS, V_SLOTS, P16, KV_REG, BRANCH, RIGHT, LEFT)),
        (_dq, (add, BLOCK_M, BLOCK_N, D, NS, PARTS, RIGHT, LEFT, ORDERED)),
        (_load, (feed, BLOCK_M, BLOCK_N, D, NB, V_SLOTS, RIGHT, LEFT)),
    ], [4, 4, 1], [MAIN_REGS, DQ_REGS, PRODUCER_REGS])  # fmt: skip
