"""Softmax and norms of long rows on the clusters of NVIDIA's Hopper and later GPUs.

The programs of a cluster hold a part of a row each, in registers as it was loaded, and exchange what
they must know of each other through distributed shared memory: a row is read once, whatever its
length. A row is a tensor of two dimensions, parts by columns; the layout gives each program one
part, so that sums along a part stay inside its program (Triton 3.6 cannot reduce across programs)
and every program stores its own (Triton stores what programs share from the first of them alone).
"""

from __future__ import annotations

from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops._launch import compiler_options
from rooftile.plan.launch import RowLaunch

_NEG_INF = gl.constexpr(-float("inf"))
_LOG2_E = "0f3FB8AA3B"  # float32 of log2(e), as PTX writes it


def exchange(cluster: int, softmax: bool, first: bool) -> str:
    """PTX that combines two float32 of every program of a cluster, in the same order everywhere.

    Each program writes its pair into a slot of every program's shared memory; after a barrier of
    the cluster each adds up what it received. ``softmax`` pairs are a maximum and a sum of
    exponentials relative to it; others are two sums. The first exchange of a kernel waits until the
    whole cluster runs (``ARRIVE`` at its start): only then may a program write to another.
    """
    lines = [
        "{ .reg .pred p; .reg .b32 t, r, a, b; .reg .f32 m, s, d;",
        f".reg .f32 x<{cluster}>, y<{cluster}>; .shared .align 16 .b8 slots[{8 * cluster}];",
        "mov.u32 t, %tid.x; mov.u32 r, %cluster_ctarank; mov.u32 a, slots;",
        f"setp.lt.u32 p, t, {cluster}; mad.lo.u32 b, r, 8, a;",
        "barrier.cluster.wait.acquire.aligned;" if first else "",
        "@p mapa.shared::cluster.u32 b, b, t; @p st.shared::cluster.v2.f32 [b], {$2, $3};",
        "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;",
    ]
    lines += [f"ld.shared.v2.f32 {{x{i}, y{i}}}, [a+{8 * i}];" for i in range(cluster)]
    if softmax:
        lines += ["mov.f32 m, x0;", *[f"max.f32 m, m, x{i};" for i in range(1, cluster)]]
        lines.append("mov.f32 s, 0f00000000;")
        for i in range(cluster):
            lines.append(f"sub.f32 d, x{i}, m; mul.f32 d, d, {_LOG2_E}; ex2.approx.f32 d, d;")
            lines.append(f"fma.rn.f32 s, y{i}, d, s;")
    else:
        lines += ["mov.f32 m, x0; mov.f32 s, y0;"]
        lines += [f"add.f32 m, m, x{i}; add.f32 s, s, y{i};" for i in range(1, cluster)]
    return " ".join([*lines, "mov.f32 $0, m; mov.f32 $1, s; }"])


def cluster_options(plan: RowLaunch, vec: int, device: torch.device) -> dict[str, Any]:
    """How a kernel of this file is launched: layouts of vectors and of edges, size of the cluster."""
    cga = [[1 << i, 0] for i in range(plan.cluster.bit_length() - 1)]
    warps = [1, plan.num_warps]
    return {
        "CLUSTER": plan.cluster,
        "LAYOUT": gl.BlockedLayout([1, vec], [1, 32], warps, [1, 0], cga_layout=cga),
        "NARROW": gl.BlockedLayout([1, 1], [1, 32], warps, [1, 0], cga_layout=cga),
        "num_ctas": plan.cluster,
        **compiler_options(plan, device),
    }


@gluon.jit
def _arrive():
    """Say that this program runs; gives 0, so that the statement has a value."""
    return gl.inline_asm_elementwise(
        "{ barrier.cluster.arrive.relaxed.aligned; mov.u32 $0, 0; }",
        "=r",
        [],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _exchange(a, b, PTX: gl.constexpr):
    """Combine a pair over the cluster: [CLUSTER], so that each thread runs the PTX once."""
    return gl.inline_asm_elementwise(
        PTX, "=f,=f,f,f", [a, b], dtype=(gl.float32, gl.float32), is_pure=False, pack=1
    )


@gluon.jit
def _narrow(x, LAYOUT: gl.constexpr):
    """A number a part, [CLUSTER], as the edges of a row need it: [CLUSTER, 1]."""
    return gl.convert_layout(x, gl.SliceLayout(1, LAYOUT))[:, None]


@gluon.jit
def _columns(BLOCK_N: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr):
    """Where a part's elements lie in the row's vectors, [CLUSTER, BLOCK_N]."""
    part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))[:, None]
    return part * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, LAYOUT))[None, :]


