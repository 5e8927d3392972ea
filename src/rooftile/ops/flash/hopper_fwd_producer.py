"""The warp of the Hopper forward that feeds it: queries, keys and values of every tile."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from rooftile.ops.flash.hopper_band import key_blocks
from rooftile.ops.flash.hopper_packed import load_rows, tile_of
from rooftile.ops.flash.hopper_tma import bar_sync

# Named barriers: 8 .. 8 + stages - 1 a slot of K is free, from 8 + stages on one of V
K_BAR = gl.constexpr(8)


@gluon.jit
def load(args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr,
         STAGES: gl.constexpr, GROUPS: gl.constexpr, Q_REG: gl.constexpr, Q_SLOTS: gl.constexpr,
         RIGHT: gl.constexpr, LEFT: gl.constexpr, PACKED: gl.constexpr,
         BOTTOM: gl.constexpr):  # fmt: skip
    """One warp: Q, K and V of every tile, in the order in which they are used."""
    (q_desc, k_desc, v_desc, q_reg_s, q_s, k_s, v_s, q_full, q_empty, k_full, v_full, sched,
     n_tiles, n_heads, group, n_queries, n_keys, left, right) = args  # fmt: skip
    THREADS: gl.constexpr = GROUPS * 128 + 32
    it = 0  # key blocks so far, over all tiles
    code = gl.load(sched)
    for t in range(n_tiles):
        b, h, row, q_start, rows, k_start, keys, lo, hi = tile_of(
            sched + t * PACKED, code, n_heads, n_queries, n_keys, left, right, PACKED, BOTTOM
        )
        first, end = key_blocks(row, GROUPS * BLOCK_M, keys, lo, hi, BLOCK_N, RIGHT, LEFT, PACKED)
        if not PACKED:
            code = gl.load(sched + t + 1)
        qs = t % Q_SLOTS
        if Q_SLOTS == 2:
            mbarrier.wait(q_empty.index(qs), ((t // 2) & 1) ^ 1)
        else:
            mbarrier.wait(q_empty.index(0), (t & 1) ^ 1, pred=t > 0)
        for g in gl.static_range(GROUPS):
            full = q_full.index(qs * GROUPS + g)
            mbarrier.expect(full, BLOCK_M * D * 2)
            if Q_REG > 0:
                load_rows(q_desc, b, h, row + g * BLOCK_M, 0, q_start, rows, full,
                          q_reg_s.index(qs * GROUPS + g), PACKED)  # fmt: skip
            if Q_REG < D:
                slot = (t & 1) * GROUPS + g
                load_rows(q_desc, b, h, row + g * BLOCK_M, Q_REG, q_start, rows, full,
                          q_s.index(slot), PACKED)  # fmt: skip
        hk = h // group
        col = end * BLOCK_N
        for _ in range(end - first):
            col -= BLOCK_N
            s = it % STAGES
            if it >= STAGES:
                bar_sync(K_BAR + s, THREADS)
            mbarrier.expect(k_full.index(s), BLOCK_N * D * 2)
            load_rows(k_desc, b, hk, col, 0, k_start, keys, k_full.index(s), k_s.index(s),
                      PACKED)  # fmt: skip
            if it >= STAGES:
                bar_sync(K_BAR + STAGES + s, THREADS)
            mbarrier.expect(v_full.index(s), BLOCK_N * D * 2)
            load_rows(v_desc, b, hk, col, 0, k_start, keys, v_full.index(s), v_s.index(s),
                      PACKED)  # fmt: skip
            it += 1
