"""RMS and layer norm of long rows by clusters that stay on the SMs: the forward."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from rooftile.ops.rows.cluster import (
    edge_columns,
    narrow,
    part_sum,
    row_head,
    row_start,
    vector_ptrs,
)
from rooftile.ops.rows.resident import (
    arrive,
    await_cluster,
    fetch,
    part_of_row,
    part_sizes,
    receive,
    send,
    send_moments,
)


@gluon.jit
def _edge(x_row, r_row, col, mask, HAS_RES: gl.constexpr):
    """Head and tail of a row, or of x + residual, rounded to the dtype of the sum."""
    x = gl.load(x_row + col, mask=mask, other=0.0)
    if HAS_RES:
        r = gl.load(r_row + col, mask=mask, other=0.0)
        x = (x.to(gl.float32) + r.to(gl.float32)).to(x.dtype)
    return x


@gluon.jit
def _sum_up(
    x_s, r_s, h_row, edge, head, offs, inside, col, used, counts, slots, step,
    MEAN: gl.constexpr, HAS_RES: gl.constexpr, VEC: gl.constexpr, EDGE: gl.constexpr,
    CLUSTER: gl.constexpr, LAYOUT: gl.constexpr, NARROW: gl.constexpr, SEND: gl.constexpr,
):  # fmt: skip
    """A part's moments, or its sum of squares, to the cluster; x becomes x + residual."""
    raw = x_s.load(LAYOUT)
    if HAS_RES:
        raw = (raw.to(gl.float32) + r_s.load(LAYOUT).to(gl.float32)).to(raw.dtype)
        x_s.store(raw)
        gl.store(vector_ptrs(h_row + head, offs, VEC), raw, mask=inside)
        if EDGE:
            gl.store(h_row + col, edge, mask=used)
    x = raw.to(gl.float32)
    mean = counts * 0.0
    if MEAN:
        total = part_sum(x, LAYOUT)
        if EDGE:
            total += part_sum(edge.to(gl.float32), LAYOUT)
        mean = total / gl.maximum(counts, 1.0)
        x = x - gl.where(inside, mean[:, None], 0.0)
    squares = part_sum(x * x, LAYOUT)
    if EDGE:
        x = edge.to(gl.float32) - gl.where(used, narrow(mean, NARROW), 0.0)
        squares += part_sum(x * x, LAYOUT)
    if CLUSTER > 1:
        if MEAN:
            send_moments(counts, mean, squares, slots, step, SEND)
        else:
            send(squares, squares, slots, step, SEND)
    return mean, squares


