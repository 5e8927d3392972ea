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
from rooftile.ops.rows.address import edge_lanes
from rooftile.plan.launch import RowLaunch

_LOG2_E = "0f3FB8AA3B"  # float32 of log2(e), as PTX writes it


def slot_bytes(combine: str) -> int:
    """Bytes that a program sends to each."""
    return 16 if combine == "moments" else 8


def arrival(cluster: int, combine: str = "sums", sets: int = 1) -> str:
    """PTX for a kernel's start: barriers for what the others will send, then say that one runs.

    Gives the address of the barriers, as many as sets, and the slots behind them, in the program's
    shared memory. ``barrier.cluster.wait`` is still to come: only then may one send to another.
    """
    received = cluster * slot_bytes(combine)
    at = [f"[slots+{8 * i}]" for i in range(sets)]
    lines = [
        "{ .reg .pred p; .reg .b32 t;",
        f".shared .align 16 .b8 slots[{arrival_bytes(cluster, combine, sets)}];",
        "mov.u32 t, %tid.x; setp.eq.u32 p, t, 0;",
        *[f"@p mbarrier.init.shared.b64 {a}, 1;" for a in at],
        *[f"@p mbarrier.arrive.expect_tx.shared.b64 _, {a}, {received};" for a in at],
        "@p fence.mbarrier_init.release.cluster;",
        "barrier.cluster.arrive.relaxed.aligned; mov.u32 $0, slots; }",
    ]
    return " ".join(lines)


def barrier_bytes(sets: int) -> int:
    """Bytes in front of the slots, a multiple of 16."""
    return max(16, 8 * sets)


def arrival_bytes(cluster: int, combine: str, sets: int) -> int:
    """Bytes of barriers and slots."""
    return barrier_bytes(sets) + sets * cluster * slot_bytes(combine)


def exchange(cluster: int, combine: str = "sums") -> str:
    """PTX that combines float32 numbers of every program of a cluster, in one order everywhere.

    Each program sends its numbers into a slot of every program's shared memory and waits for all
    that it is sent: no barrier of the cluster, which would flush and invalidate the SM's L1. It
    first waits until the whole cluster runs.
    """
    moments = combine == "moments"
    size = slot_bytes(combine)
    base = "$6" if moments else "$4"
    ours = "v4.f32 [b], {$2, $3, $4, $4}" if moments else "v2.f32 [b], {$2, $3}"
    theirs = "v4.f32 {m, s, z, d}, [a]" if moments else "v2.f32 {m, s}, [a]"
    lines = [
        "{ .reg .pred p, q; .reg .b32 t, r, a, b, far; .reg .f32 m, s, z, d, w;",
        f"mov.u32 t, %tid.x; mov.u32 r, %cluster_ctarank; add.u32 a, {base}, {barrier_bytes(1)};",
        f"mad.lo.u32 b, r, {size}, a; setp.lt.u32 p, t, {cluster};",
        "barrier.cluster.wait.acquire.aligned;",
        f"@p mapa.shared::cluster.u32 b, b, t; @p mapa.shared::cluster.u32 far, {base}, t;",
        f"@p st.async.shared::cluster.mbarrier::complete_tx::bytes.{ours}, [far];",
        f"WAIT: mbarrier.try_wait.parity.shared.b64 q, [{base}], 0; @!q bra WAIT;",
        f"and.b32 t, t, {cluster - 1}; mad.lo.u32 a, t, {size}, a; ld.shared.{theirs};",
        *combining(cluster, combine, "$5"),
    ]
    return " ".join([*lines, "mov.f32 $0, m; mov.f32 $1, s; }"])


def combining(cluster: int, combine: str, inverse: str) -> list[str]:
    """PTX that combines what as many lanes hold in the registers m, s and z.

    Args:
        cluster: Programs of the cluster.
        combine: ``"sums"``: two sums. ``"softmax"``: a maximum, and a sum of exponentials relative
            to it. ``"moments"``: how many elements, their mean and the sum of squares around it;
            gives the mean of all and the sum of squares around that
            (Chan et al. 1983, https://doi.org/10.1080/00031305.1983.10483115).
        inverse: Of moments, the operand that is 1 / the number of all.
    """
    lines: list[str] = []
    if combine == "moments":
        lines += ["mul.f32 w, m, s;", *_butterfly(cluster, "add", "w"), f"mul.f32 w, w, {inverse};"]
        lines.append("sub.f32 d, s, w; mul.f32 d, d, d; fma.rn.f32 s, m, d, z; mov.f32 m, w;")
    elif combine == "softmax":
        lines += ["mov.f32 z, m;", *_butterfly(cluster, "max", "m")]
        lines.append(f"sub.f32 d, z, m; mul.f32 d, d, {_LOG2_E}; ex2.approx.f32 d, d;")
        lines.append("mul.f32 s, s, d;")
    else:
        lines += _butterfly(cluster, "add", "m")
    return lines + _butterfly(cluster, "add", "s")


