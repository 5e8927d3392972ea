"""How warps that share long rows exchange sums, and how rows reach them.

Each warp of a cluster sends its two sums of a row into a slot of every program's shared memory. Who
has received those of a row knows that all warps have that row in registers: the program's buffer
for it is free then, and one thread asks for a later row. Copies in bulk fill the buffers, so no
barrier of a program's warps is left.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops._launch import compiler_options
from rooftile.ops.rows.address import VECTOR_BYTES
from rooftile.ops.rows.cluster import arrival_bytes, barrier_bytes
from rooftile.plan.launch import RowLaunch

_SETS = 4  # who sends row i + 4 knows that all have read row i
_BARRIERS = barrier_bytes(_SETS)
_MIN_ROWS = 32  # of a cluster, beside which its start is short
_PAIR = 8  # bytes that a warp sends to each program: two float32


def ring_at(cluster: int, num_warps: int) -> int:
    """Bytes of a program's shared memory before the rows ahead: barriers and slots."""
    return -(-arrival_bytes(cluster * num_warps, "sums", _SETS) // 128) * 128 + 128


def starting(cluster: int, num_warps: int, stages: int, part_bytes: int) -> str:
    """PTX for a kernel's start: barriers, zeros where rows will be, and all programs run.

    Gives the address of all this in the program's shared memory.
    """
    before, slots = ring_at(cluster, num_warps), cluster * num_warps
    ring = 2 * stages * part_bytes if stages > 1 else 0
    sent = [f"[all+{8 * i}]" for i in range(_SETS)]
    full = [f"[all+{before - 128 + 8 * i}]" for i in range(stages)]
    lines = [
        "{ .reg .pred p; .reg .b32 t;",
        f".shared .align 128 .b8 all[{before + ring}];",
        "mov.u32 t, %tid.x; setp.eq.u32 p, t, 0;",
        *[f"@p mbarrier.init.shared.b64 {a}, 1;" for a in sent + full],
        *[f"@p mbarrier.arrive.expect_tx.shared.b64 _, {a}, {slots * _PAIR};" for a in sent],
        "@p fence.mbarrier_init.release.cluster;",
    ]
    lines += [
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        "mov.u32 $0, all; }",
    ]
    return " ".join(lines)


def zeroing(cluster: int, num_warps: int, stages: int, part_bytes: int) -> str:
    """PTX that fills where rows will be with zeros: copies leave what lies outside of a row."""
    before = ring_at(cluster, num_warps)
    lines = [
        "{ .reg .pred q; .reg .b32 t, a, z, last;",
        f"mov.u32 t, %tid.x; add.u32 last, $1, {before + 2 * stages * part_bytes}; mov.u32 z, 0;",
        f"shl.b32 t, t, 4; add.u32 a, $1, t; add.u32 a, a, {before}; bar.sync 0;",
        f"ZERO: st.shared.v4.b32 [a], {{z, z, z, z}}; add.u32 a, a, {num_warps * 512};",
        "setp.lt.u32 q, a, last; @q bra ZERO; fence.proxy.async.shared::cta; bar.sync 0;",
        "mov.u32 $0, 0; }",
    ]
    return " ".join(lines)


def fetching(cluster: int, num_warps: int, stages: int, part_bytes: int) -> str:
    """PTX by which one thread puts a part of two rows on its way into shared memory.

    Operands: address of the shared memory, which row, addresses of the two rows, their bytes.
    """
    before = ring_at(cluster, num_warps)
    lines = [
        "{ .reg .pred p, q; .reg .b32 t, r, s, n, full, to; .reg .b64 x, y, by;",
        "mov.u32 t, %tid.x; setp.ne.u32 p, t, 0; @p bra DONE;",
        f"and.b32 s, $2, {stages - 1}; mad.lo.u32 full, s, 8, $1;",
        f"add.u32 full, full, {before - 128}; mad.lo.u32 to, s, {2 * part_bytes}, $1;",
        f"add.u32 to, to, {before}; mov.u32 r, %cluster_ctarank;",
        f"mul.lo.u32 r, r, {part_bytes}; sub.s32 n, $5, r; min.s32 n, n, {part_bytes};",
        "max.s32 n, n, 0; shl.b32 t, n, 1; cvt.u64.u32 by, r;",
        "add.u64 x, $3, by; add.u64 y, $4, by;",
        "mbarrier.arrive.expect_tx.shared.b64 _, [full], t; setp.eq.u32 q, n, 0; @q bra DONE;",
    ]
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    lines += [
        f"{copy} [to], [x], n, [full]; add.u32 to, to, {part_bytes};",
        f"{copy} [to], [y], n, [full];",
        "DONE: mov.u32 $0, 0; }",
    ]
    return " ".join(lines)


def foretelling(part_bytes: int) -> str:
    """PTX by which one thread has L2 fetch a part of a row: its address, the row's bytes."""
    lines = [
        "{ .reg .pred p; .reg .b32 t, r, n; .reg .b64 x, by;",
        "mov.u32 t, %tid.x; setp.ne.u32 p, t, 0; @p bra DONE; mov.u32 r, %cluster_ctarank;",
        f"mul.lo.u32 r, r, {part_bytes}; sub.s32 n, $2, r; min.s32 n, n, {part_bytes};",
        "setp.le.s32 p, n, 0; @p bra DONE; cvt.u64.u32 by, r; add.u64 x, $1, by;",
        "cp.async.bulk.prefetch.L2.global [x], n;",
        "DONE: mov.u32 $0, 0; }",
    ]
    return " ".join(lines)


def awaiting(cluster: int, num_warps: int, stages: int) -> str:
    """PTX that waits until a row's parts are there."""
    lines = [
        "{ .reg .pred q; .reg .b32 s, full, turn;",
        f"and.b32 s, $2, {stages - 1}; mad.lo.u32 full, s, 8, $1;",
        f"bfe.u32 turn, $2, {stages.bit_length() - 1}, 1;",
        f"add.u32 full, full, {ring_at(cluster, num_warps) - 128};",
        "WAIT: mbarrier.try_wait.parity.shared.b64 q, [full], turn; @!q bra WAIT;",
        "mov.u32 $0, 0; }",
    ]
    return " ".join(lines)


def sending(cluster: int, num_warps: int) -> str:
    """PTX that sends a warp's two sums of one row into its slot of every program."""
    lines = [
        "{ .reg .pred p; .reg .b32 t, w, r, b, far, set;",
        f"mov.u32 t, %tid.x; mov.u32 r, %cluster_ctarank; and.b32 set, $4, {_SETS - 1};",
        f"shr.u32 w, t, 5; and.b32 t, t, 31; mad.lo.u32 w, r, {num_warps}, w;",
        f"mad.lo.u32 far, set, 8, $3; mad.lo.u32 b, set, {cluster * num_warps * _PAIR}, $3;",
        f"mad.lo.u32 b, w, {_PAIR}, b; add.u32 b, b, {_BARRIERS}; setp.lt.u32 p, t, {cluster};",
        "@p mapa.shared::cluster.u32 b, b, t; @p mapa.shared::cluster.u32 far, far, t;",
        "@p st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [b], {$1, $2}, [far];",
        "mov.u32 $0, 0; }",
    ]
    return " ".join(lines)


def receiving(cluster: int, num_warps: int) -> str:
    """PTX that waits for the sums of all warps of a cluster and adds them, in one order."""
    slots = cluster * num_warps
    lanes = min(slots, 32)
    lines = [
        "{ .reg .pred p, q; .reg .b32 t, a, bar, set, turn; .reg .f32 m, s, d, e;",
        f"mov.u32 t, %tid.x; and.b32 set, $3, {_SETS - 1}; bfe.u32 turn, $3, 2, 1;",
        f"mad.lo.u32 bar, set, 8, $2; mad.lo.u32 a, set, {slots * _PAIR}, $2;",
        "WAIT: mbarrier.try_wait.parity.shared.b64 q, [bar], turn; @!q bra WAIT;",
        "setp.eq.u32 p, t, 0;",
        f"@p mbarrier.arrive.expect_tx.shared.b64 _, [bar], {slots * _PAIR};",
        f"and.b32 t, t, {lanes - 1}; mad.lo.u32 a, t, {_PAIR}, a;",
        f"ld.shared.v2.f32 {{m, s}}, [a+{_BARRIERS}];",
    ]
    for more in range(lanes, slots, lanes):
        lines.append(f"ld.shared.v2.f32 {{d, e}}, [a+{_BARRIERS + more * _PAIR}];")
        lines.append("add.f32 m, m, d; add.f32 s, s, e;")
    for step in (1 << i for i in range(lanes.bit_length() - 1)):
        lines.append(f"shfl.sync.bfly.b32 d, m, {step}, 31, -1; add.f32 m, m, d;")
        lines.append(f"shfl.sync.bfly.b32 e, s, {step}, 31, -1; add.f32 s, s, e;")
    return " ".join([*lines, "mov.f32 $0, m; mov.f32 $1, s; }"])


def dealt(n_rows: int, at_once: int, shift: int) -> int:
    """Clusters of a grid.

    Args:
        n_rows: Rows of all.
        at_once: Clusters that run at a time.
        shift: With it, all rows of a cluster have one head: the grid is a multiple of it. A grid
            that is a multiple of both keeps all SMs at work, in several turns.
    """
    if not shift:
        return min(n_rows, at_once)
    turns = math.lcm(at_once, shift)
    if turns * _MIN_ROWS <= n_rows:
        return turns
    return max(1, min(n_rows, at_once) // shift) * shift


def warp_options(plan: RowLaunch, vec: int, device: torch.device) -> dict[str, Any]:
    """How the kernel of this file is launched: its layout, the pieces of PTX."""
    cluster, num_warps = plan.cluster, plan.num_warps
    part_bytes = plan.block_n * VECTOR_BYTES // vec
    cga = [[1 << i, 0, 0, 0] for i in range(cluster.bit_length() - 1)]
    return {
        "WARPS": cluster * num_warps,
        "STEPS": plan.block_n // (num_warps * 32 * vec),
        "LAYOUT": gl.BlockedLayout(
            [1, 1, 1, vec], [1, 1, 32, 1], [num_warps, 1, 1, 1], [3, 2, 1, 0], cga_layout=cga
        ),
        "STAGES": plan.num_stages,
        "RING": ring_at(cluster, num_warps),
        "ARRIVE": starting(cluster, num_warps, plan.num_stages, part_bytes),
        "ZERO": zeroing(cluster, num_warps, plan.num_stages, part_bytes),
        "FETCH": fetching(cluster, num_warps, plan.num_stages, part_bytes),
        "FORETELL": foretelling(part_bytes),
        "AWAIT": awaiting(cluster, num_warps, plan.num_stages),
        "SEND": sending(cluster, num_warps),
        "RECEIVE": receiving(cluster, num_warps),
        "num_ctas": cluster,
        **compiler_options(plan, device),
    }


@gluon.jit
def arrive(ARRIVE: gl.constexpr):
    """Say that this program runs, wait for the cluster; the address of the slots, int32."""
    return gl.inline_asm_elementwise(ARRIVE, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def fetch(x_ptr, dy_ptr, n_bytes, slots, step, FETCH: gl.constexpr):
    gl.inline_asm_elementwise(
        FETCH, "=r,r,r,l,l,r",
        [slots, step, x_ptr + slots * 0, dy_ptr + slots * 0, slots * 0 + n_bytes],
        dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def foretell(ptr, n_bytes, slots, FORETELL: gl.constexpr):
    gl.inline_asm_elementwise(
        FORETELL, "=r,l,r", [ptr + slots * 0, slots * 0 + n_bytes],
        dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def await_row(slots, step, AWAIT: gl.constexpr):
    gl.inline_asm_elementwise(AWAIT, "=r,r,r", [slots, step], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def from_shared(at, like_ptr, VEC: gl.constexpr):
    """A vector of a row for each lane and step; at is its address, once an element."""
    if VEC == 8:
        x = gl.inline_asm_elementwise(
            "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,r,r,r,r,r,r,r,r", [at],
            dtype=like_ptr.dtype.element_ty, is_pure=False, pack=8,
        )  # fmt: skip
    else:
        x = gl.inline_asm_elementwise(
            "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "=f,=f,=f,=f,r,r,r,r", [at],
            dtype=like_ptr.dtype.element_ty, is_pure=False, pack=4,
        )  # fmt: skip
    return x


@gluon.jit
def send(a, b, slots, step, SEND: gl.constexpr):
    gl.inline_asm_elementwise(
        SEND, "=r,f,f,r,r", [a, b, slots, step], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def receive(slots, step, RECEIVE: gl.constexpr):
    return gl.inline_asm_elementwise(
        RECEIVE, "=f,=f,r,r", [slots, step],
        dtype=(gl.float32, gl.float32), is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def zero(slots, ZERO: gl.constexpr):
    """Zeros where rows will be, by all threads; none goes on before all have written."""
    gl.inline_asm_elementwise(ZERO, "=r,r", [slots], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def reload(x, PACKED: gl.constexpr):
    """x, which the compiler takes for new: it keeps no float32 copy of it."""
    if PACKED:
        x = gl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2
        )
    return x
