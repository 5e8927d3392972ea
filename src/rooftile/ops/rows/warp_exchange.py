"""Parts of rows as the programs of a cluster hold them, and what their warps exchange.

A part is [CLUSTER, ROUNDS, THREADS, VEC]: a vector a thread in each round. What a thread knows of
its own elements is [CLUSTER, THREADS], so that sums along a part need nothing but a thread's own
registers, until ``warp_ptx`` combines threads.
"""

from __future__ import annotations

from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rooftile.ops._launch import compiler_options
from rooftile.ops.rows.address import edge_lanes
from rooftile.ops.rows.warp_ptx import WARP_SUM
from rooftile.plan.launch import RowLaunch

_NEG_INF = gl.constexpr(-float("inf"))
_WARP_SUM = gl.constexpr(WARP_SUM)


def layout_options(plan: RowLaunch, vec: int, device: torch.device) -> dict[str, Any]:
    """How a kernel of this form is launched: layouts and size of the cluster.

    A part is [CLUSTER, ROUNDS, THREADS, VEC]: the layout gives every thread a vector each round.
    """
    cga = [[1 << i, 0, 0, 0] for i in range(plan.cluster.bit_length() - 1)]
    threads = 32 * plan.num_warps
    return {
        "CLUSTER": plan.cluster,
        "ROUNDS": max(1, plan.block_n // (threads * vec)),
        "THREADS": threads,
        "LAYOUT": gl.BlockedLayout(
            [1, 1, 1, vec], [1, 1, 32, 1], [1, 1, plan.num_warps, 1], [3, 2, 1, 0], cga_layout=cga
        ),
        "num_ctas": plan.cluster,
        **compiler_options(plan, device),
    }


def ring_layout(cluster: int) -> gl.SwizzledSharedLayout:
    """The layout of parts in shared memory."""
    cga = [[1 << i, 0, 0, 0] for i in range(cluster.bit_length() - 1)]
    return gl.SwizzledSharedLayout(1, 1, 1, [3, 2, 1, 0], cga_layout=cga)


@gluon.jit
def arrive(ARRIVE: gl.constexpr):
    """Set up the barriers; gives the address of them and the slots, int32."""
    return gl.inline_asm_elementwise(ARRIVE, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def await_start(STARTED: gl.constexpr):
    """Until every program of the cluster has set up its barriers: only then may one send."""
    return gl.inline_asm_elementwise(STARTED, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def send_sum(a, slots, step, live, SEND: gl.constexpr):
    """A number of each thread, [CLUSTER, THREADS], to the cluster; step counts the rows."""
    gl.inline_asm_elementwise(
        SEND, "=r,f,r,r,r", [a, slots, step, live], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def send_pair(a, b, slots, step, live, SEND: gl.constexpr):
    """A maximum, and the sum of exponentials relative to it, of each thread."""
    gl.inline_asm_elementwise(
        SEND, "=r,f,f,r,r,r", [a, b, slots, step, live], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def send_moments(n, mean, squares, inverse, total, slots, step, live, SEND: gl.constexpr):
    """A thread's elements, their mean, the squares around it; total and 1 / total of its warp."""
    gl.inline_asm_elementwise(
        SEND, "=r,f,f,f,f,f,r,r,r", [n, mean, squares, inverse, total, slots, step, live],
        dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def receive(inverse, slots, step, RECEIVE: gl.constexpr):
    """Two numbers of the whole row, each [CLUSTER, THREADS]; inverse is 1 / its elements."""
    return gl.inline_asm_elementwise(
        RECEIVE, "=f,=f,f,r,r", [inverse, slots, step],
        dtype=(gl.float32, gl.float32), is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def warp_sum(x):
    """The sum over the lanes of each warp."""
    return gl.inline_asm_elementwise(
        _WARP_SUM, "=f,f", [x], dtype=gl.float32, is_pure=False, pack=1
    )


@gluon.jit
def over_threads(x):
    """A number a thread, [CLUSTER, THREADS], beside a part: [CLUSTER, 1, THREADS, 1]."""
    return gl.expand_dims(gl.expand_dims(x, 1), 3)


@gluon.jit
def own_sum(x):
    """The sum of each thread's elements of a part: [CLUSTER, THREADS]."""
    return gl.sum(gl.sum(x, 3), 1)


@gluon.jit
def own_max(x):
    """The maximum of each thread's elements of a part: [CLUSTER, THREADS]."""
    return gl.max(gl.max(x, 3), 1)


@gluon.jit
def part_columns(per_part, ROUNDS: gl.constexpr, THREADS: gl.constexpr, VEC: gl.constexpr,
                 CLUSTER: gl.constexpr, LAYOUT: gl.constexpr):  # fmt: skip
    """Where a part's elements lie in it, and its own start in the row's vectors.

    Both of shape [CLUSTER, ROUNDS, THREADS, VEC] or less.
    """
    along_v: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))
    along_t: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, LAYOUT)))
    along_k: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, LAYOUT)))
    along_c: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, LAYOUT)))
    v = gl.arange(0, VEC, along_v)[None, None, None, :]
    t = gl.arange(0, THREADS, along_t)[None, None, :, None]
    k = gl.arange(0, ROUNDS, along_k)[None, :, None, None]
    c = gl.arange(0, CLUSTER, along_c)[:, None, None, None]
    return (k * THREADS + t) * VEC + v, c * per_part


