"""Attention forward for Hopper in Gluon: tensor copies, mbarriers, warp specialisation, wgmma.

One persistent block a SM takes tiles of query rows from a table. Its warps have roles: consumer
warpgroups of 64 rows each, and one producer warp that feeds keys and values through TMA.

- S(j) = Q K(j)^T is issued together with O += P(j-1) V(j-1), and the first product of the next tile
  in front of the last one of this tile: the tensor cores work while a warpgroup takes exponentials
  or stores its output.
- Q is held in registers where it fits (all of it at 128 columns, half at 256): with both operands
  in shared memory, Q K^T reads 96 to 128 of the 128 bytes a clock that TMA writes share. The slot
  of shared memory it came through is then free for the next Q, and for O on its way out.
- How a tile's place is carried (PACKED_PLACE) and whether Q has two slots (Q_SLOTS) leave the hot
  loop as long as it was, and move the speed by 2 to 4 %: each width and mask has what measured
  fastest.
- Buffers are handed back through named barriers.
- The output is rescaled where a row's maximum has grown by much, not at each block.
- Key blocks are visited from the last to the first: where rows and keys are aligned, the first
  block of a tile is the only one to mask.
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

from rooftile.ops.flash.hopper_band import key_span, mask_scores, tile_place
from rooftile.ops.flash.hopper_fwd_producer import K_BAR, load
from rooftile.ops.flash.hopper_packed import RECORD, store_rows, tile_of
from rooftile.ops.flash.hopper_softmax import nothing, rescale, weigh
from rooftile.ops.flash.hopper_tma import bar_arrive

_NEG_INF = gl.constexpr(-float("inf"))
_LN2 = gl.constexpr(0.6931471805599453)
# of EDGES, where 1 says that the first block of a tile is masked
_EVERYWHERE = gl.constexpr(2)  # any block may be masked, and a row may see no key


# ---------------------------------------------------------------- consumers
@gluon.jit
def _qk(q_reg, q, k, zero, D: gl.constexpr, Q_REG: gl.constexpr):
    """Issue Q K^T; the first Q_REG columns of Q come from registers."""
    if Q_REG == 0:
        s = warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)
    elif Q_REG == D:
        s = warpgroup_mma(q_reg, k.permute((1, 0)), zero, use_acc=False, is_async=True)
    else:
        k0 = k.slice(0, Q_REG, dim=1).permute((1, 0))
        k1 = k.slice(Q_REG, D - Q_REG, dim=1).permute((1, 0))
        s = warpgroup_mma(q_reg, k0, zero, use_acc=False, is_async=True)
        s = warpgroup_mma(q, k1, s, is_async=True)
    return s


@gluon.jit
def _slot_after(slot, phase, STAGES: gl.constexpr):
    """The next block's slot and phase of its barrier: carried, so that the wait starts sooner."""
    if STAGES == 2:
        phase = phase ^ slot
        slot = slot ^ 1
    else:
        wraps = slot == STAGES - 1
        phase = gl.where(wraps, phase ^ 1, phase)
        slot = gl.where(wraps, 0, slot + 1)
    return slot, phase


