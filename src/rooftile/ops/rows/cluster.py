"""How a cluster of programs shares one long row, on NVIDIA's Hopper and later GPUs.

The programs of a cluster hold a part of a row each and exchange what they must know of each other
through distributed shared memory: a row is read once, whatever its length. A row is a tensor of two
dimensions, parts by columns; the layout gives each program one part. So sums along a part stay
inside its program (Triton 3.6 cannot reduce across programs), and every program stores its own
(Triton stores what programs share from the first of them alone).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops.rows.address import edge_lanes


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


def combining(cluster: int, combine: str, inverse: str) -> list[str]:
    """PTX that combines what as many lanes hold in the registers m, s and z.

    Args:
        cluster: Programs of the cluster.
        combine: ``"sums"``: two sums. ``"moments"``: how many elements, their mean and the sum of
            squares around it; gives the mean of all and the sum of squares around that
            (Chan et al. 1983, https://doi.org/10.1080/00031305.1983.10483115).
        inverse: Of moments, the operand that is 1 / the number of all.
    """
    lines: list[str] = []
    if combine == "moments":
        lines += ["mul.f32 w, m, s;", *_butterfly(cluster, "add", "w"), f"mul.f32 w, w, {inverse};"]
        lines.append("sub.f32 d, s, w; mul.f32 d, d, d; fma.rn.f32 s, m, d, z; mov.f32 m, w;")
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


@gluon.jit
def narrow(x, LAYOUT: gl.constexpr):
    """A number a part, [CLUSTER], as the edges of a row need it: [CLUSTER, 1]."""
    return gl.convert_layout(x, gl.SliceLayout(1, LAYOUT))[:, None]


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