def _butterfly(cluster: int, combine: str, name: str) -> list[str]:
    """Combine a register over groups of as many lanes; every lane gets the same bits."""
    lines = []
    for step in (1 << i for i in range(cluster.bit_length() - 1)):
        lines.append(f"shfl.sync.bfly.b32 d, {name}, {step}, 31, -1;")
        lines.append(f"{combine}.f32 {name}, {name}, d;")
    return lines


def exchange_options(cluster: int, combine: str = "sums") -> dict[str, str]:
    """The two pieces of PTX that a kernel of this file takes."""
    return {"PTX_ARRIVE": arrival(cluster, combine), "PTX": exchange(cluster, combine)}


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
def arrive(PTX: gl.constexpr):
    """Say that this program runs; gives the address of its slots, int32."""
    return gl.inline_asm_elementwise(PTX, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def exchanged(a, b, slots, PTX: gl.constexpr):
    """Combine a pair over the cluster: [CLUSTER], so that each thread runs the PTX once."""
    return gl.inline_asm_elementwise(
        PTX,
        "=f,=f,f,f,r",
        [a, b, slots],
        dtype=(gl.float32, gl.float32),
        is_pure=False,
        pack=1,
    )


@gluon.jit
def exchanged_moments(n, mean, squares, inverse, slots, PTX: gl.constexpr):
    """Mean and sum of squares around it over the cluster, from those of its parts: [CLUSTER]."""
    return gl.inline_asm_elementwise(
        PTX,
        "=f,=f,f,f,f,f,r",
        [n, mean, squares, inverse, slots],
        dtype=(gl.float32, gl.float32),
        is_pure=False,
        pack=1,
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
def row_head(row, stride, SHIFT: gl.constexpr):
    """Elements of a row before its first whole vector."""
    head = (row * 0).to(gl.int32)
    if SHIFT:
        head = ((0 - row * stride) & (SHIFT - 1)).to(gl.int32)
    return head


@gluon.jit
def vector_ptrs(row_ptr, offs, VEC: gl.constexpr):
    """Pointers to a row's whole vectors, known to be aligned to them."""
    itemsize: gl.constexpr = row_ptr.dtype.element_ty.primitive_bitwidth // 8
    return gl.multiple_of(row_ptr + offs, (itemsize, VEC * itemsize))


@gluon.jit
def edge_columns(
    head, n_cols,
    VEC: gl.constexpr, SHIFT: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr,
):  # fmt: skip
    """Columns of head and tail, and which of the lanes are in use: in the first program alone."""
    half: gl.constexpr = edge_lanes(VEC, SHIFT) // 2
    part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))[:, None]
    lane = gl.arange(0, 2 * half, gl.SliceLayout(0, LAYOUT))[None, :]
    tail = head + (n_cols - head) // VEC * VEC
    col = gl.where(lane < half, lane, tail + lane - half)
    used = (part == 0) & (col < gl.where(lane < half, head, n_cols))
    return col + part * 0, used


@gluon.jit
def weight_ptrs(w_ptr, stride, head, offs, VEC: gl.constexpr):
    """Pointers to a row's weights; with a stride w holds copies shifted by 0, 1 ... VEC - 1."""
    if stride is None:
        ptrs = w_ptr + head + offs
    else:
        by = head % VEC
        ptrs = vector_ptrs(w_ptr + by * stride + (head - by), offs, VEC)
    return ptrs


@gluon.jit
def part_sum(x, LAYOUT: gl.constexpr):
    """The sum of each part, [CLUSTER]."""
    return gl.convert_layout(gl.sum(x, 1), gl.SliceLayout(1, LAYOUT))


@gluon.jit
def part_max(x, LAYOUT: gl.constexpr):
    """The maximum of each part, [CLUSTER]."""
    return gl.convert_layout(gl.max(x, 1), gl.SliceLayout(1, LAYOUT))