@gluon.jit
def whole_vectors(per_part, in_vectors, ROUNDS: gl.constexpr, THREADS: gl.constexpr,
                  VEC: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr):  # fmt: skip
    """Which vectors of a part are in a row of so many elements: [CLUSTER, ROUNDS, THREADS]."""
    along_t: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, LAYOUT)))
    along_k: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, LAYOUT)))
    along_c: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, LAYOUT)))
    t = gl.arange(0, THREADS, along_t)[None, None, :]
    k = gl.arange(0, ROUNDS, along_k)[None, :, None]
    c = gl.arange(0, CLUSTER, along_c)[:, None, None]
    return (k * THREADS + t) * VEC < gl.minimum(per_part, in_vectors - c * per_part)


@gluon.jit
def thread_ids(THREADS: gl.constexpr, CLUSTER: gl.constexpr, LAYOUT: gl.constexpr):
    """Part and thread, each broadcastable to [CLUSTER, THREADS]."""
    own: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, LAYOUT))
    part = gl.arange(0, CLUSTER, gl.SliceLayout(1, own))[:, None]
    return part, gl.arange(0, THREADS, gl.SliceLayout(0, own))[None, :]


@gluon.jit
def edge_of_part(head, n_vec, n_cols, part, thread, VEC: gl.constexpr, SHIFT: gl.constexpr):
    """Columns of a row's head and tail, one a thread, and which are in use: in the first part."""
    half: gl.constexpr = edge_lanes(VEC, SHIFT) // 2
    col = gl.where(thread < half, thread, head + n_vec * VEC + thread - half)
    used = (part == 0) & (thread < 2 * half) & (col < gl.where(thread < half, head, n_cols))
    return col + part * 0, used


@gluon.jit
def vector_ptrs(row_ptr, offs, VEC: gl.constexpr):
    """Pointers to a part's whole vectors, known to be aligned to them."""
    itemsize: gl.constexpr = row_ptr.dtype.element_ty.primitive_bitwidth // 8
    wide: gl.constexpr = VEC * itemsize
    return gl.multiple_of(row_ptr + offs, (itemsize, itemsize, itemsize, wide))


@gluon.jit
def widened(x, PACKED: gl.constexpr):
    """x in float32, which the compiler takes for new each time: it keeps no copy of it.

    bfloat16 is the upper half of float32: one instruction an element.
    """
    if PACKED and x.dtype == gl.bfloat16:
        x = gl.inline_asm_elementwise(
            "{ .reg .b32 t; shl.b32 t, $2, 16; mov.b32 $0, t;"
            " and.b32 t, $2, 0xffff0000; mov.b32 $1, t; }",
            "=f,=f,r", [x], dtype=gl.float32, is_pure=False, pack=2,
        )  # fmt: skip
    elif PACKED and x.dtype == gl.float16:
        x = gl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2
        ).to(gl.float32)
    else:
        x = x.to(gl.float32)
    return x


@gluon.jit
def widened_after(x, known, PACKED: gl.constexpr):
    """x in float32, converted only once a number of each thread, never -inf, is known.

    The selector of the byte permutation depends on that number, for all that the compiler can tell;
    else it would convert once and keep float32 copies, for which there are no registers.
    """
    if PACKED and x.dtype == gl.bfloat16:
        lower = gl.where(known == _NEG_INF, 0, 0x1044)
        x = gl.inline_asm_elementwise(
            "{ .reg .b32 t; prmt.b32 t, $2, 0, $3; mov.b32 $0, t;"
            " add.u32 t, $3, 0x2200; prmt.b32 t, $2, 0, t; mov.b32 $1, t; }",
            "=f,=f,r,r,r", [x, over_threads(lower)], dtype=gl.float32, is_pure=False, pack=2,
        )  # fmt: skip
    else:
        x = widened(x, PACKED)
    return x


@gluon.jit
def exp2(x):
    """2^x with numbers below 2^-126 taken for 0, which saves four operations."""
    return gl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )
