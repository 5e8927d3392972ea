"""How clusters of programs stay on the SMs and stream long rows through shared memory.

A program holds its columns' weights in shared memory for all of its rows, and rows ahead in a ring
of buffers that ``cp.async`` fills. So weights are not read from L2 again and again, bytes in flight
do not depend on registers, and the programs of a cluster find out a row's sums while they work on
the row before: who needs a sum asks for it one row after it was sent.

Heads and tails of rows that start anywhere are read two rows ahead into registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from rooftile.ops._launch import compiler_options, max_cluster
from rooftile.ops.rows.address import VECTOR_BYTES
from rooftile.ops.rows.cluster import (
    arrival,
    arrival_bytes,
    barrier_bytes,
    combining,
    slot_bytes,
    vector_ptrs,
)
from rooftile.plan.launch import RowLaunch

_SETS = 4  # who sends row i + 4 knows that all have read row i
_BARRIERS = barrier_bytes(_SETS)
LINE_VECTORS = 8  # parts are whole lines of 128 bytes
_SM_BYTES, _SMALL_SM_BYTES = 233_472, 102_400  # shared memory: clusters of 16, of 8 programs
_WITHOUT_ASKING = 49_152  # what a launch may have of it without the driver being asked for more
OTHER_BYTES = 1_536  # of a program: 1 KiB of the system's, reductions


# Triton 3.9 gave the copy a new name
async_load = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared


def sending(cluster: int, combine: str) -> str:
    """PTX that sends a program's numbers of one row into a slot of every program of its cluster."""
    moments = combine == "moments"
    size = slot_bytes(combine)
    base, step = ("$4", "$5") if moments else ("$3", "$4")
    numbers = "v4.f32 [b], {$1, $2, $3, $3}" if moments else "v2.f32 [b], {$1, $2}"
    lines = [
        "{ .reg .pred p; .reg .b32 t, r, b, far, set;",
        f"mov.u32 t, %tid.x; mov.u32 r, %cluster_ctarank; and.b32 set, {step}, {_SETS - 1};",
        f"mad.lo.u32 far, set, 8, {base}; mad.lo.u32 b, set, {cluster * size}, {base};",
        f"mad.lo.u32 b, r, {size}, b; add.u32 b, b, {_BARRIERS}; setp.lt.u32 p, t, {cluster};",
        "@p mapa.shared::cluster.u32 b, b, t; @p mapa.shared::cluster.u32 far, far, t;",
        f"@p st.async.shared::cluster.mbarrier::complete_tx::bytes.{numbers}, [far];",
        "mov.u32 $0, 0; }",
    ]
    return " ".join(lines)


def receiving(cluster: int, combine: str) -> str:
    """PTX that waits for the numbers of one row and combines them, in one order everywhere."""
    size = slot_bytes(combine)
    received = cluster * size
    slot = "v4.f32 {m, s, z, d}, [a]" if combine == "moments" else "v2.f32 {m, s}, [a]"
    lines = [
        "{ .reg .pred p, q; .reg .b32 t, a, bar, set, turn; .reg .f32 m, s, z, d, w;",
        f"mov.u32 t, %tid.x; and.b32 set, $4, {_SETS - 1}; bfe.u32 turn, $4, 2, 1;",
        f"mad.lo.u32 bar, set, 8, $3; mad.lo.u32 a, set, {received}, $3;",
        "WAIT: mbarrier.try_wait.parity.shared.b64 q, [bar], turn; @!q bra WAIT;",
        "setp.eq.u32 p, t, 0;",
        f"@p mbarrier.arrive.expect_tx.shared.b64 _, [bar], {received};",
        f"and.b32 t, t, {cluster - 1}; mad.lo.u32 a, t, {size}, a;",
        f"add.u32 a, a, {_BARRIERS}; ld.shared.{slot};",
        *combining(cluster, combine, "$2"),
    ]
    return " ".join([*lines, "mov.f32 $0, m; mov.f32 $1, s; }"])


def may_stay(device: torch.device) -> bool:
    """Whether clusters may stay on the SMs of a device: it has clusters, and it is there."""
    return device.type == "cuda" and max_cluster(device) > 0


