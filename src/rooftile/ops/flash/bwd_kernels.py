"""Attention's backward in plain Triton, without atomics: the same bits each time.

One kernel holds a block of keys and walks the queries of its group of heads, one holds a block of
queries and walks the keys; both compute the scores again from the log-sum-exp.

Source: Dao 2023, https://arxiv.org/abs/2307.08691
"""

from __future__ import annotations

import triton
import triton.language as tl

from rooftile.ops.flash.place import (
    LENGTHS,
    clear_rows,
    load_tile,
    mask_pointers,
    sequence,
    store_tile,
)
from rooftile.ops.flash.scores import LOG2E, capped, logits_of, span, stays, visible


@triton.jit
def attention_delta_kernel(
    o_ptr,  # [batch, heads, rows, V_DIM]
    do_ptr,  # likewise
    dlse_ptr,  # [batch, heads, rows] float32 or None
    delta_ptr,  # [batch, heads, rows] float32, contiguous
    stride_ob, stride_oh, stride_os, stride_od,
    stride_gb, stride_gh, stride_gs, stride_gd,
    stride_db, stride_dh, stride_ds,
    heads, rows,
    V_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_DV: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """delta = sum(o * do) - dlse of each row: what the softmax's gradient takes off."""
    tiles = tl.cdiv(rows, BLOCK_M)
    pid = tl.program_id(0)
    start = pid % tiles * BLOCK_M
    head = ((pid // tiles) % heads).to(tl.int64)
    batch = (pid // tiles // heads).to(tl.int64)
    o = load_tile(o_ptr + batch * stride_ob + head * stride_oh, start, rows, stride_os, stride_od,
                  BLOCK_M, V_DIM, BLOCK_DV, True, WIDE)  # fmt: skip
    do = load_tile(do_ptr + batch * stride_gb + head * stride_gh, start, rows, stride_gs, stride_gd,
                   BLOCK_M, V_DIM, BLOCK_DV, True, WIDE)  # fmt: skip
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    row = start + tl.arange(0, BLOCK_M)
    if dlse_ptr is not None:
        at = dlse_ptr + batch * stride_db + head * stride_dh + row.to(tl.int64) * stride_ds
        delta -= tl.load(at, mask=row < rows, other=0.0)
    tl.store(delta_ptr + (batch * heads + head) * rows + row, delta, mask=row < rows)


@triton.jit
def row_sums(lse_ptr, delta_ptr, row, q_len):
    """Log-sum-exp in base 2 and delta of some rows; rows that see no key get a weight of 0."""
    lse = tl.load(lse_ptr + row, mask=row < q_len, other=float("-inf"))
    delta = tl.load(delta_ptr + row, mask=row < q_len, other=0.0)
    none = lse == float("-inf")
    return tl.where(none, float("inf"), lse * LOG2E), tl.where(none, 0.0, delta)


@triton.jit
def weights(
    s, row, col, lse, q_len, k_len, shift, first, last, slope, mask_ptr, stride_mm, stride_mn,
    scale, softcap, CAP: tl.constexpr, MASK: tl.constexpr, PLAIN: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The softmax's weights of a tile of scores, and the derivative of the cap (1 without one)."""
    slant = 1.0
    if PLAIN:
        s = s * (scale * LOG2E)
    else:
        s, t = capped(s, scale, softcap, CAP)
        if CAP:
            slant = 1.0 - t * t
        mask_ptrs = mask_ptr
        in_mask = (row < q_len) & (col < k_len)
        if MASK != "":
            mask_ptrs = mask_pointers(mask_ptr, row, col, stride_mm, stride_mn)
        s = logits_of(s, row, col, shift, slope, mask_ptrs, in_mask, MASK)
    if MASKED:
        s = tl.where(visible(row, col, k_len, first, last, LEFT, RIGHT), s, float("-inf"))
    # at most 1, though huge logits round by more than they differ
    return tl.exp2(tl.minimum(s - lse, 0.0, tl.PropagateNan.ALL)), slant


@triton.jit
def _walk_queries(
    dk, dv, k, v, start, end, q_ptr, do_ptr, lse_ptr, delta_ptr, mask_ptr, slope, seed,
    stride_qs, stride_qd, stride_gs, stride_gd, stride_mm, stride_mn,
    start_n, q_len, k_len, shift, first, last, line, per_row, scale, softcap, dropped, keep_scale,
    HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, CAP: tl.constexpr, MASK: tl.constexpr,
    PLAIN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, MASKED: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gather queries [start, end) into dk (unscaled) and dv. Scores lie with keys as rows."""
    col = start_n + tl.arange(0, BLOCK_N)[:, None]
    for at in tl.range(start, end, BLOCK_M):
        q = load_tile(q_ptr, at, q_len, stride_qs, stride_qd,
                      BLOCK_M, HEAD_DIM, BLOCK_D, MASKED, WIDE)  # fmt: skip
        row = at + tl.arange(0, BLOCK_M)
        lse, delta = row_sums(lse_ptr, delta_ptr, row, q_len)
        s = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        p, slant = weights(
            s, row[None, :], col, lse[None, :], q_len, k_len, shift, first, last, slope,
            mask_ptr, stride_mm, stride_mn, scale, softcap, CAP, MASK, PLAIN, LEFT, RIGHT, MASKED,
        )  # fmt: skip
        do = load_tile(do_ptr, at, q_len, stride_gs, stride_gd,
                       BLOCK_M, V_DIM, BLOCK_DV, MASKED, WIDE)  # fmt: skip
        dp = tl.dot(v, tl.trans(do), input_precision=PRECISION)
        given = p
        if seed is not None:
            lines = (line + row)[:, None]
            left = tl.trans(stays(seed, lines, start_n, per_row, dropped, BLOCK_M, BLOCK_N))
            given = tl.where(left, p * keep_scale, 0.0)
            dp = tl.where(left, dp * keep_scale, 0.0)
        dv = tl.dot(given.to(do.dtype), do, dv, input_precision=PRECISION)
        ds = p * (dp - delta[None, :]) * slant
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=LENGTHS)
def attention_dkdv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr,  # as in the forward
    dk_ptr,  # [batch, kv_heads, k_len, HEAD_DIM]
    dv_ptr,  # [batch, kv_heads, k_len, V_DIM]
    mask_ptr, slopes_ptr, cu_q_ptr, cu_k_ptr, k_lens_ptr, seed_ptr,
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    stride_gb, stride_gh, stride_gs, stride_gd,
    stride_lb, stride_lh,
    stride_dkb, stride_dkh, stride_dks, stride_dkd,
    stride_dvb, stride_dvh, stride_dvs, stride_dvd,
    stride_mb, stride_mh, stride_mm, stride_mn,
    stride_ab, stride_ah,
    batches, heads, group, longest_q, longest_k, tokens_k,
    scale, softcap, window_left, window_right, dropped, keep_scale,
    HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, CAP: tl.constexpr, MASK: tl.constexpr,
    PLAIN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, BOTTOM_RIGHT: tl.constexpr,
    EVEN_Q: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One block of keys of one head; packed: the programs of one batch more clear the rest."""
    tiles = tl.cdiv(longest_k, BLOCK_N)
    kv_heads = heads // group
    pid = tl.program_id(0)
    start_n = pid % tiles * BLOCK_N
    kv_head = ((pid // tiles) % kv_heads).to(tl.int64)
    batch = (pid // tiles // kv_heads).to(tl.int64)
    dk_ptr += kv_head * stride_dkh
    dv_ptr += kv_head * stride_dvh
    if cu_k_ptr is not None:
        if batch == batches:
            begin = tl.load(cu_k_ptr + batch).to(tl.int64) + start_n
            clear_rows(dk_ptr, begin, tiles * BLOCK_N, tokens_k, stride_dks, stride_dkd,
                       BLOCK_N, HEAD_DIM, BLOCK_D, WIDE)  # fmt: skip
            clear_rows(dv_ptr, begin, tiles * BLOCK_N, tokens_k, stride_dvs, stride_dvd,
                       BLOCK_N, V_DIM, BLOCK_DV, WIDE)  # fmt: skip
            return
    q_first, q_len = sequence(cu_q_ptr, None, batch, longest_q)
    k_first, k_len = sequence(cu_k_ptr, k_lens_ptr, batch, longest_k)
    held = k_len
    if k_lens_ptr is not None:
        held = longest_k  # keys past a sequence's length have a gradient of 0
    if start_n >= held:
        return
    k_ptr += batch * stride_kb + kv_head * stride_kh + k_first * stride_ks
    v_ptr += batch * stride_vb + kv_head * stride_vh + k_first * stride_vs
    shift = q_len * 0
    if BOTTOM_RIGHT:
        shift = k_len - q_len
    first = shift - window_left
    last = shift + window_right
    seed = None
    if seed_ptr is not None:
        seed = tl.load(seed_ptr)
    per_row = tl.cdiv(longest_k, 8)
    k = load_tile(k_ptr, start_n, k_len, stride_ks, stride_kd,
                  BLOCK_N, HEAD_DIM, BLOCK_D, True, WIDE)  # fmt: skip
    v = load_tile(v_ptr, start_n, k_len, stride_vs, stride_vd,
                  BLOCK_N, V_DIM, BLOCK_DV, True, WIDE)  # fmt: skip
    dk = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_DV), tl.float32)
    keys = tl.maximum(tl.minimum(k_len - start_n, BLOCK_N), 1)
    a, b, c, d = span(start_n, keys, q_len, -last, -first, BLOCK_M, RIGHT, LEFT)
    for member in tl.range(0, group, num_stages=1):
        head = kv_head * group + member
        q_at = q_ptr + batch * stride_qb + head * stride_qh + q_first * stride_qs
        do_at = do_ptr + batch * stride_gb + head * stride_gh + q_first * stride_gs
        lse_at = lse_ptr + batch * stride_lb + head * stride_lh + q_first
        delta_at = delta_ptr + batch * stride_lb + head * stride_lh + q_first
        mask_at = mask_ptr
        if mask_ptr is not None:
            mask_at = mask_ptr + batch * stride_mb + head * stride_mh
        slope = None
        if slopes_ptr is not None:
            slope = tl.load(slopes_ptr + batch * stride_ab + head * stride_ah).to(tl.float32)
        line = (batch * heads + head) * longest_q
        if RIGHT:
            dk, dv = _walk_queries(
                dk, dv, k, v, a, b, q_at, do_at, lse_at, delta_at, mask_at, slope, seed,
                stride_qs, stride_qd, stride_gs, stride_gd, stride_mm, stride_mn,
                start_n, q_len, k_len, shift, first, last, line, per_row, scale, softcap,
                dropped, keep_scale, HEAD_DIM, V_DIM, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV,
                CAP, MASK, PLAIN, LEFT, RIGHT, True, WIDE, PRECISION,
            )  # fmt: skip
        dk, dv = _walk_queries(
            dk, dv, k, v, b, c, q_at, do_at, lse_at, delta_at, mask_at, slope, seed,
            stride_qs, stride_qd, stride_gs, stride_gd, stride_mm, stride_mn,
            start_n, q_len, k_len, shift, first, last, line, per_row, scale, softcap,
            dropped, keep_scale, HEAD_DIM, V_DIM, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV,
            CAP, MASK, PLAIN, LEFT, RIGHT, False, WIDE, PRECISION,
        )  # fmt: skip
        if LEFT or not EVEN_Q:
            dk, dv = _walk_queries(
                dk, dv, k, v, c, d, q_at, do_at, lse_at, delta_at, mask_at, slope, seed,
                stride_qs, stride_qd, stride_gs, stride_gd, stride_mm, stride_mn,
                start_n, q_len, k_len, shift, first, last, line, per_row, scale, softcap,
                dropped, keep_scale, HEAD_DIM, V_DIM, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV,
                CAP, MASK, PLAIN, LEFT, RIGHT, True, WIDE, PRECISION,
            )  # fmt: skip
    if k_lens_ptr is not None:
        inside = (start_n + tl.arange(0, BLOCK_N) < k_len)[:, None]
        dk = tl.where(inside, dk, 0.0)
        dv = tl.where(inside, dv, 0.0)
    store_tile(dk_ptr + batch * stride_dkb + k_first * stride_dks, dk * scale, start_n, held,
               stride_dks, stride_dkd, BLOCK_N, HEAD_DIM, BLOCK_D, WIDE)  # fmt: skip
    store_tile(dv_ptr + batch * stride_dvb + k_first * stride_dvs, dv, start_n, held,
               stride_dvs, stride_dvd, BLOCK_N, V_DIM, BLOCK_DV, WIDE)  # fmt: skip


@triton.jit
def _walk_keys(
    dq, q, do, lse, delta, start, end, k_ptr, v_ptr, mask_ptr, slope, seed,
    stride_ks, stride_kd, stride_vs, stride_vd, stride_mm, stride_mn,
    row, q_len, k_len, shift, first, last, line, per_row, scale, softcap, dropped, keep_scale,
    HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, CAP: tl.constexpr, MASK: tl.constexpr,
    PLAIN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, MASKED: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gather keys [start, end) into dq (unscaled)."""
    for at in tl.range(start, end, BLOCK_N):
        k = load_tile(k_ptr, at, k_len, stride_ks, stride_kd,
                      BLOCK_N, HEAD_DIM, BLOCK_D, MASKED, WIDE)  # fmt: skip
        col = at + tl.arange(0, BLOCK_N)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        p, slant = weights(
            s, row[:, None], col[None, :], lse[:, None], q_len, k_len, shift, first, last, slope,
            mask_ptr, stride_mm, stride_mn, scale, softcap, CAP, MASK, PLAIN, LEFT, RIGHT, MASKED,
        )  # fmt: skip
        v = load_tile(v_ptr, at, k_len, stride_vs, stride_vd,
                      BLOCK_N, V_DIM, BLOCK_DV, MASKED, WIDE)  # fmt: skip
        dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
        if seed is not None:
            left = stays(seed, line[:, None], at, per_row, dropped, BLOCK_M, BLOCK_N)
            dp = tl.where(left, dp * keep_scale, 0.0)
        ds = p * (dp - delta[:, None]) * slant
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
    return dq


@triton.jit(do_not_specialize=LENGTHS)
def attention_dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr,  # as in the forward
    dq_ptr,  # [batch, heads, q_len, HEAD_DIM]
    mask_ptr, slopes_ptr, cu_q_ptr, cu_k_ptr, k_lens_ptr, seed_ptr,
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    stride_gb, stride_gh, stride_gs, stride_gd,
    stride_lb, stride_lh,
    stride_dqb, stride_dqh, stride_dqs, stride_dqd,
    stride_mb, stride_mh, stride_mm, stride_mn,
    stride_ab, stride_ah,
    batches, heads, group, longest_q, longest_k, tokens_q,
    scale, softcap, window_left, window_right, dropped, keep_scale,
    HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, CAP: tl.constexpr, MASK: tl.constexpr,
    PLAIN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, BOTTOM_RIGHT: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head; packed: the programs of one batch more clear the rest."""
    tiles = tl.cdiv(longest_q, BLOCK_M)
    pid = tl.program_id(0)
    tile = pid % tiles
    if RIGHT:
        tile = tiles - 1 - tile  # the longest walks start first
    start_m = tile * BLOCK_M
    head = ((pid // tiles) % heads).to(tl.int64)
    batch = (pid // tiles // heads).to(tl.int64)
    dq_ptr += head * stride_dqh
    if cu_q_ptr is not None:
        if batch == batches:
            begin = tl.load(cu_q_ptr + batch).to(tl.int64) + start_m
            clear_rows(dq_ptr, begin, tiles * BLOCK_M, tokens_q, stride_dqs, stride_dqd,
                       BLOCK_M, HEAD_DIM, BLOCK_D, WIDE)  # fmt: skip
            return
    q_first, q_len = sequence(cu_q_ptr, None, batch, longest_q)
    k_first, k_len = sequence(cu_k_ptr, k_lens_ptr, batch, longest_k)
    if start_m >= q_len:
        return
    kv_head = head // group
    q_ptr += batch * stride_qb + head * stride_qh + q_first * stride_qs
    do_ptr += batch * stride_gb + head * stride_gh + q_first * stride_gs
    k_ptr += batch * stride_kb + kv_head * stride_kh + k_first * stride_ks
    v_ptr += batch * stride_vb + kv_head * stride_vh + k_first * stride_vs
    sums = batch * stride_lb + head * stride_lh + q_first
    mask_at = mask_ptr
    if mask_ptr is not None:
        mask_at = mask_ptr + batch * stride_mb + head * stride_mh
    slope = None
    if slopes_ptr is not None:
        slope = tl.load(slopes_ptr + batch * stride_ab + head * stride_ah).to(tl.float32)
    seed = None
    if seed_ptr is not None:
        seed = tl.load(seed_ptr)
    shift = q_len * 0
    if BOTTOM_RIGHT:
        shift = k_len - q_len
    first = shift - window_left
    last = shift + window_right
    row = start_m + tl.arange(0, BLOCK_M)
    line = (batch * heads + head) * longest_q + row
    per_row = tl.cdiv(longest_k, 8)
    q = load_tile(q_ptr, start_m, q_len, stride_qs, stride_qd,
                  BLOCK_M, HEAD_DIM, BLOCK_D, True, WIDE)  # fmt: skip
    do = load_tile(do_ptr, start_m, q_len, stride_gs, stride_gd,
                   BLOCK_M, V_DIM, BLOCK_DV, True, WIDE)  # fmt: skip
    lse, delta = row_sums(lse_ptr + sums, delta_ptr + sums, row, q_len)
    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    rows = tl.minimum(q_len - start_m, BLOCK_M)
    a, b, c, d = span(start_m, rows, k_len, first, last, BLOCK_N, LEFT, RIGHT)
    if LEFT:
        dq = _walk_keys(
            dq, q, do, lse, delta, a, b, k_ptr, v_ptr, mask_at, slope, seed,
            stride_ks, stride_kd, stride_vs, stride_vd, stride_mm, stride_mn,
            row, q_len, k_len, shift, first, last, line, per_row, scale, softcap,
            dropped, keep_scale, HEAD_DIM, V_DIM, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV,
            CAP, MASK, PLAIN, LEFT, RIGHT, True, WIDE, PRECISION,
        )  # fmt: skip
    dq = _walk_keys(
        dq, q, do, lse, delta, b, c, k_ptr, v_ptr, mask_at, slope, seed,
        stride_ks, stride_kd, stride_vs, stride_vd, stride_mm, stride_mn,
        row, q_len, k_len, shift, first, last, line, per_row, scale, softcap,
        dropped, keep_scale, HEAD_DIM, V_DIM, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV,
        CAP, MASK, PLAIN, LEFT, RIGHT, False, WIDE, PRECISION,
    )  # fmt: skip
    if RIGHT or not EVEN_K:
        dq = _walk_keys(
            dq, q, do, lse, delta, c, d, k_ptr, v_ptr, mask_at, slope, seed,
            stride_ks, stride_kd, stride_vs, stride_vd, stride_mm, stride_mn,
            row, q_len, k_len, shift, first, last, line, per_row, scale, softcap,
            dropped, keep_scale, HEAD_DIM, V_DIM, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV,
            CAP, MASK, PLAIN, LEFT, RIGHT, True, WIDE, PRECISION,
        )  # fmt: skip
    store_tile(dq_ptr + batch * stride_dqb + q_first * stride_dqs, dq * scale, start_m, q_len,
               stride_dqs, stride_dqd, BLOCK_M, HEAD_DIM, BLOCK_D, WIDE)  # fmt: skip
