"""Attention of few queries: the heads of a group share a read of the keys, which are split.

A program packs the queries of all heads that share a head of keys into the rows of one tile, walks
one part of the keys, and leaves the output, maximum and sum of that part: beside a maximum of -3e38
a log-sum-exp would say nothing of how many keys the part has. The last of a tile's programs
to arrive merges the parts, in their order: the same bits whoever is last.

Source: Dao et al. 2023, https://crfm.stanford.edu/2023/10/12/flashdecoding.html
"""

from __future__ import annotations

import triton
import triton.language as tl

from rooftile.ops.flash.place import LENGTHS, sequence
from rooftile.ops.flash.scores import (
    LOG2E,
    accumulate,
    capped,
    finish,
    logits_of,
    span,
    visible,
)


@triton.jit
def _keys_at(table_ptr, col, k_len, page_size, stride_page, stride_s):
    """Offsets of keys ``col``: in one block of memory, or in pages that the table lists."""
    if table_ptr is None:
        offs = col.to(tl.int64) * stride_s
    else:
        page = tl.load(table_ptr + col // page_size, mask=col < k_len, other=0).to(tl.int64)
        offs = page * stride_page + (col % page_size).to(tl.int64) * stride_s
    return offs


@triton.jit
def _walk(
    acc, m, norm, q, start, end, k_ptr, v_ptr, table_ptr, mask_ptrs, slope,
    page_size, stride_kb, stride_ks, stride_kd, stride_vb, stride_vs, stride_vd, stride_mn,
    row, in_rows, k_len, shift, first, last, scale, softcap,
    HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, CAP: tl.constexpr, MASK: tl.constexpr,
    PLAIN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend to keys [start, end); MASKED where not all of them are seen by all rows."""
    width_k = tl.arange(0, BLOCK_D)
    width_v = tl.arange(0, BLOCK_DV)
    for at in tl.range(start, end, BLOCK_N):
        col = at + tl.arange(0, BLOCK_N)
        offs = _keys_at(table_ptr, col, k_len, page_size, stride_kb, stride_ks)
        k_ptrs = k_ptr + offs[:, None] + width_k[None, :] * stride_kd
        k = _load(k_ptrs, (col < k_len)[:, None], width_k[None, :], HEAD_DIM, BLOCK_D, MASKED)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        to_base2 = scale * LOG2E
        if not PLAIN:
            s, _ = capped(s, scale, softcap, CAP)
            at_mask = mask_ptrs
            if MASK != "":
                at_mask = mask_ptrs + (col.to(tl.int64) * stride_mn)[None, :]
            in_mask = in_rows[:, None] & (col < k_len)[None, :]
            slant = slope
            if slope is not None:
                slant = slope[:, None]
            s = logits_of(s, row[:, None], col[None, :], shift, slant, at_mask, in_mask, MASK)
            to_base2 = 1.0
        if MASKED:
            seen = visible(row[:, None], col[None, :], k_len, first, last, LEFT, RIGHT)
            s = tl.where(seen, s, float("-inf"))
        p, m, norm, acc = accumulate(s, m, norm, acc, to_base2)
        offs = _keys_at(table_ptr, col, k_len, page_size, stride_vb, stride_vs)
        v_ptrs = v_ptr + offs[:, None] + width_v[None, :] * stride_vd
        v = _load(v_ptrs, (col < k_len)[:, None], width_v[None, :], V_DIM, BLOCK_DV, MASKED)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)
    return acc, m, norm


@triton.jit
def _load(ptrs, inside, width, DIM: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr):
    if DIM < BLOCK_D:
        x = tl.load(ptrs, mask=inside & (width < DIM), other=0.0)
    elif MASKED:
        x = tl.load(ptrs, mask=inside, other=0.0)
    else:
        x = tl.load(ptrs)
    return x


@triton.jit(do_not_specialize=(*LENGTHS, "splits", "page_size"))
def attention_decode_kernel(
    q_ptr, k_ptr, v_ptr,  # as in the forward; paged: k and v [pages, kv_heads, page_size, width]
    o_ptr,  # [batch, heads, q_len, V_DIM]
    lse_ptr,  # [batch, heads, q_len] float32, contiguous
    parts_ptr,  # [splits, batch, heads, q_len, V_DIM] float32, or None where there is one part
    part_sums_ptr,  # [2, splits, batch, heads, q_len] float32, or None: maxima in base 2, sums
    arrived_ptr,  # [tiles of all sequences and heads of keys] int32, all 0 before and after
    mask_ptr, slopes_ptr, sinks_ptr, k_lens_ptr,
    table_ptr,  # [batch, pages of a sequence] int32, or None
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    stride_ob, stride_oh, stride_os, stride_od,
    stride_mb, stride_mh, stride_mm, stride_mn,
    stride_ab, stride_ah, stride_tb,
    batches, heads, group, longest_q, longest_k, page_size, splits,
    scale, softcap, window_left, window_right,
    HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, CAP: tl.constexpr, MASK: tl.constexpr,
    PLAIN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, BOTTOM_RIGHT: tl.constexpr,
    PRECISION: tl.constexpr, MERGED_ROWS: tl.constexpr,
    MERGED_PARTS: tl.constexpr,
):  # fmt: skip
    """One tile of a group's queries, row r head r % group of query r // group; one part of keys."""
    tiles = tl.cdiv(longest_q * group, BLOCK_M)
    kv_heads = heads // group
    pid = tl.program_id(0)
    split = pid % splits
    tile = pid // splits % tiles
    kv_head = (pid // splits // tiles % kv_heads).to(tl.int64)
    batch = (pid // splits // tiles // kv_heads).to(tl.int64)
    _, k_len = sequence(None, k_lens_ptr, batch, longest_k)
    packed = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    row = packed // group
    head = kv_head * group + packed % group
    in_rows = row < longest_q
    k_base = k_ptr + kv_head * stride_kh
    v_base = v_ptr + kv_head * stride_vh
    if table_ptr is None:
        k_base += batch * stride_kb
        v_base += batch * stride_vb
    else:
        table_ptr += batch * stride_tb
    mask_ptrs = mask_ptr
    if mask_ptr is not None:
        mask_ptrs = (mask_ptr + batch * stride_mb
                     + (head * stride_mh + row.to(tl.int64) * stride_mm)[:, None])  # fmt: skip
    slope = None
    if slopes_ptr is not None:
        slope = tl.load(slopes_ptr + batch * stride_ab + head * stride_ah, mask=in_rows, other=0.0)
    shift = k_len * 0
    if BOTTOM_RIGHT:
        shift = k_len - longest_q
    first = shift - window_left
    last = shift + window_right
    first_row = tile * BLOCK_M // group
    rows = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // group, longest_q - 1) - first_row + 1
    a, b, c, d = span(first_row, rows, k_len, first, last, BLOCK_N, LEFT, RIGHT)
    part = tl.cdiv(tl.cdiv(tl.maximum(d - a, 0), BLOCK_N), splits) * BLOCK_N
    begin = a + split * part
    end = tl.minimum(begin + part, d)
    width = tl.arange(0, BLOCK_D)
    q_ptrs = q_ptr + batch * stride_qb + (head * stride_qh + row.to(tl.int64) * stride_qs)[:, None]
    q = tl.load(q_ptrs + width[None, :] * stride_qd,
                mask=in_rows[:, None] & (width < HEAD_DIM)[None, :], other=0.0)  # fmt: skip
    acc = tl.zeros((BLOCK_M, BLOCK_DV), tl.float32)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    norm = tl.zeros((BLOCK_M,), tl.float32)
    if LEFT:
        acc, m, norm = _walk(
            acc, m, norm, q, begin, tl.minimum(b, end), k_base, v_base, table_ptr, mask_ptrs,
            slope, page_size, stride_kb, stride_ks, stride_kd, stride_vb, stride_vs, stride_vd,
            stride_mn, row, in_rows, k_len, shift, first, last, scale, softcap, HEAD_DIM, V_DIM,
            BLOCK_N, BLOCK_D, BLOCK_DV, CAP, MASK, PLAIN, LEFT, RIGHT, True, PRECISION,
        )  # fmt: skip
    acc, m, norm = _walk(
        acc, m, norm, q, tl.maximum(b, begin), tl.minimum(c, end), k_base, v_base, table_ptr,
        mask_ptrs, slope, page_size, stride_kb, stride_ks, stride_kd, stride_vb, stride_vs,
        stride_vd, stride_mn, row, in_rows, k_len, shift, first, last, scale, softcap, HEAD_DIM,
        V_DIM, BLOCK_N, BLOCK_D, BLOCK_DV, CAP, MASK, PLAIN, LEFT, RIGHT, False, PRECISION,
    )  # fmt: skip
    acc, m, norm = _walk(
        acc, m, norm, q, tl.maximum(c, begin), end, k_base, v_base, table_ptr, mask_ptrs, slope,
        page_size, stride_kb, stride_ks, stride_kd, stride_vb, stride_vs, stride_vd, stride_mn,
        row, in_rows, k_len, shift, first, last, scale, softcap, HEAD_DIM, V_DIM, BLOCK_N,
        BLOCK_D, BLOCK_DV, CAP, MASK, PLAIN, LEFT, RIGHT, True, PRECISION,
    )  # fmt: skip
    line = (batch * heads + head) * longest_q + row
    width = tl.arange(0, BLOCK_DV)
    inside = in_rows[:, None] & (width < V_DIM)[None, :]
    if parts_ptr is None:
        sink = None
        if sinks_ptr is not None:
            sink = tl.load(sinks_ptr + head, mask=in_rows, other=0.0).to(tl.float32)
        o, lse = finish(m, norm, acc, sink)
        o_ptrs = (
            o_ptr + batch * stride_ob + (head * stride_oh + row.to(tl.int64) * stride_os)[:, None]
        )
        tl.store(o_ptrs + width[None, :] * stride_od, o.to(o_ptr.dtype.element_ty), mask=inside)
        tl.store(lse_ptr + line, lse, mask=in_rows)
    else:
        o, _ = finish(m, norm, acc, None)
        lines = batches.to(tl.int64) * heads * longest_q
        at = split * lines + line
        tl.store(parts_ptr + at[:, None] * V_DIM + width[None, :], o, mask=inside)
        tl.store(part_sums_ptr + at, m, mask=in_rows)
        tl.store(part_sums_ptr + splits * lines + at, norm, mask=in_rows)
        tl.debug_barrier()  # all of the program's stores stand before its arrival
        arrived = tl.atomic_add(arrived_ptr + pid // splits, 1, sem="acq_rel")
        if arrived == splits - 1:
            tl.store(arrived_ptr + pid // splits, 0)
            for start in tl.range(0, tl.minimum(BLOCK_M, longest_q * group - tile * BLOCK_M),
                                  MERGED_ROWS):  # fmt: skip
                _merge(
                    parts_ptr, part_sums_ptr, o_ptr + batch * stride_ob, lse_ptr, sinks_ptr,
                    stride_oh, stride_os, stride_od, tile * BLOCK_M + start, batch * heads,
                    kv_head, group, longest_q, lines, splits, V_DIM, BLOCK_DV,
                    MERGED_ROWS, MERGED_PARTS,
                )  # fmt: skip


@triton.jit
def _merge(
    parts_ptr, part_sums_ptr, o_ptr, lse_ptr, sinks_ptr, stride_oh, stride_os, stride_od,
    first, before, kv_head, group, q_len, lines, splits,
    V_DIM: tl.constexpr, BLOCK_DV: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Rows of a tile: their parts, weighted by their sums of exponentials. An empty one is 0."""
    packed = first + tl.arange(0, ROWS)
    row = packed // group
    head = kv_head * group + packed % group
    in_rows = row < q_len
    line = (before + head) * q_len + row
    width = tl.arange(0, BLOCK_DV)
    acc = tl.zeros((ROWS, BLOCK_DV), tl.float32)
    m = tl.full((ROWS,), float("-inf"), tl.float32)
    norm = tl.zeros((ROWS,), tl.float32)
    for start in tl.range(0, splits, PARTS, num_stages=1):
        part = start + tl.arange(0, PARTS)
        at = part[None, :] * lines + line[:, None]
        there = in_rows[:, None] & (part < splits)[None, :]
        # past L1, which may hold what stood there before
        x = tl.load(parts_ptr + at[:, :, None] * V_DIM + width[None, None, :], other=0.0,
                    mask=there[:, :, None] & (width < V_DIM)[None, None, :],
                    cache_modifier=".cg")  # fmt: skip
        high = tl.load(part_sums_ptr + at, mask=there, other=float("-inf"), cache_modifier=".cg")
        sums = tl.load(part_sums_ptr + splits * lines + at, mask=there, other=0.0,
                       cache_modifier=".cg")  # fmt: skip
        m_new = tl.maximum(m, tl.max(high, 1))
        base = tl.where(m_new == float("-inf"), 0.0, m_new)
        weight = sums * tl.exp2(high - base[:, None])
        fade = tl.exp2(m - base)
        acc = acc * fade[:, None] + tl.sum(x * weight[:, :, None], 1)
        norm = norm * fade + tl.sum(weight, 1)
        m = m_new
    sink = None
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + head, mask=in_rows, other=0.0).to(tl.float32)
    o, lse = finish(m, norm, acc, sink)
    o_ptrs = o_ptr + (head * stride_oh + row.to(tl.int64) * stride_os)[:, None]
    tl.store(o_ptrs + width[None, :] * stride_od, o.to(o_ptr.dtype.element_ty),
             mask=in_rows[:, None] & (width < V_DIM)[None, :])  # fmt: skip
    tl.store(lse_ptr + line, lse, mask=in_rows)