def ring(
    plan: RowLaunch, n_cols: int, vec: int, device: torch.device,
    rows: Iterable[Tensor], weights: Iterable[Tensor | None],
) -> int:  # fmt: skip
    """Rows that a program has in shared memory; 0 where the plan is another or they do not fit.

    Args:
        plan: The launch.
        n_cols: Elements of a row.
        vec: Elements of an access.
        device: Where.
        rows: Tensors of which rows are read ahead.
        weights: Of which the program's columns stay.
    """
    widest = max(t.element_size() for t in rows)
    line = LINE_VECTORS * vec * plan.cluster
    whole = -(-n_cols // vec * vec // line) * line
    if plan.kind != "resident" or vec * widest != VECTOR_BYTES or not may_stay(device):
        return 0
    if whole > plan.block_n * plan.cluster:
        return 0
    per_sm = _SM_BYTES if max_cluster(device) > 8 else _SMALL_SM_BYTES
    slots = arrival_bytes(plan.cluster, "moments", _SETS) if plan.cluster > 1 else 0
    room = per_sm // plan.programs_per_sm - OTHER_BYTES - slots
    held = plan.block_n * sum(t.element_size() for t in weights if t is not None)
    stage_bytes = plan.block_n * sum(t.element_size() for t in rows)
    stages = min(plan.num_stages, (room - held) // stage_bytes)
    stages = launchable(stages, stage_bytes, held, slots)
    return stages if stages > 1 else 0


def launchable(stages: int, stage_bytes: int, other_bytes: int, static_bytes: int) -> int:
    """At most so many stages, of which a launch does not fail.

    Triton asks for more than 48 KiB of a program where its own buffers are more; those of inline
    PTX count for the GPU, not for Triton.
    """
    dynamic = stages * stage_bytes + other_bytes
    return stages - 1 if dynamic <= _WITHOUT_ASKING < dynamic + static_bytes else stages


def full_parts(plan: RowLaunch, n_cols: int, edge: bool) -> bool:
    """Whether nothing of the parts of a cluster lies outside a row."""
    return not edge and n_cols == plan.block_n * plan.cluster


@lru_cache(maxsize=64)
def clusters_at_once(cluster: int, device: torch.device, per_sm: int = 1) -> int:
    """Clusters of so many programs that a device runs at a time, per_sm programs on each SM.

    A cluster lies in one group of SMs (GPC), and the groups are not of one size: an H200 has 132
    SMs, of which clusters of 4 fill 120 where each program is alone on its SM.
    """
    with torch.cuda.device(device):
        kernel = _nothing[(1,)](num_warps=4)
    ask = triton.runtime.driver.active.utils.cuOccupancyMaxActiveClusters
    each = sm_bytes(device) // per_sm - OTHER_BYTES
    return max(1, int(ask(kernel.function, each, cluster)))


def sm_bytes(device: torch.device) -> int:
    """Shared memory of an SM."""
    return _SM_BYTES if max_cluster(device) > 8 else _SMALL_SM_BYTES


@triton.jit
def _nothing():
    pass


def n_clusters(plan: RowLaunch, n_rows: int, shift: int, device: torch.device) -> int:
    """Clusters of a persistent grid: as many as run at a time."""
    most = plan.programs_per_sm * clusters_at_once(plan.cluster, device)
    if shift:  # all rows of a cluster have one head
        return max(1, min(n_rows, most) // shift) * shift
    return min(n_rows, most)


def options(plan: RowLaunch, vec: int, combine: str, device: torch.device) -> dict[str, Any]:
    """How a kernel of this file is launched: layouts, size of the cluster, pieces of PTX."""
    cga = [[1 << i, 0] for i in range(plan.cluster.bit_length() - 1)]
    warps = [1, plan.num_warps]
    return {
        "BLOCK_N": plan.block_n,
        "CLUSTER": plan.cluster,
        "LAYOUT": gl.BlockedLayout([1, vec], [1, 32], warps, [1, 0], cga_layout=cga),
        "NARROW": gl.BlockedLayout([1, 1], [1, 32], warps, [1, 0], cga_layout=cga),
        "SHARED": gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=cga),
        "ARRIVE": arrival(plan.cluster, combine, _SETS),
        "SEND": sending(plan.cluster, combine),
        "RECEIVE": receiving(plan.cluster, combine),
        "num_ctas": plan.cluster,
        **compiler_options(plan, device),
    }


@gluon.jit
def arrive(ARRIVE: gl.constexpr):
    """Say that this program runs; gives the address of its slots, int32."""
    return gl.inline_asm_elementwise(ARRIVE, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def await_cluster():
    """Until every program of the cluster runs: only then may one send to another."""
    return gl.inline_asm_elementwise(
        "{ barrier.cluster.wait.acquire.aligned; mov.u32 $0, 0; }",
        "=r", [], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def send(a, b, slots, step, SEND: gl.constexpr):
    """A pair of numbers, each [CLUSTER], to every program of the cluster; step counts the rows."""
    gl.inline_asm_elementwise(
        SEND, "=r,f,f,r,r", [a, b, slots, step], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def receive(inverse, slots, step, RECEIVE: gl.constexpr):
    """Two numbers of the whole row, each [CLUSTER]; inverse is 1 / its elements."""
    return gl.inline_asm_elementwise(
        RECEIVE, "=f,=f,f,r,r", [inverse, slots, step],
        dtype=(gl.float32, gl.float32), is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def part_of_row(n_vec, BLOCK_N: gl.constexpr, VEC: gl.constexpr, FULL: gl.constexpr,
                CLUSTER: gl.constexpr, LAYOUT: gl.constexpr):  # fmt: skip
    """Where a part's elements lie in the row's vectors, and which are in it: [CLUSTER, BLOCK_N].

    FULL: all are. Nothing is left then of what is masked with them.
    """
    part = gl.arange(0, CLUSTER, gl.SliceLayout(1, LAYOUT))[:, None]
    lane = gl.arange(0, BLOCK_N, gl.SliceLayout(0, LAYOUT))[None, :]
    if FULL:
        per_part = BLOCK_N
        inside = gl.full((CLUSTER, BLOCK_N), True, gl.int1, LAYOUT)
    else:
        per_part = gl.cdiv(n_vec, 8 * CLUSTER) * 8 * VEC
        inside = lane < gl.minimum(per_part, n_vec * VEC - part * per_part)
    return part * per_part + lane, inside


@gluon.jit
def fetch(buffer, row_ptr, offs, mask, VEC: gl.constexpr):
    """Put a part of a row on its way into shared memory; zeros where the mask is not set."""
    async_load(buffer, vector_ptrs(row_ptr, offs, VEC), mask=mask)


@gluon.jit
def _add_pairs(a, b, c, d):
    return a + c, b + d


@gluon.jit
def part_sums(a, b, LAYOUT: gl.constexpr):
    """The sums of each part of two tensors, [CLUSTER]: one round through shared memory."""
    a, b = gl.reduce((a, b), 1, _add_pairs)
    layout: gl.constexpr = gl.SliceLayout(1, LAYOUT)
    return gl.convert_layout(a, layout), gl.convert_layout(b, layout)
