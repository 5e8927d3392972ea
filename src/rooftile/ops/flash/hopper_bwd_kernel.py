"""Attention backward for Hopper in Gluon, up to 128 columns.

One persistent block a SM takes tiles of 128 keys from a table and walks over the queries that see
them, 64 at a time, for every query head of the key head. Four roles:

- two main warpgroups of 64 keys each: S^T = K Q^T and dP^T = V dO^T, then dV += P^T dO and
  dK += dS^T Q with P^T and dS^T as operands in registers. They never wait for each other;
- one warpgroup for dQ = dS K over the 128 keys, from the dS that the main ones leave in shared
  memory; TMA adds it to a float32 buffer. Apart, it is out of the main warpgroups' chain of
  dependences and registers, and half as much is added as with one dQ a warpgroup;
- one producer warp: Q, dO, -lse and -delta, and the next tile's K and V, through TMA; it also takes
  dK and dV out, so that the main warpgroups hold nothing of where.

The accumulators of S and dP start at -lse/scale and -delta, so P = exp2(scale S) and dS = P dP need
no row vectors in registers. At 128 columns P is kept as the 16-bit operand of dV alone and unpacked
for dS, by volatile inline assembly: a plain cast is hoisted above the wait and costs 32 registers.
There, too, a branch stands between exp2 and dP in every case: without it ptxas runs out of
registers and serialises every wgmma (C7512).

Without dQ (DQ False) the registers of its warpgroup go to the main ones and no sum depends on an
order: another kernel then makes dQ.
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
from rooftile.ops.flash.hopper_bwd_producer import DO_BAR, DS_BAR, Q_BAR, load
from rooftile.ops.flash.hopper_packed import RECORD, first_block, tile_of
from rooftile.ops.flash.hopper_tma import bar_arrive, bar_sync, tma_add

_LN2 = gl.constexpr(0.6931471805599453)


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
def _dq(args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, NS: gl.constexpr,
        K_SLOTS: gl.constexpr, PARTS: gl.constexpr, RIGHT: gl.constexpr, LEFT: gl.constexpr,
        PACKED: gl.constexpr, BOTTOM: gl.constexpr):  # fmt: skip
    """One warpgroup: dQ of every query block, W columns at a time so that 72 registers do."""
    (dq_desc, k_s, ds_s, dq_s, ds_empty, k_full, sched, n_tiles, n_kv_heads, group,
     n_queries, n_keys, left, right) = args  # fmt: skip
    STEP: gl.constexpr = PACKED if PACKED > 0 else 1
    W: gl.constexpr = D // PARTS
    w_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, W, 16])
    zero = gl.zeros([BLOCK_M, W], gl.float32, w_l)
    n_blocks = gl.cdiv(n_queries, BLOCK_M)
    it = 0
    for t in range(n_tiles):
        at = sched + t * STEP
        b, hk, key, _, queries, _, _, lo, hi = tile_of(
            at, gl.load(at), n_kv_heads, n_queries, n_keys, left, right, PACKED, BOTTOM
        )
        first, n = query_blocks(key, queries, lo, hi, BLOCK_M, 2 * BLOCK_N, RIGHT, LEFT)
        if PACKED:
            first += first_block(at)
        ks = t % K_SLOTS
        mbarrier.wait(k_full.index(ks), (t // K_SLOTS) & 1)
        for hq in range(group):
            line = ((b * n_kv_heads + hk) * group + hq) * n_blocks
            for i in range(n):
                block = line + first + i
                slot = it % NS
                bar_sync(DS_BAR + slot, 384)
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
                it += 1
    tma.store_wait(0)


# ---------------------------------------------------------------- main warpgroups
@gluon.jit
def _unpacked(p16):
    """16-bit weights as float32. Volatile: a cast would be hoisted and kept in 32 registers."""
    if p16.dtype == gl.bfloat16:
        p = gl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=f,=f,r", [p16],
            dtype=gl.float32, is_pure=False, pack=2,
        )  # fmt: skip
    else:
        p = gl.inline_asm_elementwise(
            "{ .reg .b16 l, h; mov.b32 {l, h}, $2; cvt.f32.f16 $0, l; cvt.f32.f16 $1, h; }",
            "=f,=f,r", [p16], dtype=gl.float32, is_pure=False, pack=2,
        )  # fmt: skip
    return p


@gluon.jit
def _step(g: gl.constexpr, Ka, Va, q_s, do_s, ds_s, nlse_s, ndelta_s, q_full, do_full, ds_empty, dk,
          dv, it, key, row, low, high, n_keys, left, right, scale_log2, BLOCK_M: gl.constexpr,
          BLOCK_N: gl.constexpr, D: gl.constexpr, NB: gl.constexpr, NS: gl.constexpr,
          P16: gl.constexpr, BRANCH: gl.constexpr, TAIL: gl.constexpr, RIGHT: gl.constexpr,
          LEFT: gl.constexpr, DQ: gl.constexpr):  # fmt: skip
    """One block of queries: what it adds to dK and dV, and dS into shared memory."""
    dtype: gl.constexpr = q_s.dtype
    s_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    d_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=d_l, k_width=2)
    col_l: gl.constexpr = gl.SliceLayout(0, s_l)
    shape = gl.zeros([BLOCK_N, BLOCK_M], gl.float32, s_l)
    s = it % NB
    ph = (it // NB) & 1
    Q = q_s.index(s)
    dO = do_s.index(s)
    mbarrier.wait(q_full.index(s), ph)
    row_init = gl.expand_dims(nlse_s.index(s).load(col_l), 0)
    st = warpgroup_mma(Ka, Q.permute((1, 0)), gl.broadcast(row_init, shape)[0], is_async=True)
    mbarrier.wait(do_full.index(s), ph)
    scores = warpgroup_mma_wait(0, deps=(st,))
    p = gl.exp2(scores * scale_log2)
    if BRANCH:
        edge = row < low
        if LEFT:
            edge = edge | (row >= high)
        if edge:
            p = mask_weights(p, key, row, n_keys, left, right,
                             gl.arange(0, BLOCK_N, gl.SliceLayout(1, s_l)),
                             gl.arange(0, BLOCK_M, col_l), TAIL or not (RIGHT or LEFT), RIGHT,
                             LEFT)  # fmt: skip
    p16 = p.to(dtype)
    pb = gl.convert_layout(p16, p_l)
    row_init = gl.expand_dims(ndelta_s.index(s).load(col_l), 0)
    dpt = warpgroup_mma(Va, dO.permute((1, 0)), gl.broadcast(row_init, shape)[0], is_async=True)
    dvt = warpgroup_mma(pb, dO, dv, is_async=True)
    dp = warpgroup_mma_wait(1, deps=(dpt,))
    if P16:
        p = _unpacked(p16)
    ds16 = (p * dp).to(dtype)
    if DQ:
        slot = it % NS
        mbarrier.wait(ds_empty.index(slot), ((it // NS) & 1) ^ 1)
        ds_s.index(slot * 2 + g).store(ds16)
        fence_async_shared()
        bar_arrive(DS_BAR + slot, 384)
    dkt = warpgroup_mma(gl.convert_layout(ds16, p_l), Q, dk, is_async=True)
    dv = warpgroup_mma_wait(1, deps=(dvt,))
    bar_arrive(DO_BAR + s, 288)
    dk = warpgroup_mma_wait(0, deps=(dkt,))
    bar_arrive(Q_BAR + s, 288)
    return dk, dv


@gluon.jit
def _main(g: gl.constexpr, args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr,
          NB: gl.constexpr, NS: gl.constexpr, K_SLOTS: gl.constexpr, V_SLOTS: gl.constexpr,
          P16: gl.constexpr, KV_REG: gl.constexpr, BRANCH: gl.constexpr, TAIL: gl.constexpr,
          RIGHT: gl.constexpr, LEFT: gl.constexpr, SKIPS: gl.constexpr, GROUPED: gl.constexpr,
          DQ: gl.constexpr, PACKED: gl.constexpr, BOTTOM: gl.constexpr):  # fmt: skip
    """One warpgroup: dK and dV of 64 keys of every tile."""
    (q_s, do_s, k_s, v_s, ds_s, nlse_s, ndelta_s, q_full, do_full, ds_empty, k_full, dk_ready,
     dv_ready, sched, n_tiles, group, n_queries, n_keys, left, right,
     scale_log2) = args  # fmt: skip
    STEP: gl.constexpr = PACKED if PACKED > 0 else 1
    dtype: gl.constexpr = k_s.dtype
    s_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    d_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    a_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=s_l, k_width=2)
    it = 0
    for t in range(n_tiles):
        tile = sched + t * STEP
        _, _, tile_key, _, queries, _, keys, lo, hi = tile_of(
            tile, gl.load(tile), 1, n_queries, n_keys, left, right, PACKED, BOTTOM
        )
        first, n = query_blocks(tile_key, queries, lo, hi, BLOCK_M, 2 * BLOCK_N, RIGHT, LEFT)
        key = tile_key + g * BLOCK_N
        row = first * BLOCK_M
        end = row + n * BLOCK_M
        # Blocks of queries before low, or from high on, hold some that do not see some key
        low = n >> 24  # 0, which the compiler cannot know
        high = end
        if RIGHT:
            low = key + BLOCK_N - 1 - hi
        if LEFT:
            high = key + lo - BLOCK_M + 2
        if TAIL:
            low = gl.where(key + BLOCK_N > keys, 1 << 30, low)
        K = k_s.index(2 * (t % K_SLOTS) + g)
        V = v_s.index(2 * (t % V_SLOTS) + g)
        dk = gl.zeros([BLOCK_N, D], gl.float32, d_l)
        dv = gl.zeros([BLOCK_N, D], gl.float32, d_l)
        mbarrier.wait(k_full.index(t % K_SLOTS), (t // K_SLOTS) & 1)
        if KV_REG:  # 64 columns leave registers for K and V
            mbarrier.wait(do_full.index(it % NB), (it // NB) & 1, pred=n > 0)
            Ka = K.load(a_l)
            Va = V.load(a_l)
        else:
            Ka = K
            Va = V
        if SKIPS:
            for _ in range(group):
                if (n > 0) & (row + BLOCK_M - 1 + hi < key):
                    # The first block of queries sees keys of the other main warpgroup alone. Loaded
                    # it must be before it is handed back: a barrier counts one round at a time.
                    mbarrier.wait(q_full.index(it % NB), (it // NB) & 1)
                    mbarrier.wait(do_full.index(it % NB), (it // NB) & 1)
                    if DQ:
                        slot = it % NS
                        mbarrier.wait(ds_empty.index(slot), ((it // NS) & 1) ^ 1)
                        ds_s.index(slot * 2 + g).store(gl.zeros([BLOCK_N, BLOCK_M], dtype, s_l))
                        fence_async_shared()
                        bar_arrive(DS_BAR + slot, 384)
                    bar_arrive(DO_BAR + it % NB, 288)
                    bar_arrive(Q_BAR + it % NB, 288)
                    it += 1
                    row += BLOCK_M
                for at in range(row, end, BLOCK_M):
                    dk, dv = _step(g, Ka, Va, q_s, do_s, ds_s, nlse_s, ndelta_s, q_full, do_full,
                                   ds_empty, dk, dv, it, key, at, low, high, keys, lo, hi,
                                   scale_log2, BLOCK_M, BLOCK_N, D, NB, NS, P16, BRANCH, TAIL,
                                   RIGHT, LEFT, DQ)  # fmt: skip
                    it += 1
                row = first * BLOCK_M
        else:
            for i in range(group * n):
                at = i
                if RIGHT or LEFT:
                    at = row
                dk, dv = _step(g, Ka, Va, q_s, do_s, ds_s, nlse_s, ndelta_s, q_full, do_full,
                               ds_empty, dk, dv, it, key, at, low, high, keys, lo, hi,
                               scale_log2, BLOCK_M, BLOCK_N, D, NB, NS, P16, BRANCH, TAIL, RIGHT,
                               LEFT, DQ)  # fmt: skip
                it += 1
                if RIGHT or LEFT:
                    row += BLOCK_M
                    if GROUPED:
                        row = gl.where(row == end, first * BLOCK_M, row)
        V.store(dv.to(dtype))
        fence_async_shared()
        mbarrier.arrive(dv_ready.index(t % 2), count=1)
        if DQ:  # K is free once the warpgroup of dQ has used the last dS
            mbarrier.wait(ds_empty.index((it + NS - 1) % NS), ((it + NS - 1) // NS & 1) ^ 1)
        K.store((dk * (scale_log2 * _LN2)).to(dtype))
        fence_async_shared()
        mbarrier.arrive(dk_ready.index(t % 2), count=1)


_INTEGERS = ["sched_stride", "n_kv_heads", "group", "n_queries", "n_keys", "left", "right"]


@gluon.jit(do_not_specialize=_INTEGERS)
def attention_bwd_kernel(
    q_desc,  # (B, H, Sq, D), tiles of BLOCK_M rows; ragged if PACKED, as are the next five
    do_desc,  # likewise
    k_desc,  # (B, Hkv, Sk, D), tiles of BLOCK_N rows
    v_desc,  # likewise
    dk_desc,  # likewise
    dv_desc,  # likewise
    dq_desc,  # (B H blocks D / 32 * BLOCK_M, 32) float32, fragment order; None without DQ
    nlse_desc,  # (B H blocks BLOCK_M,) float32: -lse in units of the raw product
    ndelta_desc,  # likewise: -rowsum(o do)
    sched_ptr,  # (blocks, sched_stride) int32: tiles of every block; PACKED: records, of all blocks
    count_ptr,  # (blocks,) int32: how many
    sched_stride,
    n_kv_heads,
    group,  # query heads of a key head
    n_queries,  # PACKED: rows of the vectors of rows, of a head
    n_keys,
    left,
    right,
    scale_log2,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    D: gl.constexpr,
    NB: gl.constexpr,
    NS: gl.constexpr,
    K_SLOTS: gl.constexpr,
    V_SLOTS: gl.constexpr,
    PARTS: gl.constexpr,
    MAIN_REGS: gl.constexpr,
    DQ_REGS: gl.constexpr,
    PRODUCER_REGS: gl.constexpr,
    P16: gl.constexpr,
    KV_REG: gl.constexpr,
    BRANCH: gl.constexpr,
    TAIL: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    SKIPS: gl.constexpr,
    GROUPED: gl.constexpr,
    DQ: gl.constexpr,
    PERSISTENT: gl.constexpr,
    PACKED: gl.constexpr = 0,  # numbers from a block's record to its next; 0: tiles, no records
    BOTTOM: gl.constexpr = False,
):
    dtype: gl.constexpr = q_desc.dtype
    q_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, D], dtype)
    k_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, D], dtype)
    ds_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_M], dtype)
    q_s = gl.allocate_shared_memory(dtype, [NB, BLOCK_M, D], q_l)
    do_s = gl.allocate_shared_memory(dtype, [NB, BLOCK_M, D], q_l)
    k_s = gl.allocate_shared_memory(dtype, [2 * K_SLOTS, BLOCK_N, D], k_l)
    v_s = gl.allocate_shared_memory(dtype, [2 * V_SLOTS, BLOCK_N, D], k_l)
    ds_s = q_s
    if DQ:
        ds_s = gl.allocate_shared_memory(dtype, [NS * 2, BLOCK_N, BLOCK_M], ds_l)
    nlse_s = gl.allocate_shared_memory(gl.float32, [NB, BLOCK_M], nlse_desc.layout)
    ndelta_s = gl.allocate_shared_memory(gl.float32, [NB, BLOCK_M], ndelta_desc.layout)
    bar_l: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [NB, 1], bar_l)
    do_full = gl.allocate_shared_memory(gl.int64, [NB, 1], bar_l)
    ds_empty = gl.allocate_shared_memory(gl.int64, [NS, 1], bar_l)
    k_full = gl.allocate_shared_memory(gl.int64, [K_SLOTS, 1], bar_l)
    dk_ready = gl.allocate_shared_memory(gl.int64, [2, 1], bar_l)
    dv_ready = gl.allocate_shared_memory(gl.int64, [2, 1], bar_l)
    for s in gl.static_range(NB):
        mbarrier.init(q_full.index(s), count=1)
        mbarrier.init(do_full.index(s), count=1)
    for s in gl.static_range(NS):
        mbarrier.init(ds_empty.index(s), count=1)
    for s in gl.static_range(K_SLOTS):
        mbarrier.init(k_full.index(s), count=1)
    for s in gl.static_range(2):
        mbarrier.init(dk_ready.index(s), count=2)
        mbarrier.init(dv_ready.index(s), count=2)
    fence_async_shared()
    pid = gl.program_id(0)
    if PERSISTENT:
        sched = sched_ptr + pid * (RECORD if PACKED else sched_stride)
        n_tiles = gl.load(count_ptr + pid)
    else:
        sched = sched_ptr + pid * (RECORD if PACKED else 1)
        n_tiles = 1
    main = (q_s, do_s, k_s, v_s, ds_s, nlse_s, ndelta_s, q_full, do_full, ds_empty, k_full,
            dk_ready, dv_ready, sched, n_tiles, group, n_queries, n_keys, left, right,
            scale_log2)  # fmt: skip
    feed = (q_desc, do_desc, k_desc, v_desc, dk_desc, dv_desc, nlse_desc, ndelta_desc, q_s, do_s,
            k_s, v_s, nlse_s, ndelta_s, q_full, do_full, k_full, dk_ready, dv_ready, sched,
            n_tiles, n_kv_heads, group, n_queries, n_keys, left, right)  # fmt: skip
    if DQ:
        part_l: gl.constexpr = dq_desc.layout
        dq_s = gl.allocate_shared_memory(gl.float32, [PARTS, 2 * (D // PARTS), 32], part_l)
        add = (dq_desc, k_s, ds_s, dq_s, ds_empty, k_full, sched, n_tiles, n_kv_heads,
               group, n_queries, n_keys, left, right)  # fmt: skip
        gl.warp_specialize([
            (_main, (0, main, BLOCK_M, BLOCK_N, D, NB, NS, K_SLOTS, V_SLOTS, P16, KV_REG, BRANCH,
                     TAIL, RIGHT, LEFT, False, GROUPED, DQ, PACKED, BOTTOM)),
            (_main, (1, main, BLOCK_M, BLOCK_N, D, NB, NS, K_SLOTS, V_SLOTS, P16, KV_REG, BRANCH,
                     TAIL, RIGHT, LEFT, SKIPS, GROUPED, DQ, PACKED, BOTTOM)),
            (_dq, (add, BLOCK_M, BLOCK_N, D, NS, K_SLOTS, PARTS, RIGHT, LEFT, PACKED, BOTTOM)),
            (load, (feed, BLOCK_M, BLOCK_N, D, NB, K_SLOTS, V_SLOTS, not PERSISTENT, RIGHT, LEFT,
                    PACKED, BOTTOM)),
        ], [4, 4, 1], [MAIN_REGS, DQ_REGS, PRODUCER_REGS])  # fmt: skip
    else:
        gl.warp_specialize([
            (_main, (0, main, BLOCK_M, BLOCK_N, D, NB, NS, K_SLOTS, V_SLOTS, P16, KV_REG, BRANCH,
                     TAIL, RIGHT, LEFT, False, GROUPED, DQ, PACKED, BOTTOM)),
            (_main, (1, main, BLOCK_M, BLOCK_N, D, NB, NS, K_SLOTS, V_SLOTS, P16, KV_REG, BRANCH,
                     TAIL, RIGHT, LEFT, SKIPS, GROUPED, DQ, PACKED, BOTTOM)),
            (load, (feed, BLOCK_M, BLOCK_N, D, NB, K_SLOTS, V_SLOTS, not PERSISTENT, RIGHT, LEFT,
                    PACKED, BOTTOM)),
        ], [4, 1], [MAIN_REGS, PRODUCER_REGS])  # fmt: skip
