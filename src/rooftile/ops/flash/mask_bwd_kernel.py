"""The gradient of an additive mask: that of the scores, summed over all that the mask serves."""

from __future__ import annotations

import triton
import triton.language as tl

from rooftile.ops.flash.bwd_kernels import row_sums, weights
from rooftile.ops.flash.place import LENGTHS, load_tile, sequence
from rooftile.ops.flash.scores import stays


@triton.jit(do_not_specialize=(*LENGTHS, "batch_members", "head_members"))
def attention_dmask_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr,  # as in the forward
    dmask_ptr,  # [mask_batches, mask_heads, q_len or 1, k_len or 1], contiguous
    mask_ptr, slopes_ptr, k_lens_ptr, seed_ptr,
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    stride_gb, stride_gh, stride_gs, stride_gd,
    stride_lb, stride_lh,
    stride_mb, stride_mh, stride_mm, stride_mn,
    stride_ab, stride_ah,
    mask_heads, batch_members, head_members, heads, group, longest_q, longest_k,
    scale, softcap, window_left, window_right, dropped, keep_scale,
    HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, CAP: tl.constexpr, MASK: tl.constexpr,
    PLAIN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, BOTTOM_RIGHT: tl.constexpr,
    ONE_ROW: tl.constexpr, ONE_COL: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of the mask, over the heads and sequences that share it (or their rows, columns)."""
    row_tiles = 1 if ONE_ROW else tl.cdiv(longest_q, BLOCK_M)
    col_tiles = 1 if ONE_COL else tl.cdiv(longest_k, BLOCK_N)
    pid = tl.program_id(0)
    col_tile = pid % col_tiles
    row_tile = pid // col_tiles % row_tiles
    mask_head = pid // col_tiles // row_tiles % mask_heads
    mask_batch = pid // col_tiles // row_tiles // mask_heads
    first_row = row_tile * BLOCK_M
    first_col = col_tile * BLOCK_N
    last_row = longest_q if ONE_ROW else tl.minimum(first_row + BLOCK_M, longest_q)
    last_col = longest_k if ONE_COL else tl.minimum(first_col + BLOCK_N, longest_k)
    seed = None
    if seed_ptr is not None:
        seed = tl.load(seed_ptr)
    per_row = tl.cdiv(longest_k, 8)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for member in tl.range(0, batch_members * head_members, num_stages=1):
        batch = (mask_batch * batch_members + member // head_members).to(tl.int64)
        head = (mask_head * head_members + member % head_members).to(tl.int64)
        k_at = k_ptr + batch * stride_kb + head // group * stride_kh
        v_at = v_ptr + batch * stride_vb + head // group * stride_vh
        _start_k, k_len = sequence(None, k_lens_ptr, batch, longest_k)
        shift = k_len * 0
        if BOTTOM_RIGHT:
            shift = k_len - longest_q
        slope = None
        if slopes_ptr is not None:
            slope = tl.load(slopes_ptr + batch * stride_ab + head * stride_ah).to(tl.float32)
        mask_at = mask_ptr + batch * stride_mb + head * stride_mh
        sums = batch * stride_lb + head * stride_lh
        for start_m in tl.range(first_row, last_row, BLOCK_M, num_stages=1):
            row = start_m + tl.arange(0, BLOCK_M)
            q = load_tile(q_ptr + batch * stride_qb + head * stride_qh, start_m, longest_q,
                          stride_qs, stride_qd, BLOCK_M, HEAD_DIM, BLOCK_D, True, WIDE)  # fmt: skip
            do = load_tile(do_ptr + batch * stride_gb + head * stride_gh, start_m, longest_q,
                           stride_gs, stride_gd, BLOCK_M, V_DIM, BLOCK_DV, True, WIDE)  # fmt: skip
            lse, delta = row_sums(lse_ptr + sums, delta_ptr + sums, row, longest_q)
            for start_n in tl.range(first_col, last_col, BLOCK_N, num_stages=1):
                col = start_n + tl.arange(0, BLOCK_N)
                k = load_tile(k_at, start_n, k_len, stride_ks, stride_kd,
                              BLOCK_N, HEAD_DIM, BLOCK_D, True, WIDE)  # fmt: skip
                v = load_tile(v_at, start_n, k_len, stride_vs, stride_vd,
                              BLOCK_N, V_DIM, BLOCK_DV, True, WIDE)  # fmt: skip
                p, _slant = weights(
                    tl.dot(q, tl.trans(k), input_precision=PRECISION), row[:, None], col[None, :],
                    lse[:, None], longest_q, k_len, shift, shift - window_left,
                    shift + window_right, slope, mask_at, stride_mm, stride_mn, scale, softcap,
                    CAP, MASK, PLAIN, LEFT, RIGHT, True,
                )  # fmt: skip
                dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
                if seed is not None:
                    line = ((batch * heads + head) * longest_q + row)[:, None]
                    left = stays(seed, line, start_n, per_row, dropped, BLOCK_M, BLOCK_N)
                    dp = tl.where(left, dp * keep_scale, 0.0)
                total += p * (dp - delta[:, None])
    rows = 1 if ONE_ROW else longest_q
    cols = 1 if ONE_COL else longest_k
    out = dmask_ptr + (mask_batch * mask_heads + mask_head).to(tl.int64) * rows * cols
    if ONE_ROW:
        total = tl.sum(total, 0)[None, :]
    if ONE_COL:
        total = tl.sum(total, 1)[:, None]
    row = first_row + tl.arange(0, 1 if ONE_ROW else BLOCK_M)[:, None]
    col = first_col + tl.arange(0, 1 if ONE_COL else BLOCK_N)[None, :]
    tl.store(out + row.to(tl.int64) * cols + col, total.to(dmask_ptr.dtype.element_ty),
             mask=(row < rows) & (col < cols))  # fmt: skip