@gluon.jit
def _scaled(x, mean, rstd, w, b, offset, dtype: gl.constexpr, CAST: gl.constexpr,
            LAYOUT: gl.constexpr):  # fmt: skip
    """(x - mean) * rstd * (weight + offset) + bias; with CAST x_hat is rounded first.

    With a layout weight and bias are in shared memory.
    """
    y = (x.to(gl.float32) - mean) * rstd
    if CAST:
        y = y.to(dtype).to(gl.float32)
    if w is not None:
        if LAYOUT is not None:
            w = w.load(LAYOUT)
        w = w.to(gl.float32)
        if offset is not None:
            w = w + offset
        y = y * w
    if b is not None:
        if LAYOUT is not None:
            b = b.load(LAYOUT)
        y = y + b.to(gl.float32)
    return y.to(dtype)


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
    BLOCK_N: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    FULL: gl.constexpr,
    STAGES: gl.constexpr,
    CLUSTER: gl.constexpr,
    LAYOUT: gl.constexpr,
    NARROW: gl.constexpr,
    SHARED: gl.constexpr,
    ARRIVE: gl.constexpr,
    SEND: gl.constexpr,
    RECEIVE: gl.constexpr,
):
    """Every n_clusters-th row a cluster; with SHIFT n_clusters is a multiple of it: one head."""
    first = gl.program_id(0).to(gl.int64)
    n_clusters = gl.num_programs(0)
    mine = gl.cdiv(n_rows - gl.program_id(0), n_clusters)
    head = row_head(first, stride_xo, SHIFT)
    n_vec = (n_cols - head) // VEC
    offs, inside = part_of_row(n_vec, BLOCK_N, VEC, FULL, CLUSTER, LAYOUT)
    counts = part_sizes(n_vec, n_cols - n_vec * VEC, VEC, CLUSTER, LAYOUT)
    part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))
    dtype: gl.constexpr = y_ptr.dtype.element_ty
    step = part * 0
    slots = step
    if CLUSTER > 1:
        slots = step + arrive(ARRIVE)

    shape: gl.constexpr = [STAGES, CLUSTER, BLOCK_N]
    x_ring = gl.allocate_shared_memory(x_ptr.dtype.element_ty, shape, SHARED)
    r_ring = x_ring
    if HAS_RES:
        r_ring = gl.allocate_shared_memory(r_ptr.dtype.element_ty, shape, SHARED)
    for i in gl.static_range(STAGES):
        row = first + i * n_clusters
        mask = inside & (row < n_rows)
        x_row = x_ptr + row_start(row, x_inner, stride_xo, stride_xi)
        fetch(x_ring.index(i), x_row + head, offs, mask, VEC)
        if HAS_RES:
            r_row = r_ptr + row_start(row, r_inner, stride_ro, stride_ri)
            fetch(r_ring.index(i), r_row + head, offs, mask, VEC)
        async_copy.commit_group()
    edge_1 = offs
    edge_2 = offs
    col = offs
    used = inside
    if EDGE:  # of this row, the next, and the one behind it
        col, used = edge_columns(head, n_cols, VEC, SHIFT, CLUSTER, NARROW)
        after = first + n_clusters
        edge_1 = _edge(
            x_ptr + row_start(first, x_inner, stride_xo, stride_xi),
            r_ptr + row_start(first, r_inner, stride_ro, stride_ri), col, used, HAS_RES,
        )  # fmt: skip
        edge_2 = _edge(
            x_ptr + row_start(after, x_inner, stride_xo, stride_xi),
            r_ptr + row_start(after, r_inner, stride_ro, stride_ri), col,
            used & (after < n_rows), HAS_RES,
        )  # fmt: skip
    w_s = None
    w_edge = None
    if w_ptr is not None:
        w_s = gl.allocate_shared_memory(w_ptr.dtype.element_ty, [CLUSTER, BLOCK_N], SHARED)
        w_s.store(gl.load(w_ptr + head + offs, mask=inside, other=0.0))
        if EDGE:
            w_edge = gl.load(w_ptr + col, mask=used, other=0.0)
    b_s = None
    b_edge = None
    if b_ptr is not None:
        b_s = gl.allocate_shared_memory(b_ptr.dtype.element_ty, [CLUSTER, BLOCK_N], SHARED)
        b_s.store(gl.load(b_ptr + head + offs, mask=inside, other=0.0))
        if EDGE:
            b_edge = gl.load(b_ptr + col, mask=used, other=0.0)

    async_copy.wait_group(STAGES - 1)
    if CLUSTER > 1:
        await_cluster()
    mean, squares = _sum_up(
        x_ring.index(0), r_ring.index(0), h_ptr + first * n_cols, edge_1, head, offs, inside,
        col, used, counts, slots, step,
        MEAN, HAS_RES, VEC, EDGE, CLUSTER, LAYOUT, NARROW, SEND,
    )  # fmt: skip
    for i in range(mine):
        row = first + i * n_clusters
        row_mean = mean
        row_squares = squares
        edge = edge_1
        edge_1 = edge_2
        if EDGE:
            after = row + 2 * n_clusters
            edge_2 = _edge(
                x_ptr + row_start(after, x_inner, stride_xo, stride_xi),
                r_ptr + row_start(after, r_inner, stride_ro, stride_ri), col,
                used & (after < n_rows), HAS_RES,
            )  # fmt: skip
        async_copy.wait_group(STAGES - 2)
        if i + 1 < mine:
            other = (i + 1) % STAGES
            mean, squares = _sum_up(
                x_ring.index(other), r_ring.index(other), h_ptr + (row + n_clusters) * n_cols,
                edge_1, head, offs, inside, col, used, counts, slots, step + i + 1,
                MEAN, HAS_RES, VEC, EDGE, CLUSTER, LAYOUT, NARROW, SEND,
            )  # fmt: skip
        if CLUSTER > 1:
            row_mean, row_squares = receive(counts * 0.0 + 1.0 / n_cols, slots, step + i, RECEIVE)
            if not MEAN:
                row_squares = row_mean
                row_mean = mean
        rstd = gl.div_rn(row_squares * 0.0 + 1.0, gl.sqrt_rn(row_squares / n_cols + eps))
        here = x_ring.index(i % STAGES)
        y = _scaled(
            here.load(LAYOUT),
            row_mean[:, None],
            rstd[:, None],
            w_s,
            b_s,
            offset,
            dtype,
            CAST,
            LAYOUT,
        )
        y_row = y_ptr + row * n_cols
        gl.store(vector_ptrs(y_row + head, offs, VEC), y, mask=inside)
        if EDGE:
            y = _scaled(
                edge,
                narrow(row_mean, NARROW),
                narrow(rstd, NARROW),
                w_edge,
                b_edge,
                offset,
                dtype,
                CAST,
                None,
            )
            gl.store(y_row + col, y, mask=used)
        if rstd_ptr is not None:
            gl.store(rstd_ptr + row + part * 0, rstd, mask=part == 0)
            if MEAN:
                gl.store(mean_ptr + row + part * 0, row_mean, mask=part == 0)
        later = row + STAGES * n_clusters
        mask = inside & (later < n_rows)
        x_row = x_ptr + row_start(later, x_inner, stride_xo, stride_xi)
        fetch(here, x_row + head, offs, mask, VEC)
        if HAS_RES:
            r_row = r_ptr + row_start(later, r_inner, stride_ro, stride_ri)
            fetch(r_ring.index(i % STAGES), r_row + head, offs, mask, VEC)
        async_copy.commit_group()
    async_copy.wait_group(0)