@gluon.jit
def _store(o_desc, acc, q_reg_s, q_s, b, h, row, start, length, D: gl.constexpr,
           Q_REG: gl.constexpr, PACKED: gl.constexpr):  # fmt: skip
    """O leaves through the slots of Q that this tile no longer needs."""
    M: gl.constexpr = acc.shape[0]
    if Q_REG == D:
        q_reg_s.store(acc)
        fence_async_shared()
        store_rows(o_desc, b, h, row, 0, start, length, q_reg_s, PACKED)
    elif Q_REG == 0:
        q_s.store(acc)
        fence_async_shared()
        store_rows(o_desc, b, h, row, 0, start, length, q_s, PACKED)
    else:
        halves = gl.permute(gl.reshape(acc, [M, 2, D // 2]), (0, 2, 1))
        low, high = gl.split(halves)
        q_reg_s.store(low)
        q_s.store(high)
        fence_async_shared()
        store_rows(o_desc, b, h, row, 0, start, length, q_reg_s, PACKED)
        store_rows(o_desc, b, h, row, D // 2, start, length, q_s, PACKED)


@gluon.jit
def _consume(cid: gl.constexpr, args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
             D: gl.constexpr, STAGES: gl.constexpr, GROUPS: gl.constexpr, Q_REG: gl.constexpr,
             Q_SLOTS: gl.constexpr, PACKED_PLACE: gl.constexpr, EDGES: gl.constexpr,
             TAIL: gl.constexpr, RIGHT: gl.constexpr, LEFT: gl.constexpr, SKIPS: gl.constexpr,
             POLY: gl.constexpr, PACKED: gl.constexpr, BOTTOM: gl.constexpr):  # fmt: skip
    """One warpgroup: the softmax and both products of its rows of every tile."""
    (o_desc, lse_ptr, q_reg_s, q_s, k_s, v_s, q_full, q_empty, k_full, v_full, sched, n_tiles,
     n_heads, n_queries, n_keys, left, right, scale_log2) = args  # fmt: skip
    FIRST: gl.constexpr = EDGES == _EVERYWHERE or PACKED > 0  # in a tile's first block, likewise
    THREADS: gl.constexpr = GROUPS * 128 + 32
    dtype: gl.constexpr = k_s.dtype
    s_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_l: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=o_l, k_width=2)
    q_l: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=s_l, k_width=2)
    o_row: gl.constexpr = gl.SliceLayout(1, o_l)
    rows = gl.arange(0, BLOCK_M, gl.SliceLayout(1, s_l))
    cols = gl.arange(0, BLOCK_N, gl.SliceLayout(0, s_l))
    zero = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, s_l)

    # The first block of the first tile
    it = 0
    code = gl.load(sched)
    b, h, tile_row, _, _, _, keys, lo, hi = tile_of(
        sched, code, n_heads, n_queries, n_keys, left, right, PACKED, BOTTOM
    )
    if not PACKED:
        next_code = gl.load(sched + 1)
    row = tile_row + cid * BLOCK_M
    first, end, skip = key_span(tile_row, cid, keys, lo, hi, BLOCK_M, BLOCK_N, GROUPS, RIGHT, LEFT,
                                SKIPS, PACKED)  # fmt: skip
    if SKIPS:
        if skip > 0:  # at most one block: hand it straight back
            mbarrier.wait(k_full.index(0), 0)
            bar_arrive(K_BAR, THREADS)
            mbarrier.wait(v_full.index(0), 0)
            bar_arrive(K_BAR + STAGES, THREADS)
        it += skip
    mbarrier.wait(q_full.index(cid), 0)
    if Q_REG > 0:
        q_reg = q_reg_s.index(cid).load(q_l)
    if Q_SLOTS == 1:
        mbarrier.arrive(q_empty.index(0), count=1)
    s = it % STAGES
    mbarrier.wait(k_full.index(s), (it // STAGES) & 1)
    if Q_REG > 0:
        st = _qk(q_reg, q_s.index(cid), k_s.index(s), zero, D, Q_REG)
    else:
        st = _qk(zero, q_s.index(cid), k_s.index(s), zero, D, Q_REG)
    scores = warpgroup_mma_wait(0, deps=(st,))
    bar_arrive(K_BAR + s, THREADS)
    if EDGES > 0:
        scores = mask_scores(scores, row, (end - 1) * BLOCK_N, keys, lo, hi, rows, cols,
                             TAIL, RIGHT, LEFT)  # fmt: skip
    none_m, none = nothing(zero)
    p, m, norm, _ = weigh(scores, none_m, none, scale_log2, FIRST, POLY)
    pb = gl.convert_layout(p.to(dtype), p_l)
    acc = gl.zeros([BLOCK_M, D], gl.float32, o_l)

    for t in range(n_tiles):
        q = q_s.index((t & 1) * GROUPS + cid)
        # Computed here: Triton 3.6 does not carry a variable that is used only as the bound of an
        # inner loop from the end of one round to the next.
        if PACKED:
            _, _, tile_row, _, _, _, keys, lo, hi = tile_of(
                sched + t * PACKED, code, n_heads, n_queries, n_keys, left, right, PACKED, BOTTOM
            )
            row = tile_row + cid * BLOCK_M
        elif PACKED_PLACE:
            row = (code & 0xFFFF) * 64 + cid * BLOCK_M
        first, end, _ = key_span(row - cid * BLOCK_M, cid, keys, lo, hi, BLOCK_M, BLOCK_N, GROUPS,
                                 RIGHT, LEFT, SKIPS, PACKED)  # fmt: skip
        vs = it % STAGES
        v_phase = (it // STAGES) & 1
        s, k_phase = _slot_after(vs, v_phase, STAGES)
        for i in range(1, end - first):
            mbarrier.wait(k_full.index(s), k_phase)
            if Q_REG > 0:
                st = _qk(q_reg, q, k_s.index(s), zero, D, Q_REG)
            else:
                st = _qk(zero, q, k_s.index(s), zero, D, Q_REG)
            mbarrier.wait(v_full.index(vs), v_phase)
            acct = warpgroup_mma(pb, v_s.index(vs), acc, is_async=True)
            scores = warpgroup_mma_wait(1, deps=(st,))
            bar_arrive(K_BAR + s, THREADS)
            if EDGES == _EVERYWHERE:
                col = (end - 1 - i) * BLOCK_N
                edge = col < 0
                if RIGHT:
                    edge = col + BLOCK_N - 1 > row + hi
                if LEFT:
                    edge = edge | (col < row + BLOCK_M - 1 - lo)
                if edge:
                    scores = mask_scores(
                        scores, row, col, keys, lo, hi, rows, cols, TAIL, RIGHT, LEFT
                    )
            p, m, norm, alpha = weigh(scores, m, norm, scale_log2, EDGES == _EVERYWHERE, POLY)
            pn = gl.convert_layout(p.to(dtype), p_l)
            acc = warpgroup_mma_wait(0, deps=(acct,))
            bar_arrive(K_BAR + STAGES + vs, THREADS)
            pb = pn
            acc = rescale(acc, alpha)
            vs, v_phase = _slot_after(vs, v_phase, STAGES)
            s, k_phase = _slot_after(vs, v_phase, STAGES)

        # The tile's end: the next tile's first Q K^T goes in front of the last P V. After the last
        # tile it multiplies whatever lies in shared memory, and the result is not used.
        more = t + 1 < n_tiles
        it += end - first
        if not PACKED:
            done, done_b, done_h, done_row = code, b, h, row
            code = next_code
        b, h, tile_row, _, _, _, keys, lo, hi = tile_of(
            sched + (t + 1) * PACKED, code, n_heads, n_queries, n_keys, left, right, PACKED, BOTTOM
        )
        if not PACKED:
            next_code = gl.load(sched + t + 2)
        row = tile_row + cid * BLOCK_M
        first, end, skip = key_span(tile_row, cid, keys, lo, hi, BLOCK_M, BLOCK_N, GROUPS, RIGHT,
                                    LEFT, SKIPS, PACKED)  # fmt: skip
        if SKIPS:
            # K alone for now: this tile's last V comes before the skipped block's V
            if more & (skip > 0):
                mbarrier.wait(k_full.index(it % STAGES), (it // STAGES) & 1)
                bar_arrive(K_BAR + it % STAGES, THREADS)
        s = (it + skip) % STAGES
        qn = q_s.index(((t + 1) & 1) * GROUPS + cid)
        ns = (t + 1) % Q_SLOTS * GROUPS + cid
        mbarrier.wait(q_full.index(ns), ((t + 1) // Q_SLOTS) & 1, pred=more)
        if Q_REG > 0:
            q_reg = q_reg_s.index(ns).load(q_l)
        mbarrier.wait(k_full.index(s), ((it + skip) // STAGES) & 1, pred=more)
        if Q_REG > 0:
            st = _qk(q_reg, qn, k_s.index(s), zero, D, Q_REG)
        else:
            st = _qk(zero, qn, k_s.index(s), zero, D, Q_REG)
        mbarrier.wait(v_full.index(vs), v_phase)
        acct = warpgroup_mma(pb, v_s.index(vs), acc, is_async=True)
        scores = warpgroup_mma_wait(1, deps=(st,))
        if more:
            bar_arrive(K_BAR + s, THREADS)
        acc = warpgroup_mma_wait(0, deps=(acct,))
        if more:
            bar_arrive(K_BAR + STAGES + vs, THREADS)

        norm = gl.convert_layout(gl.sum(norm, 1), gl.SliceLayout(1, s_l))
        m = gl.convert_layout(gl.max(m, 1), gl.SliceLayout(1, s_l))
        inverse = 1.0 / norm
        lse = (m + gl.log2(norm)) * _LN2
        if FIRST:
            inverse = gl.where(m == _NEG_INF, 0.0, inverse)
            lse = gl.where(m == _NEG_INF, _NEG_INF, lse)
        acc = acc * gl.expand_dims(gl.convert_layout(inverse, o_row), 1)
        if PACKED:
            done_b, done_h, done_row, start, length, _, _, _, _ = tile_of(
                sched + t * PACKED, 0, n_heads, n_queries, n_keys, left, right, PACKED, False
            )
            done_row += cid * BLOCK_M
            lse_row = done_h.to(gl.int64) * n_queries + start + done_row
        else:
            if PACKED_PLACE:
                done_b, done_h, done_row = tile_place(done, n_heads)
                done_row += cid * BLOCK_M
            start, length = 0, n_queries
            lse_row = (done_b * n_heads + done_h).to(gl.int64) * n_queries + done_row
        gl.store(lse_ptr + lse_row + rows, lse, mask=rows < length - done_row)
        _store(o_desc, acc.to(dtype), q_reg_s.index(t % Q_SLOTS * GROUPS + cid), q, done_b, done_h,
               done_row, start, length, D, Q_REG, PACKED)  # fmt: skip
        if SKIPS:
            if more & (skip > 0):
                mbarrier.wait(v_full.index(it % STAGES), (it // STAGES) & 1)
                bar_arrive(K_BAR + STAGES + it % STAGES, THREADS)
        it += skip
        if EDGES > 0:
            scores = mask_scores(scores, row, (end - 1) * BLOCK_N, keys, lo, hi, rows, cols,
                           TAIL, RIGHT, LEFT)  # fmt: skip
        p, m, norm, _ = weigh(scores, none_m, none, scale_log2, FIRST, POLY)
        pb = gl.convert_layout(p.to(dtype), p_l)
        acc = gl.zeros([BLOCK_M, D], gl.float32, o_l)
        tma.store_wait(0)
        # The last tile of each slot completes a phase that nobody waits for, which synccheck calls
        # a missing wait: the barrier ends with the block.
        mbarrier.arrive(q_empty.index(t % Q_SLOTS), count=1)


_INTEGERS = ["sched_stride", "n_heads", "group", "n_queries", "n_keys", "left", "right"]


@gluon.jit(do_not_specialize=_INTEGERS)
def attention_fwd_kernel(
    q_desc,  # (B, H, Sq, D), tiles of BLOCK_M rows; ragged if PACKED, as are the others
    k_desc,  # (B, Hkv, Sk, D), tiles of BLOCK_N rows
    v_desc,  # (B, Hkv, Sk, D), tiles of BLOCK_N rows
    o_desc,  # (B, H, Sq, D), tiles of BLOCK_M rows
    lse_ptr,  # (B, H, Sq) float32
    sched_ptr,  # (blocks, sched_stride) int32: tiles of every block; PACKED: records, of all blocks
    count_ptr,  # (blocks,) int32: how many
    sched_stride,
    n_heads,
    group,  # query heads of a key head
    n_queries,  # PACKED: of all sequences
    n_keys,
    left,
    right,
    scale_log2,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    D: gl.constexpr,
    STAGES: gl.constexpr,
    GROUPS: gl.constexpr,
    Q_REG: gl.constexpr,
    Q_SLOTS: gl.constexpr,
    PACKED_PLACE: gl.constexpr,
    CONSUMER_REGS: gl.constexpr,
    PRODUCER_REGS: gl.constexpr,
    EDGES: gl.constexpr,
    TAIL: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    SKIPS: gl.constexpr,
    POLY: gl.constexpr,
    PACKED: gl.constexpr = 0,  # numbers from a block's record to its next; 0: tiles, no records
    BOTTOM: gl.constexpr = False,
):
    dtype: gl.constexpr = q_desc.dtype
    Q_COLS: gl.constexpr = Q_REG if Q_REG > 0 else D
    tile_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, Q_COLS], dtype)
    kv_l: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, D], dtype)
    if Q_REG == D:
        q_reg_s = gl.allocate_shared_memory(dtype, [Q_SLOTS * GROUPS, BLOCK_M, D], tile_l)
        q_s = q_reg_s
    else:
        gl.static_assert(Q_REG == 0 or 2 * Q_REG == D, "one tile serves both parts of Q")
        q_s = gl.allocate_shared_memory(dtype, [2 * GROUPS, BLOCK_M, Q_COLS], tile_l)
        q_reg_s = q_s
        if Q_REG > 0:
            q_reg_s = gl.allocate_shared_memory(dtype, [GROUPS, BLOCK_M, Q_COLS], tile_l)
    k_s = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, D], kv_l)
    v_s = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, D], kv_l)
    bar_l: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [Q_SLOTS * GROUPS, 1], bar_l)
    q_empty = gl.allocate_shared_memory(gl.int64, [Q_SLOTS, 1], bar_l)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar_l)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar_l)
    for g in gl.static_range(Q_SLOTS):
        mbarrier.init(q_empty.index(g), count=GROUPS)
    for g in gl.static_range(Q_SLOTS * GROUPS):
        mbarrier.init(q_full.index(g), count=1)
    for s in gl.static_range(STAGES):
        mbarrier.init(k_full.index(s), count=1)
        mbarrier.init(v_full.index(s), count=1)
    fence_async_shared()
    pid = gl.program_id(0)
    sched = sched_ptr + pid * (RECORD if PACKED else sched_stride)
    n_tiles = gl.load(count_ptr + pid)
    to_load = (q_desc, k_desc, v_desc, q_reg_s, q_s, k_s, v_s, q_full, q_empty, k_full, v_full,
               sched, n_tiles, n_heads, group, n_queries, n_keys, left, right)  # fmt: skip
    args = (o_desc, lse_ptr, q_reg_s, q_s, k_s, v_s, q_full, q_empty, k_full, v_full, sched,
            n_tiles, n_heads, n_queries, n_keys, left, right,
            scale_log2)  # fmt: skip
    if GROUPS == 2:
        gl.warp_specialize([
            (_consume, (0, args, BLOCK_M, BLOCK_N, D, STAGES, GROUPS, Q_REG, Q_SLOTS,
                        PACKED_PLACE, EDGES, TAIL, RIGHT, LEFT, SKIPS, POLY, PACKED, BOTTOM)),
            (_consume, (1, args, BLOCK_M, BLOCK_N, D, STAGES, GROUPS, Q_REG, Q_SLOTS,
                        PACKED_PLACE, EDGES, TAIL, RIGHT, LEFT, SKIPS, POLY, PACKED, BOTTOM)),
            (load, (to_load, BLOCK_M, BLOCK_N, D, STAGES, GROUPS, Q_REG, Q_SLOTS, RIGHT, LEFT,
                    PACKED, BOTTOM)),
        ], [4, 1], [CONSUMER_REGS, PRODUCER_REGS])  # fmt: skip
    else:
        gl.warp_specialize([
            (_consume, (0, args, BLOCK_M, BLOCK_N, D, STAGES, GROUPS, Q_REG, Q_SLOTS,
                        PACKED_PLACE, EDGES, TAIL, RIGHT, LEFT, SKIPS, POLY, PACKED, BOTTOM)),
            (_consume, (1, args, BLOCK_M, BLOCK_N, D, STAGES, GROUPS, Q_REG, Q_SLOTS,
                        PACKED_PLACE, EDGES, TAIL, RIGHT, LEFT, SKIPS, POLY, PACKED, BOTTOM)),
            (_consume, (2, args, BLOCK_M, BLOCK_N, D, STAGES, GROUPS, Q_REG, Q_SLOTS,
                        PACKED_PLACE, EDGES, TAIL, RIGHT, LEFT, SKIPS, POLY, PACKED, BOTTOM)),
            (load, (to_load, BLOCK_M, BLOCK_N, D, STAGES, GROUPS, Q_REG, Q_SLOTS, RIGHT, LEFT,
                    PACKED, BOTTOM)),
        ], [4, 4, 1], [CONSUMER_REGS, CONSUMER_REGS, PRODUCER_REGS])  # fmt: skip
