"""The warp of the Hopper backward that feeds it, up to 128 columns, and takes dK and dV out."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from rooftile.ops.flash.hopper_band import query_blocks, tile_place
from rooftile.ops.flash.hopper_tma import bar_sync, tma_load, tma_store

# Named barriers. 384 threads: the main warpgroups and that of dQ; 288: the main ones and the
# producer.
DS_BAR = gl.constexpr(8)  # 8, 9: a slot of dS is written
Q_BAR = gl.constexpr(10)  # 10, 11: a slot of Q is free
DO_BAR = gl.constexpr(12)  # 12, 13: a slot of dO is free


@gluon.jit
def _pair_in(desc, b, h, row, barrier, slots, first, ROWS: gl.constexpr):
    """Load the tiles of both main warpgroups."""
    for g in gl.static_range(2):
        tma_load(desc, [b, h, row + g * ROWS, 0], barrier, slots.index(first + g))


@gluon.jit
def _pair_out(desc, code, n_heads, ready, t, slots, SLOTS: gl.constexpr, ROWS: gl.constexpr):
    """Store a gradient from its operand's slots once both main warpgroups have written it."""
    b, h, row = tile_place(code, n_heads)
    mbarrier.wait(ready.index(t % 2), (t // 2) & 1)
    for g in gl.static_range(2):
        tma_store(desc, [b, h, row + g * ROWS, 0], slots.index(2 * (t % SLOTS) + g))


@gluon.jit
def load(args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, NB: gl.constexpr,
          K_SLOTS: gl.constexpr, V_SLOTS: gl.constexpr, EARLY_V: gl.constexpr,
         RIGHT: gl.constexpr, LEFT: gl.constexpr):  # fmt: skip
    """One warp: K and V of every tile, Q, dO and row vectors of every query block; dK and dV out.

    The gradients leave from here, one tile late: the main warpgroups have no register for where.
    """
    (q_desc, do_desc, k_desc, v_desc, dk_desc, dv_desc, nlse_desc, ndelta_desc, q_s, do_s, k_s, v_s,
     nlse_s, ndelta_s, q_full, do_full, k_full, dk_ready, dv_ready, sched, n_tiles, n_kv_heads,
     group, n_queries, left, right) = args  # fmt: skip
    KV_BYTES: gl.constexpr = 2 * BLOCK_N * D * 2
    ROW_BYTES: gl.constexpr = BLOCK_M * D * 2 + BLOCK_M * 4
    n_blocks = gl.cdiv(n_queries, BLOCK_M)
    it = 0
    code = gl.load(sched)
    for t in range(n_tiles):
        b, hk, key = tile_place(code, n_kv_heads)
        # Read again: Triton 3.6 does not carry a variable that starts as a copy of another and is
        # set to the same other one in each round.
        last = gl.load(sched + gl.maximum(t - 1, 0))
        first, n = query_blocks(key, n_queries, left, right, BLOCK_M, 2 * BLOCK_N, RIGHT, LEFT)
        late = (t > 0) & (n > 0)
        if (t > 0) & (n == 0):  # no dO to wait for: the slots of V come free here
            _pair_out(dv_desc, last, n_kv_heads, dv_ready, t - 1, v_s, V_SLOTS, BLOCK_N)
            _pair_out(dk_desc, last, n_kv_heads, dk_ready, t - 1, k_s, K_SLOTS, BLOCK_N)
        tma.store_wait(0)
        ks = t % K_SLOTS
        mbarrier.expect(k_full.index(ks), KV_BYTES)
        _pair_in(k_desc, b, hk, key, k_full.index(ks), k_s, 2 * ks, BLOCK_N)
        line = (b * n_kv_heads + hk) * group
        if EARLY_V:  # nothing was there before
            if n > 0:
                mbarrier.expect(do_full.index(0), ROW_BYTES + KV_BYTES)
                _pair_in(v_desc, b, hk, key, do_full.index(0), v_s, 0, BLOCK_N)
        for hq in range(group):
            for i in range(n):
                s = it % NB
                row = (first + i) * BLOCK_M
                flat = (line + hq) * n_blocks * BLOCK_M + row
                if it >= NB:
                    bar_sync(Q_BAR + s, 288)
                mbarrier.expect(q_full.index(s), ROW_BYTES)
                tma_load(q_desc, [b, hk * group + hq, row, 0], q_full.index(s), q_s.index(s))
                tma_load(nlse_desc, [flat], q_full.index(s), nlse_s.index(s))
                if it >= NB:
                    bar_sync(DO_BAR + s, 288)
                if hq + i > 0:
                    mbarrier.expect(do_full.index(s), ROW_BYTES)
                elif not EARLY_V:
                    mbarrier.expect(do_full.index(s), ROW_BYTES + KV_BYTES)
                tma_load(do_desc, [b, hk * group + hq, row, 0], do_full.index(s), do_s.index(s))
                tma_load(ndelta_desc, [flat], do_full.index(s), ndelta_s.index(s))
                if not EARLY_V:
                    if hq + i == 0:
                        if V_SLOTS == 2:
                            _pair_in(v_desc, b, hk, key, do_full.index(s), v_s, 2 * (t % 2),
                                     BLOCK_N)  # fmt: skip
                        if late:
                            _pair_out(dv_desc, last, n_kv_heads, dv_ready, t - 1, v_s, V_SLOTS,
                                      BLOCK_N)  # fmt: skip
                        if V_SLOTS == 1:  # free once the last tile's dV has left
                            tma.store_wait(0)
                            _pair_in(v_desc, b, hk, key, do_full.index(s), v_s, 0, BLOCK_N)
                        if late:
                            _pair_out(dk_desc, last, n_kv_heads, dk_ready, t - 1, k_s, K_SLOTS,
                                      BLOCK_N)  # fmt: skip
                it += 1
        code = gl.load(sched + t + 1)
    t = n_tiles - 1
    last = gl.load(sched + t)
    _pair_out(dv_desc, last, n_kv_heads, dv_ready, t, v_s, V_SLOTS, BLOCK_N)
    _pair_out(dk_desc, last, n_kv_heads, dk_ready, t, k_s, K_SLOTS, BLOCK_N)
    tma.store_wait(0)