@gluon.jit
def _reload(x, PACKED: gl.constexpr):
    """x, which the compiler takes for new: it keeps no float32 copy of it."""
    if PACKED:
        x = gl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2
        )
    return x


@gluon.jit
def _offset(row, inner, outer_stride, inner_stride):
    """Elements from a tensor's start to a row."""
    return (row // inner) * outer_stride + (row % inner) * inner_stride


@gluon.jit
def _head(row, stride, VEC: gl.constexpr, SHIFT: gl.constexpr):
    """Elements of a row before its first whole vector."""
    head = (row * 0).to(gl.int32)
    if SHIFT:
        head = ((0 - row * stride) & (VEC - 1)).to(gl.int32)
    return head


@gluon.jit
def _vectors(row_ptr, offs, VEC: gl.constexpr):
    """Pointers to a row's whole vectors, known to be aligned to them."""
    itemsize: gl.constexpr = row_ptr.dtype.element_ty.primitive_bitwidth // 8
    return gl.multiple_of(row_ptr + offs, (itemsize, VEC * itemsize))


@gluon.jit
def _edge(head, n_cols, VEC: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr):
    """Columns of head and tail, and which of the lanes are in use: in the first program alone."""
    part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))[:, None]
    lane = gl.arange(0, 2 * VEC, gl.SliceLayout(0, LAYOUT))[None, :]
    tail = head + (n_cols - head) // VEC * VEC
    col = gl.where(lane < VEC, lane, tail + lane - VEC)
    used = (part == 0) & (col < gl.where(lane < VEC, head, n_cols))
    return col + part * 0, used


@gluon.jit
def _sum(x, LAYOUT: gl.constexpr):
    """The sum of each part, [CLUSTER]."""
    return gl.convert_layout(gl.sum(x, 1), gl.SliceLayout(1, LAYOUT))


@gluon.jit
def _max(x, LAYOUT: gl.constexpr):
    """The maximum of each part, [CLUSTER]."""
    return gl.convert_layout(gl.max(x, 1), gl.SliceLayout(1, LAYOUT))


@gluon.jit
def _probability(x, row_max, row_sum, LOG: gl.constexpr):
    """Softmax or its logarithm."""
    if LOG:
        y = x - row_max - gl.log(row_sum)
    else:
        y = gl.exp(x - row_max) * (1.0 / row_sum)
    return y


@gluon.jit
def softmax_fwd_cluster_kernel(
    x_ptr,  # [n_rows, n_cols]
    y_ptr,  # [n_rows, n_cols]
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    y_inner,
    stride_yo,
    stride_yi,
    LOG: gl.constexpr,
    BLOCK_N: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    PACKED: gl.constexpr,
    CLUSTER: gl.constexpr,
    LAYOUT: gl.constexpr,
    NARROW: gl.constexpr,
    PTX: gl.constexpr,
):
    _arrive()
    row = gl.program_id(0).to(gl.int64)
    head = _head(row, stride_xo, VEC, SHIFT)
    offs = _columns(BLOCK_N, CLUSTER, LAYOUT)
    mask = offs // VEC < (n_cols - head) // VEC
    x_row = x_ptr + _offset(row, x_inner, stride_xo, stride_xi)
    y_row = y_ptr + _offset(row, y_inner, stride_yo, stride_yi)

    raw = gl.load(_vectors(x_row + head, offs, VEC), mask=mask, other=_NEG_INF)
    part_max = _max(raw.to(gl.float32), LAYOUT)
    if EDGE:
        col, used = _edge(head, n_cols, VEC, CLUSTER, NARROW)
        edge = gl.load(x_row + col, mask=used, other=_NEG_INF).to(gl.float32)
        part_max = gl.maximum(part_max, _max(edge, LAYOUT))
    shift = gl.where(part_max == _NEG_INF, 0.0, part_max)  # a part of -inf alone sums to 0
    part_sum = _sum(gl.exp(_reload(raw, PACKED).to(gl.float32) - shift[:, None]), LAYOUT)
    if EDGE:
        part_sum += _sum(gl.exp(edge - _narrow(shift, NARROW)), LAYOUT)
    row_max, row_sum = _exchange(part_max, part_sum, PTX)
    y = _probability(_reload(raw, PACKED).to(gl.float32), row_max[:, None], row_sum[:, None], LOG)
    dtype: gl.constexpr = y_ptr.dtype.element_ty
    gl.store(_vectors(y_row + head, offs, VEC), y.to(dtype), mask=mask)
    if EDGE:
        gl.store(
            y_row + col,
            _probability(edge, _narrow(row_max, NARROW), _narrow(row_sum, NARROW), LOG).to(dtype),
            mask=used,
        )


