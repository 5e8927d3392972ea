"""How a cluster of programs shares one long row, on NVIDIA's Hopper and later GPUs.

The programs of a cluster hold a part of a row each, in registers as it was loaded, and exchange
what they must know of each other through distributed shared memory: a row is read once, whatever
its length. A row is a tensor of two dimensions, parts by columns; the layout gives each program one
part. So sums along a part stay inside its program (Triton 3.6 cannot reduce across programs), and
every program stores its own (Triton stores what programs share from the first of them alone).
"""

from __future__ import annotations

from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops._launch import compiler_options
from rooftile.plan.launch import RowLaunch

_LOG2_E = "0f3FB8AA3B"  # float32 of log2(e), as PTX writes it


def exchange(cluster: int, softmax: bool = False, first: bool = True, looped: bool = False) -> str:
    """PTX that combines two float32 of every program of a cluster, in the same order everywhere.

    Each program writes its pair into a slot of every program's shared memory; after a barrier of
    the cluster each adds up what it received.

    Args:
        cluster: Programs of the cluster.
        softmax: A pair is a maximum and a sum of exponentials relative to it, not two sums.
        first: Wait first until the whole cluster runs (``arrive`` at the kernel's start): only then
            may a program write to another.
        looped: The exchange happens again and again; the last operand tells odd from even. Two sets
            of slots are enough: who writes the second time knows that all have read the first.
    """
    lines = [
        "{ .reg .pred p; .reg .b32 t, r, a, b; .reg .f32 m, s, d;",
        f".reg .f32 x<{cluster}>, y<{cluster}>; .shared .align 16 .b8 slots[{16 * cluster}];",
        "mov.u32 t, %tid.x; mov.u32 r, %cluster_ctarank; mov.u32 a, slots;",
        f"mad.lo.u32 a, $4, {8 * cluster}, a;" if looped else "",
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
    """How a kernel of this file is launched: layouts and size of the cluster."""
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
def arrive():
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
def exchanged(a, b, PTX: gl.constexpr):
    """Combine a pair over the cluster: [CLUSTER], so that each thread runs the PTX once."""
    return gl.inline_asm_elementwise(
        PTX, "=f,=f,f,f", [a, b], dtype=(gl.float32, gl.float32), is_pure=False, pack=1
    )


@gluon.jit
def wait():
    """Until every program of the cluster runs."""
    return gl.inline_asm_elementwise(
        "{ barrier.cluster.wait.acquire.aligned; mov.u32 $0, 0; }",
        "=r",
        [],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def exchanged_again(a, b, parity, PTX: gl.constexpr):
    """As ``exchanged``, in a loop: parity is int32 [CLUSTER], 0 and 1 by turns."""
    return gl.inline_asm_elementwise(
        PTX, "=f,=f,f,f,r", [a, b, parity], dtype=(gl.float32, gl.float32), is_pure=False, pack=1
    )


@gluon.jit
def narrow(x, LAYOUT: gl.constexpr):
    """A number a part, [CLUSTER], as the edges of a row need it: [CLUSTER, 1]."""
    return gl.convert_layout(x, gl.SliceLayout(1, LAYOUT))[:, None]


@gluon.jit
def part_columns(BLOCK_N: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr):
    """Where a part's elements lie in the row's vectors, [CLUSTER, BLOCK_N]."""
    part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))[:, None]
    return part * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, LAYOUT))[None, :]


@gluon.jit
def reload(x, PACKED: gl.constexpr):
    """x, which the compiler takes for new: it keeps no float32 copy of it."""
    if PACKED:
        x = gl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2
        )
    return x


@gluon.jit
def row_start(row, inner, outer_stride, inner_stride):
    """Elements from a tensor's start to a row."""
    return (row // inner) * outer_stride + (row % inner) * inner_stride


@gluon.jit
def row_head(row, stride, VEC: gl.constexpr, SHIFT: gl.constexpr):
    """Elements of a row before its first whole vector."""
    head = (row * 0).to(gl.int32)
    if SHIFT:
        head = ((0 - row * stride) & (VEC - 1)).to(gl.int32)
    return head


@gluon.jit
def vector_ptrs(row_ptr, offs, VEC: gl.constexpr):
    """Pointers to a row's whole vectors, known to be aligned to them."""
    itemsize: gl.constexpr = row_ptr.dtype.element_ty.primitive_bitwidth // 8
    return gl.multiple_of(row_ptr + offs, (itemsize, VEC * itemsize))


@gluon.jit
def edge_columns(head, n_cols, VEC: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr):
    """Columns of head and tail, and which of the lanes are in use: in the first program alone."""
    part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))[:, None]
    lane = gl.arange(0, 2 * VEC, gl.SliceLayout(0, LAYOUT))[None, :]
    tail = head + (n_cols - head) // VEC * VEC
    col = gl.where(lane < VEC, lane, tail + lane - VEC)
    used = (part == 0) & (col < gl.where(lane < VEC, head, n_cols))
    return col + part * 0, used


@gluon.jit
def part_sum(x, LAYOUT: gl.constexpr):
    """The sum of each part, [CLUSTER]."""
    return gl.convert_layout(gl.sum(x, 1), gl.SliceLayout(1, LAYOUT))


@gluon.jit
def part_max(x, LAYOUT: gl.constexpr):
    """The maximum of each part, [CLUSTER]."""
    return gl.convert_layout(gl.max(x, 1), gl.SliceLayout(1, LAYOUT))
