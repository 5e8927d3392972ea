"""RMS and layer norm by clusters that stay on the SMs: the forward.

A thread keeps its weights and biases in registers as they were loaded, and a row from the moment
that it is summed until it is written.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from rooftile.ops.rows.cluster import row_head, row_start
from rooftile.ops.rows.resident import async_load
from rooftile.ops.rows.warp_exchange import (
    arrive,
    await_start,
    edge_of_part,
    over_threads,
    own_sum,
    part_columns,
    receive,
    send_moments,
    send_sum,
    thread_ids,
    vector_ptrs,
    warp_sum,
    whole_vectors,
    widened,
    widened_after,
)


@gluon.jit
def added(x, r, dtype: gl.constexpr, HAS_RES: gl.constexpr):
    """x, or x + residual, rounded to the dtype of the sum."""
    if HAS_RES:
        x = (x.to(gl.float32) + r.to(gl.float32)).to(dtype)
    return x


@gluon.jit
def _scaled(x, mean, rstd, w, b, offset, dtype: gl.constexpr, CAST: gl.constexpr,
            PACKED: gl.constexpr):  # fmt: skip
    """(x - mean) * rstd * (weight + offset) + bias; with CAST x_hat is rounded first."""
    y = (widened(x, PACKED) - mean) * rstd
    if CAST:
        y = y.to(dtype).to(gl.float32)
    if w is not None:
        w = widened(w, PACKED)
        if offset is not None:
            w = w + offset
        y = y * w
    if b is not None:
        y = y + widened(b, PACKED)
    return y.to(dtype)


@gluon.jit
def sum_up(
    raw, edge, valid, used, count, inverse, warp_inverse, warp_count, slots, step, live,
    MEAN: gl.constexpr, FULL: gl.constexpr, EDGE: gl.constexpr, PACKED: gl.constexpr,
    TIGHT: gl.constexpr, SEND: gl.constexpr,
):  # fmt: skip
    """A thread's moments, or its sum of squares, to the cluster. valid: of its vectors."""
    x = widened(raw, PACKED)
    if MEAN:
        total = own_sum(x)
        if EDGE:
            total += edge.to(gl.float32)
        mean = total * inverse
        if TIGHT:  # registers for no float32 copies
            x = widened_after(raw, total, PACKED)
        x = x - over_threads(mean)
        squares = gl.sum(x * x, 3)
        if not FULL:
            squares = gl.where(valid, squares, 0.0)
        squares = gl.sum(squares, 1)
        if EDGE:
            e = edge.to(gl.float32) - mean
            squares += gl.where(used, e * e, 0.0)
        send_moments(count, mean, squares, warp_inverse, warp_count, slots, step, live, SEND)
    else:
        squares = own_sum(x * x)
        if EDGE:
            e = edge.to(gl.float32)
            squares += e * e
        send_sum(squares, slots, step, live, SEND)