@gluon.jit
def softmax_bwd_cluster_kernel(
    y_ptr,  # [n_rows, n_cols], the forward's result
    dy_ptr,  # [n_rows, n_cols]
    dx_ptr,  # [n_rows, n_cols], strides of y
    n_cols,
    y_inner,
    stride_yo,
    stride_yi,
    dy_inner,
    stride_dyo,
    stride_dyi,
    LOG: gl.constexpr,
    BLOCK_N: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    PACKED: gl.constexpr,
    CLUSTER: gl.constexpr,
    LAYOUT: gl.constexpr,
    NARROW: gl.constexpr,
    PTX: gl.constexpr,
):
    _arrive()
    row = gl.program_id(0).to(gl.int64)
    head = _head(row, stride_yo, VEC, SHIFT)
    offs = _columns(BLOCK_N, CLUSTER, LAYOUT)
    mask = offs // VEC < (n_cols - head) // VEC
    y_off = _offset(row, y_inner, stride_yo, stride_yi)
    dy_row = dy_ptr + _offset(row, dy_inner, stride_dyo, stride_dyi)

    y_raw = gl.load(_vectors(y_ptr + y_off + head, offs, VEC), mask=mask, other=0.0)
    dy_raw = gl.load(_vectors(dy_row + head, offs, VEC), mask=mask, other=0.0)
    dy = dy_raw.to(gl.float32)
    if LOG:
        part = _sum(dy, LAYOUT)
    else:
        part = _sum(dy * y_raw.to(gl.float32), LAYOUT)
    if EDGE:
        col, used = _edge(head, n_cols, VEC, CLUSTER, NARROW)
        y_edge = gl.load(y_ptr + y_off + col, mask=used, other=0.0).to(gl.float32)
        dy_edge = gl.load(dy_row + col, mask=used, other=0.0).to(gl.float32)
        if LOG:
            part += _sum(dy_edge, LAYOUT)
        else:
            part += _sum(dy_edge * y_edge, LAYOUT)
    total, _ = _exchange(part, part, PTX)
    y = _reload(y_raw, PACKED).to(gl.float32)
    dy = _reload(dy_raw, PACKED).to(gl.float32)
    if LOG:
        dx = dy - gl.exp(y) * total[:, None]
    else:
        dx = y * (dy - total[:, None])
    dtype: gl.constexpr = dx_ptr.dtype.element_ty
    gl.store(_vectors(dx_ptr + y_off + head, offs, VEC), dx.to(dtype), mask=mask)
    if EDGE:
        if LOG:
            dx_edge = dy_edge - gl.exp(y_edge) * _narrow(total, NARROW)
        else:
            dx_edge = y_edge * (dy_edge - _narrow(total, NARROW))
        gl.store(dx_ptr + y_off + col, dx_edge.to(dtype), mask=used)


@gluon.jit
def _scaled(x_hat, w_ptr, b_ptr, col, mask, offset, dtype: gl.constexpr, CAST: gl.constexpr):
    """x_hat * (weight + offset) + bias; with CAST x_hat is rounded to the result's dtype first."""
    y = x_hat
    if CAST:
        y = y.to(dtype).to(gl.float32)
    if w_ptr is not None:
        y = y * (gl.load(w_ptr + col, mask=mask, other=0.0).to(gl.float32) + offset)
    if b_ptr is not None:
        y = y + gl.load(b_ptr + col, mask=mask, other=0.0).to(gl.float32)
    return y.to(dtype)


