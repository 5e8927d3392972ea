"""Attention's forward in plain Triton: a program holds a block of queries and walks the keys.

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
from rooftile.ops.flash.scores import (
    LOG2E,
    accumulate,
    capped,
    finish,
    logits_of,
    span,
    stays,
    visible,
)


@triton.jit
def _walk(
    acc, m, norm, q, start, end,
    k_ptr, v_ptr, mask_ptr, slope, seed,
    stride_ks, stride_kd, stride_vs, stride_vd, stride_mm, stride_mn,
    row, q_len, k_len, shift, first, last, line, per_row, scale, softcap, dropped,
    HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, CAP: tl.constexpr, MASK: tl.constexpr,
    PLAIN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, MASKED: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend to keys [start, end); MASKED where not all of them are seen by all queries."""
    for at in tl.range(start, end, BLOCK_N):
        k = load_tile(k_ptr, at, k_len, stride_ks, stride_kd,
                      BLOCK_N, HEAD_DIM, BLOCK_D, MASKED, WIDE)  # fmt: skip
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        col = at + tl.arange(0, BLOCK_N)
        to_base2 = scale * LOG2E
        if not PLAIN:
            s, _ = capped(s, scale, softcap, CAP)
            mask_ptrs = mask_ptr
            in_mask = (row < q_len)[:, None] & (col < k_len)[None, :]
            if MASK != "":
                mask_ptrs = mask_pointers(
                    mask_ptr, row[:, None], col[None, :], stride_mm, stride_mn
                )
            s = logits_of(s, row[:, None], col[None, :], shift, slope, mask_ptrs, in_mask, MASK)
            to_base2 = 1.0
        if MASKED:
            seen = visible(row[:, None], col[None, :], k_len, first, last, LEFT, RIGHT)
            s = tl.where(seen, s, float("-inf"))
        p, m, norm, acc = accumulate(s, m, norm, acc, to_base2)
        if seed is not None:
            left = stays(seed, line[:, None], at, per_row, dropped, BLOCK_M, BLOCK_N)
            p = tl.where(left, p, 0.0)
        v = load_tile(v_ptr, at, k_len, stride_vs, stride_vd,
                      BLOCK_N, V_DIM, BLOCK_DV, MASKED, WIDE)  # fmt: skip
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)
    return acc, m, norm