@gluon.jit
def _rows(
    x_ptr, r_ptr, w_ptr, b_ptr, h_ptr, y_ptr, mean_ptr, rstd_ptr, x_ring, r_ring, slots, step,
    first, apart, mine, n_cols, x_inner, stride_xo, stride_xi, r_inner, stride_ro, stride_ri,
    eps, offset,
    MEAN: gl.constexpr, HAS_RES: gl.constexpr, CAST: gl.constexpr, ROUNDS: gl.constexpr,
    THREADS: gl.constexpr, VEC: gl.constexpr, SHIFT: gl.constexpr, EDGE: gl.constexpr,
    FULL: gl.constexpr, STAGES: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr,
    PACKED: gl.constexpr, SEND: gl.constexpr, RECEIVE: gl.constexpr,
):  # fmt: skip
    """Rows first, first + apart ... of one head, as many as mine; step counts rows before them."""
    own: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, LAYOUT))
    dtype: gl.constexpr = y_ptr.dtype.element_ty
    head = row_head(first, stride_xo, SHIFT)
    n_vec = (n_cols - head) // VEC
    if FULL:
        per_part = ROUNDS * THREADS * VEC
    else:
        per_part = gl.cdiv(n_vec, 8 * CLUSTER) * 8 * VEC
    within, start = part_columns(per_part, ROUNDS, THREADS, VEC, CLUSTER, LAYOUT)
    offs = head + start + within
    part, thread = thread_ids(THREADS, CLUSTER, LAYOUT)
    zero = gl.zeros((CLUSTER, THREADS), gl.float32, own)
    at = (part + thread) * 0
    if FULL:
        inside = gl.full((CLUSTER, ROUNDS, THREADS, VEC), True, gl.int1, LAYOUT)
        valid = zero > 0.0
        count = zero + ROUNDS * VEC
    else:
        inside = within < gl.minimum(per_part, n_vec * VEC - start)
        valid = whole_vectors(per_part, n_vec * VEC, ROUNDS, THREADS, VEC, CLUSTER, LAYOUT)
        count = gl.sum(gl.where(valid, 1.0 * VEC, 0.0), 1)
    col = thread
    used = zero > 0.0
    if EDGE:
        col, used = edge_of_part(head, n_vec, n_cols, part, thread, VEC, SHIFT)
        count += gl.where(used, 1.0, 0.0)
    inverse = 1.0 / gl.maximum(count, 1.0)
    warp_count = warp_sum(count)
    warp_inverse = 1.0 / gl.maximum(warp_count, 1.0)

    if STAGES:
        for i in gl.static_range(STAGES):
            row = first + i * apart
            mask = inside & (i < mine)
            x_row = x_ptr + row_start(row, x_inner, stride_xo, stride_xi)
            async_load(x_ring.index(i), vector_ptrs(x_row, offs, VEC), mask=mask)
            if HAS_RES:
                r_row = r_ptr + row_start(row, r_inner, stride_ro, stride_ri)
                async_load(r_ring.index(i), vector_ptrs(r_row, offs, VEC), mask=mask)
            async_copy.commit_group()
    w = None
    w_edge = None
    if w_ptr is not None:
        w = gl.load(w_ptr + offs, mask=inside, other=0.0)
        if EDGE:
            w_edge = gl.load(w_ptr + col, mask=used, other=0.0)
    b = None
    b_edge = None
    if b_ptr is not None:
        b = gl.load(b_ptr + offs, mask=inside, other=0.0)
        if EDGE:
            b_edge = gl.load(b_ptr + col, mask=used, other=0.0)

    # iteration -1 only sums the first row; from then on one row is summed, the one before written
    held = gl.zeros((CLUSTER, ROUNDS, THREADS, VEC), x_ptr.dtype.element_ty, LAYOUT)
    edge = zero.to(x_ptr.dtype.element_ty)
    ahead = edge
    ahead_r = edge
    if EDGE:
        ahead = gl.load(
            x_ptr + row_start(first, x_inner, stride_xo, stride_xi) + col, mask=used, other=0.0
        )
        if HAS_RES:
            ahead_r = gl.load(
                r_ptr + row_start(first, r_inner, stride_ro, stride_ri) + col, mask=used, other=0.0
            )
    coming = held
    coming_r = held
    if not STAGES:
        mask = inside & (mine > 0)
        x_row = x_ptr + row_start(first, x_inner, stride_xo, stride_xi)
        coming = gl.load(vector_ptrs(x_row, offs, VEC), mask=mask, other=0.0)
        if HAS_RES:
            r_row = r_ptr + row_start(first, r_inner, stride_ro, stride_ri)
            coming_r = gl.load(vector_ptrs(r_row, offs, VEC), mask=mask, other=0.0)
    for i in range(-1, mine):
        row = first + i * apart  # this one is written, the next summed
        after = row + apart
        if STAGES:
            async_copy.wait_group(STAGES - 1)
            slot = (i + 1) % STAGES
            raw = x_ring.index(slot).load(LAYOUT)
            raw_r = raw
            if HAS_RES:
                raw_r = r_ring.index(slot).load(LAYOUT)
            later = after + STAGES * apart
            mask = inside & (i + 1 + STAGES < mine)
            x_row = x_ptr + row_start(later, x_inner, stride_xo, stride_xi)
            async_load(x_ring.index(slot), vector_ptrs(x_row, offs, VEC), mask=mask)
            if HAS_RES:
                r_row = r_ptr + row_start(later, r_inner, stride_ro, stride_ri)
                async_load(r_ring.index(slot), vector_ptrs(r_row, offs, VEC), mask=mask)
            async_copy.commit_group()
        else:
            raw = coming
            raw_r = coming_r
            later = after + apart
            mask = inside & (i + 2 < mine)
            x_row = x_ptr + row_start(later, x_inner, stride_xo, stride_xi)
            coming = gl.load(vector_ptrs(x_row, offs, VEC), mask=mask, other=0.0)
            if HAS_RES:
                r_row = r_ptr + row_start(later, r_inner, stride_ro, stride_ri)
                coming_r = gl.load(vector_ptrs(r_row, offs, VEC), mask=mask, other=0.0)
        live = i + 1 < mine
        raw = added(raw, raw_r, h_ptr.dtype.element_ty, HAS_RES)
        if HAS_RES:
            gl.store(vector_ptrs(h_ptr + after * n_cols, offs, VEC), raw, mask=inside & live)
        next_edge = edge
        if EDGE:
            next_edge = added(ahead, ahead_r, h_ptr.dtype.element_ty, HAS_RES)
            if HAS_RES:
                gl.store(h_ptr + after * n_cols + col, next_edge, mask=used & live)
            near = used & (i + 2 < mine)
            beyond = after + apart
            ahead = gl.load(
                x_ptr + row_start(beyond, x_inner, stride_xo, stride_xi) + col,
                mask=near,
                other=0.0,
            )
            if HAS_RES:
                ahead_r = gl.load(
                    r_ptr + row_start(beyond, r_inner, stride_ro, stride_ri) + col,
                    mask=near,
                    other=0.0,
                )
        sum_up(
            raw,
            next_edge,
            valid,
            used,
            count,
            inverse,
            warp_inverse,
            warp_count,
            slots,
            at + step + i + 1,
            at + live.to(gl.int32),
            MEAN,
            FULL,
            EDGE,
            PACKED,
            False,
            SEND,
        )
        if i >= 0:
            mean, squares = receive(zero + 1.0 / n_cols, slots, at + step + i, RECEIVE)
            rstd = gl.div_rn(zero + 1.0, gl.sqrt_rn(squares / n_cols + eps))
            if not MEAN:
                mean = zero
            y = _scaled(
                held, over_threads(mean), over_threads(rstd), w, b, offset, dtype, CAST, PACKED
            )
            y_row = y_ptr + row * n_cols
            gl.store(vector_ptrs(y_row, offs, VEC), y, mask=inside)
            if EDGE:
                y = _scaled(edge, mean, rstd, w_edge, b_edge, offset, dtype, CAST, False)
                gl.store(y_row + col, y, mask=used)
            if rstd_ptr is not None:
                one = (part == 0) & (thread == 0)
                gl.store(rstd_ptr + row + at, rstd, mask=one)
                if MEAN:
                    gl.store(mean_ptr + row + at, mean, mask=one)
        held = raw
        edge = next_edge
    if STAGES:
        async_copy.wait_group(0)
    return step + mine