@gluon.jit
def _load_sum(x_ptrs, r_ptrs, h_ptrs, mask, HAS_RES: gl.constexpr):
    """x, or x + residual rounded to the dtype in which the sum is written."""
    x = gl.load(x_ptrs, mask=mask, other=0.0)
    if HAS_RES:
        r = gl.load(r_ptrs, mask=mask, other=0.0)
        x = (x.to(gl.float32) + r.to(gl.float32)).to(h_ptrs.dtype.element_ty)
        gl.store(h_ptrs, x, mask=mask)
    return x


@gluon.jit
def norm_fwd_cluster_kernel(
    x_ptr,  # [n_rows, n_cols]
    r_ptr,  # [n_rows, n_cols], the residual, or x
    w_ptr,  # [n_cols] or None
    b_ptr,  # [n_cols] or None
    h_ptr,  # [n_rows, n_cols], contiguous: x + residual, or y
    y_ptr,  # [n_rows, n_cols], contiguous
    mean_ptr,  # [n_rows] float32 or None
    rstd_ptr,  # [n_rows] float32 or None
    n_cols,
    x_inner,
    stride_xo,
    stride_xi,
    r_inner,
    stride_ro,
    stride_ri,
    eps,
    offset,
    MEAN: gl.constexpr,
    HAS_RES: gl.constexpr,
    CAST: gl.constexpr,
    BLOCK_N: gl.constexpr,
    VEC: gl.constexpr,
    SHIFT: gl.constexpr,
    EDGE: gl.constexpr,
    PACKED: gl.constexpr,
    CLUSTER: gl.constexpr,
    LAYOUT: gl.constexpr,
    NARROW: gl.constexpr,
    PTX: gl.constexpr,
    PTX_AGAIN: gl.constexpr,
):
    _arrive()
    row = gl.program_id(0).to(gl.int64)
    head = _head(row, stride_xo, VEC, SHIFT)
    offs = _columns(BLOCK_N, CLUSTER, LAYOUT)
    mask = offs // VEC < (n_cols - head) // VEC
    x_row = x_ptr + _offset(row, x_inner, stride_xo, stride_xi)
    r_row = r_ptr + _offset(row, r_inner, stride_ro, stride_ri)
    h_row = h_ptr + row * n_cols
    y_row = y_ptr + row * n_cols
    dtype: gl.constexpr = y_ptr.dtype.element_ty

    raw = _load_sum(
        _vectors(x_row + head, offs, VEC), _vectors(r_row + head, offs, VEC),
        _vectors(h_row + head, offs, VEC), mask, HAS_RES,
    )  # fmt: skip
    if EDGE:
        col, used = _edge(head, n_cols, VEC, CLUSTER, NARROW)
        edge = _load_sum(x_row + col, r_row + col, h_row + col, used, HAS_RES).to(gl.float32)
    mean = gl.zeros((CLUSTER,), gl.float32, gl.SliceLayout(1, LAYOUT))
    mean_edge = 0.0
    if MEAN:
        part = _sum(raw.to(gl.float32), LAYOUT)
        if EDGE:
            part += _sum(edge, LAYOUT)
        total, _ = _exchange(part, part, PTX)
        mean = total / n_cols
        mean_edge = _narrow(mean, NARROW)
    x = gl.where(mask, _reload(raw, PACKED).to(gl.float32) - mean[:, None], 0.0)
    part = _sum(x * x, LAYOUT)
    if EDGE:
        edge = gl.where(used, edge - mean_edge, 0.0)
        part += _sum(edge * edge, LAYOUT)
    if MEAN:
        total, _ = _exchange(part, part, PTX_AGAIN)
    else:
        total, _ = _exchange(part, part, PTX)
    rstd = gl.rsqrt(total / n_cols + eps)
    x_hat = (_reload(raw, PACKED).to(gl.float32) - mean[:, None]) * rstd[:, None]
    y = _scaled(x_hat, w_ptr, b_ptr, head + offs, mask, offset, dtype, CAST)
    gl.store(_vectors(y_row + head, offs, VEC), y, mask=mask)
    if EDGE:
        y = _scaled(edge * _narrow(rstd, NARROW), w_ptr, b_ptr, col, used, offset, dtype, CAST)
        gl.store(y_row + col, y, mask=used)
    if rstd_ptr is not None:
        part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))
        gl.store(rstd_ptr + row + part * 0, rstd, mask=part == 0)
        if MEAN:
            gl.store(mean_ptr + row + part * 0, mean, mask=part == 0)