@triton.jit(do_not_specialize=LENGTHS)
def attention_fwd_kernel(
    q_ptr,  # [batch, heads, q_len, HEAD_DIM], or packed [1, heads, tokens, HEAD_DIM]
    k_ptr,  # [batch, kv_heads, k_len, HEAD_DIM], likewise
    v_ptr,  # [batch, kv_heads, k_len, V_DIM], likewise
    o_ptr,  # [batch, heads, q_len, V_DIM]
    lse_ptr,  # [batch, heads, q_len] float32
    mask_ptr,  # [batch, heads, q_len, k_len] of any strides, or None
    slopes_ptr,  # [batch, heads] float32 or None
    sinks_ptr,  # [heads] or None
    cu_q_ptr,  # [batch + 1] starts of packed queries, or None
    cu_k_ptr,  # of packed keys
    k_lens_ptr,  # [batch] keys of each sequence, or None
    seed_ptr,  # [1] int64 or None
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    stride_ob, stride_oh, stride_os, stride_od,
    stride_lb, stride_lh,
    stride_mb, stride_mh, stride_mm, stride_mn,
    stride_ab, stride_ah,
    batches, heads, group, longest_q, longest_k, tokens_q,
    scale, softcap, window_left, window_right, dropped, keep_scale,
    HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, CAP: tl.constexpr, MASK: tl.constexpr,
    PLAIN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, BOTTOM_RIGHT: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head. Packed: the programs of one batch more clear the rest."""
    tiles = tl.cdiv(longest_q, BLOCK_M)
    pid = tl.program_id(0)
    tile = pid % tiles
    if RIGHT:
        tile = tiles - 1 - tile  # the longest walks start first
    head = ((pid // tiles) % heads).to(tl.int64)
    batch = (pid // tiles // heads).to(tl.int64)
    o_ptr += head * stride_oh
    lse_ptr += head * stride_lh
    if cu_q_ptr is not None:
        if batch == batches:
            used = tl.load(cu_q_ptr + batch).to(tl.int64)
            begin = used + tile * BLOCK_M
            clear_rows(o_ptr, begin, tiles * BLOCK_M, tokens_q, stride_os, stride_od,
                       BLOCK_M, V_DIM, BLOCK_DV, WIDE)  # fmt: skip
            for start in tl.range(begin, tokens_q, tiles * BLOCK_M):
                rest = start + tl.arange(0, BLOCK_M)
                tl.store(lse_ptr + rest, tl.full((BLOCK_M,), float("-inf"), tl.float32),
                         mask=rest < tokens_q)  # fmt: skip
            return
    q_first, q_len = sequence(cu_q_ptr, None, batch, longest_q)
    k_first, k_len = sequence(cu_k_ptr, k_lens_ptr, batch, longest_k)
    start_m = tile * BLOCK_M
    if start_m >= q_len:
        return
    kv_head = head // group
    q_ptr += batch * stride_qb + head * stride_qh + q_first * stride_qs
    k_ptr += batch * stride_kb + kv_head * stride_kh + k_first * stride_ks
    v_ptr += batch * stride_vb + kv_head * stride_vh + k_first * stride_vs
    o_ptr += batch * stride_ob + q_first * stride_os
    if mask_ptr is not None:
        mask_ptr += batch * stride_mb + head * stride_mh
    slope = None
    if slopes_ptr is not None:
        slope = tl.load(slopes_ptr + batch * stride_ab + head * stride_ah).to(tl.float32)
    sink = None
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + head).to(tl.float32)
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
    acc = tl.zeros((BLOCK_M, BLOCK_DV), tl.float32)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    norm = tl.zeros((BLOCK_M,), tl.float32)
    rows = tl.minimum(q_len - start_m, BLOCK_M)
    a, b, c, d = span(start_m, rows, k_len, first, last, BLOCK_N, LEFT, RIGHT)
    if LEFT:
        acc, m, norm = _walk(
            acc, m, norm, q, a, b, k_ptr, v_ptr, mask_ptr, slope, seed,
            stride_ks, stride_kd, stride_vs, stride_vd, stride_mm, stride_mn,
            row, q_len, k_len, shift, first, last, line, per_row, scale, softcap, dropped,
            HEAD_DIM, V_DIM, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, CAP, MASK,
            PLAIN, LEFT, RIGHT, True, WIDE, PRECISION,
        )  # fmt: skip
    acc, m, norm = _walk(
        acc, m, norm, q, b, c, k_ptr, v_ptr, mask_ptr, slope, seed,
        stride_ks, stride_kd, stride_vs, stride_vd, stride_mm, stride_mn,
        row, q_len, k_len, shift, first, last, line, per_row, scale, softcap, dropped,
        HEAD_DIM, V_DIM, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, CAP, MASK,
        PLAIN, LEFT, RIGHT, False, WIDE, PRECISION,
    )  # fmt: skip
    if RIGHT or not EVEN_K:
        acc, m, norm = _walk(
            acc, m, norm, q, c, d, k_ptr, v_ptr, mask_ptr, slope, seed,
            stride_ks, stride_kd, stride_vs, stride_vd, stride_mm, stride_mn,
            row, q_len, k_len, shift, first, last, line, per_row, scale, softcap, dropped,
            HEAD_DIM, V_DIM, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, CAP, MASK,
            PLAIN, LEFT, RIGHT, True, WIDE, PRECISION,
        )  # fmt: skip
    o, lse = finish(m, norm, acc, sink)
    if seed_ptr is not None:
        o *= keep_scale
    store_tile(o_ptr, o, start_m, q_len, stride_os, stride_od,
               BLOCK_M, V_DIM, BLOCK_DV, WIDE)  # fmt: skip
    tl.store(lse_ptr + batch * stride_lb + q_first + row, lse, mask=row < q_len)