@gluon.jit
def norm_fwd_resident_kernel(
    x_ptr,  # [n_rows, n_cols]
    r_ptr,  # [n_rows, n_cols], the residual, or x
    w_ptr,  # [n_cols] or None
    b_ptr,  # [n_cols] or None
    h_ptr,  # [n_rows, n_cols], contiguous: x + residual, or y
    y_ptr,  # [n_rows, n_cols], contiguous
    mean_ptr,  # [n_rows] float32 or None
    rstd_ptr,  # [n_rows] float32 or None
    n_rows,
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    r_inner,
    stride_ro,
    stride_ri,
    eps,
    offset,  # or None for 0
    MEAN: gl.constexpr,
    HAS_RES: gl.constexpr,
    CAST: gl.constexpr,
    ROUNDS: gl.constexpr,
    THREADS: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    FULL: gl.constexpr,
    STAGES: gl.constexpr,
    CLUSTER: gl.constexpr,
    LAYOUT: gl.constexpr,
    SHARED: gl.constexpr,
    PACKED: gl.constexpr,
    ARRIVE: gl.constexpr,
    STARTED: gl.constexpr,
    SEND: gl.constexpr,
    RECEIVE: gl.constexpr,
):
    """Every n_clusters-th row a cluster.

    With SHIFT rows of one head, SHIFT apart, come one after another, so that weights suit them: the
    rows are in order of their heads, of which each cluster takes an equal share.
    """
    pid = gl.program_id(0).to(gl.int64)
    n_clusters = gl.num_programs(0).to(gl.int64)
    slots = arrive(ARRIVE)
    x_ring = w_ptr
    r_ring = w_ptr
    if STAGES:
        shape: gl.constexpr = [STAGES, CLUSTER, ROUNDS, THREADS, VEC]
        x_ring = gl.allocate_shared_memory(x_ptr.dtype.element_ty, shape, SHARED)
        r_ring = x_ring
        if HAS_RES:
            r_ring = gl.allocate_shared_memory(r_ptr.dtype.element_ty, shape, SHARED)
    await_start(STARTED)
    if SHIFT:
        place = pid * n_rows // n_clusters
        end = (pid + 1) * n_rows // n_clusters
        each = (n_rows // SHIFT).to(gl.int64)
        more = n_rows % SHIFT  # so many heads have one row more
        step = 0
        while place < end:
            if place < more * (each + 1):
                kind = place // (each + 1)
                index = place % (each + 1)
                left = each + 1 - index
            else:
                kind = more + (place - more * (each + 1)) // gl.maximum(each, 1)
                index = (place - more * (each + 1)) % gl.maximum(each, 1)
                left = each - index
            mine = gl.minimum(left, end - place).to(gl.int32)
            step = _rows(
                x_ptr, r_ptr, w_ptr, b_ptr, h_ptr, y_ptr, mean_ptr, rstd_ptr, x_ring, r_ring,
                slots, step, kind + index * SHIFT, SHIFT, mine, n_cols,
                x_inner, stride_xo, stride_xi, r_inner, stride_ro, stride_ri, eps, offset,
                MEAN, HAS_RES, CAST, ROUNDS, THREADS, VEC, SHIFT, EDGE, FULL, STAGES, CLUSTER,
                LAYOUT, PACKED, SEND, RECEIVE,
            )  # fmt: skip
            place += mine
    else:
        mine = gl.cdiv(n_rows - gl.program_id(0), gl.num_programs(0))
        _rows(
            x_ptr, r_ptr, w_ptr, b_ptr, h_ptr, y_ptr, mean_ptr, rstd_ptr, x_ring, r_ring,
            slots, 0, pid, n_clusters, mine, n_cols,
            x_inner, stride_xo, stride_xi, r_inner, stride_ro, stride_ri, eps, offset,
            MEAN, HAS_RES, CAST, ROUNDS, THREADS, VEC, SHIFT, EDGE, FULL, STAGES, CLUSTER,
            LAYOUT, PACKED, SEND, RECEIVE,
        )  # fmt: skip
