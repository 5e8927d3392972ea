"""The warp of the Hopper backward that feeds it, up to 128 columns, and takes dK and dV out."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from rooftile.ops.flash.hopper_band import query_blocks
from rooftile.ops.flash.hopper_packed import first_block, load_rows, store_rows, tile_of
from rooftile.ops.flash.hopper_tma import bar_sync, tma_load

# Named barriers. 384 threads: the main warpgroups and that of dQ; 288: the main ones and the
# producer.
DS_BAR = gl.constexpr(8)  # 8, 9: a slot of dS is written
Q_BAR = gl.constexpr(10)  # 10, 11: a slot of Q is free
DO_BAR = gl.constexpr(12)  # 12, 13: a slot of dO is free


@gluon.jit
def _pair_in(desc, b, h, row, start, length, barrier, slots, first, ROWS: gl.constexpr,
             PACKED: gl.constexpr):  # fmt: skip
    """Load the tiles of both main warpgroups."""
    for g in gl.static_range(2):
        load_rows(desc, b, h, row + g * ROWS, 0, start, length, barrier, slots.index(first + g),
                  PACKED)  # fmt: skip


@gluon.jit
def _pair_out(desc, sched, code, n_heads, ready, t, slots, SLOTS: gl.constexpr, ROWS: gl.constexpr,
              PACKED: gl.constexpr):  # fmt: skip
    """Store a gradient from its operand's slots once both main warpgroups have written it."""
    b, h, row, _, _, start, length, _, _ = tile_of(sched, code, n_heads, 0, 0, 0, 0, PACKED, False)
    mbarrier.wait(ready.index(t % 2), (t // 2) & 1)
    for g in gl.static_range(2):
        store_rows(desc, b, h, row + g * ROWS, 0, start, length,
                   slots.index(2 * (t % SLOTS) + g), PACKED)  # fmt: skip


@gluon.jit
def load(args, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, D: gl.constexpr, NB: gl.constexpr,
         K_SLOTS: gl.constexpr, V_SLOTS: gl.constexpr, EARLY_V: gl.constexpr, RIGHT: gl.constexpr,
         LEFT: gl.constexpr, PACKED: gl.constexpr, BOTTOM: gl.constexpr):  # fmt: skip
    """One warp: K and V of every tile, Q, dO and row vectors of every query block; dK and dV out.

    The gradients leave from here, one tile late: the main warpgroups have no register for where.
    """
    (q_desc, do_desc, k_desc, v_desc, dk_desc, dv_desc, nlse_desc, ndelta_desc, q_s, do_s, k_s, v_s,
     nlse_s, ndelta_s, q_full, do_full, k_full, dk_ready, dv_ready, sched, n_tiles,
     n_kv_heads, group, n_queries, n_keys, left, right) = args  # fmt: skip
    STEP: gl.constexpr = PACKED if PACKED > 0 else 1
    KV_BYTES: gl.constexpr = 2 * BLOCK_N * D * 2
    ROW_BYTES: gl.constexpr = BLOCK_M * D * 2 + BLOCK_M * 4
    n_blocks = gl.cdiv(n_queries, BLOCK_M)
    it = 0
    code = gl.load(sched)
    for t in range(n_tiles):
        b, hk, key, q_start, queries, k_start, keys, lo, hi = tile_of(
            sched + t * STEP, code, n_kv_heads, n_queries, n_keys, left, right, PACKED, BOTTOM
        )
        # Read again: Triton 3.6 does not carry a variable that starts as a copy of another and is
        # set to the same other one in each round.
        past = sched + gl.maximum(t - 1, 0) * STEP
        last = gl.load(past)
        first, n = query_blocks(key, queries, lo, hi, BLOCK_M, 2 * BLOCK_N, RIGHT, LEFT)
        late = (t > 0) & (n > 0)
        if (t > 0) & (n == 0):  # no dO to wait for: the slots of V come free here
            _pair_out(dv_desc, past, last, n_kv_heads, dv_ready, t - 1, v_s, V_SLOTS,
                      BLOCK_N, PACKED)  # fmt: skip
            _pair_out(dk_desc, past, last, n_kv_heads, dk_ready, t - 1, k_s, K_SLOTS,
                      BLOCK_N, PACKED)  # fmt: skip
        tma.store_wait(0)
        ks = t % K_SLOTS
        mbarrier.expect(k_full.index(ks), KV_BYTES)
        _pair_in(k_desc, b, hk, key, k_start, keys, k_full.index(ks), k_s, 2 * ks, BLOCK_N, PACKED)
        line = (b * n_kv_heads + hk) * group
        skipped = 0
        if PACKED:
            skipped = first_block(sched + t * STEP) * BLOCK_M
        if EARLY_V:  # nothing was there before
            if n > 0:
                mbarrier.expect(do_full.index(0), ROW_BYTES + KV_BYTES)
                _pair_in(v_desc, b, hk, key, k_start, keys, do_full.index(0), v_s, 0, BLOCK_N,
                         PACKED)  # fmt: skip
        for hq in range(group):
            for i in range(n):
                s = it % NB
                row = (first + i) * BLOCK_M
                flat = (line + hq) * n_blocks * BLOCK_M + row
                if PACKED:
                    flat += skipped
                if it >= NB:
                    bar_sync(Q_BAR + s, 288)
                mbarrier.expect(q_full.index(s), ROW_BYTES)
                load_rows(q_desc, b, hk * group + hq, row, 0, q_start, queries, q_full.index(s),
                          q_s.index(s), PACKED)  # fmt: skip
                tma_load(nlse_desc, [flat], q_full.index(s), nlse_s.index(s))
                if it >= NB:
                    bar_sync(DO_BAR + s, 288)
                if hq + i > 0:
                    mbarrier.expect(do_full.index(s), ROW_BYTES)
                elif not EARLY_V:
                    mbarrier.expect(do_full.index(s), ROW_BYTES + KV_BYTES)
                load_rows(do_desc, b, hk * group + hq, row, 0, q_start, queries, do_full.index(s),
                          do_s.index(s), PACKED)  # fmt: skip
                tma_load(ndelta_desc, [flat], do_full.index(s), ndelta_s.index(s))
                if not EARLY_V:
                    if hq + i == 0:
                        if V_SLOTS == 2:
                            _pair_in(v_desc, b, hk, key, k_start, keys, do_full.index(s), v_s,
                                     2 * (t % 2), BLOCK_N, PACKED)  # fmt: skip
                        if late:
                            _pair_out(dv_desc, past, last, n_kv_heads, dv_ready, t - 1, v_s,
                                      V_SLOTS, BLOCK_N, PACKED)  # fmt: skip
                        if V_SLOTS == 1:  # free once the last tile's dV has left
                            tma.store_wait(0)
                            _pair_in(v_desc, b, hk, key, k_start, keys, do_full.index(s), v_s, 0,
                                     BLOCK_N, PACKED)  # fmt: skip
                        if late:
                            _pair_out(dk_desc, past, last, n_kv_heads, dk_ready, t - 1, k_s,
                                      K_SLOTS, BLOCK_N, PACKED)  # fmt: skip
                it += 1
        if not PACKED:
            code = gl.load(sched + t + 1)
    t = n_tiles - 1
    past = sched + t * STEP
    last = gl.load(past)
    _pair_out(dv_desc, past, last, n_kv_heads, dv_ready, t, v_s, V_SLOTS, BLOCK_N, PACKED)
    _pair_out(dk_desc, past, last, n_kv_heads, dk_ready, t, k_s, K_SLOTS, BLOCK_N, PACKED)
    tma.store_wait(0)
