"""Launch parameters of each kernel family. The planner reports them and the kernels use them.

Four families cut a matrix of rows:

- ``tile``: a program holds whole rows in registers, several rows where they are short;
- ``loop``: a program walks one long row in chunks and reads it again from L2;
- ``cluster``: the programs of a cluster hold a part of one long row each and exchange sums;
- ``flat``: no reduction, the tensor is cut into equal chunks.

Sizes follow from 16-byte accesses: 2 to 8 of them a thread keep enough bytes in flight to cover the
latency of HBM (about 30 KB on each SM of an H200), and at most 64 float32 of a row a thread leave
the registers for two blocks an SM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from rooftile.plan.launch_override import Overrides

WARP = 32
# 65,536 bytes of row a program: past it two programs no longer fit the registers of an SM
_TILE_BYTES = 65536
# 8 programs of 16 warps hold 16 KB of row and its column sums each without a spill
_MAX_SHARED_BYTES = 131072
_LOGIT_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class RowLaunch:
    """How a row-wise kernel is launched.

    Attributes:
        kind: ``"tile"``, ``"loop"``, ``"cluster"`` or ``"flat"``.
        rows: Rows that a program holds at a time.
        block_n: Columns of a tile or of a chunk, a power of two.
        num_warps: Warps of a program (of each program of a cluster).
        num_stages: Loads in flight ahead of the loop that uses them. In the norms' backward 2 is a
            row ahead in registers, 3 and more are rows in shared memory.
        cluster: Programs that share a row.
        packed: Keep rows in registers as they were loaded and convert at each use.
        programs_per_sm: Programs of a persistent grid, for each SM; 0 for one for each row.
        max_registers: Bound of a thread's registers, 0 for none; NVIDIA's compiler alone has it.
        line_bytes: Where rows start anywhere, their vectors start at a multiple of so many bytes.
    """

    kind: str
    rows: int
    block_n: int
    num_warps: int
    num_stages: int = 1
    cluster: int = 1
    packed: bool = False
    programs_per_sm: int = 0
    max_registers: int = 0
    line_bytes: int = 32


def power_of_two(n: int) -> int:
    """The least power of two that is at least n; 1 for 0."""
    return 1 << max(0, n - 1).bit_length()


def row_launch(family: str, n_cols: int, itemsize: int, *, clusters: int = 0) -> RowLaunch:
    """Plan a row-wise kernel.

    Args:
        family: One of ``FAMILIES``.
        n_cols: Elements of a row.
        itemsize: Bytes of an element.
        clusters: Programs of the GPU's largest cluster, 0 where it has none or the kernel no such
            form.

    Returns:
        The parameters, with those of ``override`` in place of the planned ones.
    """
    return _overrides.applied(family, FAMILIES[family](n_cols, itemsize, clusters))


@lru_cache(maxsize=1024)
def _softmax_fwd(n_cols: int, itemsize: int, clusters: int) -> RowLaunch:
    """One tensor in, one out: 4 accesses of 16 bytes a thread, 8 for the longest rows."""
    block = power_of_two(n_cols)
    size = block * itemsize
    anywhere = size > 16384 and n_cols * itemsize % 16 != 0  # the edges cost registers
    if (size > _TILE_BYTES // 2 or anywhere) and clusters:
        return _cluster(block, itemsize, 16384, clusters, 64)
    if size > _TILE_BYTES:
        return RowLaunch("loop", 1, 16384 // itemsize, 8)
    if size > 16384 and itemsize == 2:  # 64 registers: as many bytes in flight, twice the programs
        return RowLaunch("tile", 1, block, size // 4096, packed=True, max_registers=64)
    return _tile(block, size)


@lru_cache(maxsize=1024)
def _norm_fwd(n_cols: int, itemsize: int, clusters: int) -> RowLaunch:
    """As softmax; the weights take registers too, so the longest rows are shared earlier."""
    block = power_of_two(n_cols)
    size = block * itemsize
    if size > _TILE_BYTES // 2 and clusters:
        return _cluster(block, itemsize, 32768, clusters, 80)
    if size > _TILE_BYTES:
        return RowLaunch("loop", 1, 16384 // itemsize, 8)
    if size > 32768 and itemsize == 2:
        return RowLaunch("tile", 1, block, 32)
    if size > 16384 and itemsize == 2:
        return RowLaunch("tile", 1, block, size // 4096, packed=True, max_registers=80)
    if size <= 512:  # the weights of fewer rows leave room for more programs
        return RowLaunch("tile", 2048 // size, block, 4)
    return _tile(block, size)


def _tile(block: int, size: int) -> RowLaunch:
    """Whole rows in registers, 4 accesses of 16 bytes a thread, at most 16 warps."""
    if size <= 8192:
        return RowLaunch("tile", max(1, 8192 // size), block, 4)
    return RowLaunch("tile", 1, block, min(16, size // 2048))


@lru_cache(maxsize=1024)
def _two_inputs(n_cols: int, itemsize: int, clusters: int) -> RowLaunch:
    """Two tensors in, one out: 2 accesses of 16 bytes a thread and tensor."""
    block = power_of_two(n_cols)
    size = block * itemsize
    if size > _TILE_BYTES // 2 and clusters:  # 32 elements of each tensor a thread
        cluster = min(8 if size <= 131072 else 16, clusters)
        part = block // cluster
        return RowLaunch(
            "cluster", 1, part, min(16, max(4, part // 1024)), cluster=cluster, packed=itemsize == 2
        )
    if size > _TILE_BYTES:
        return RowLaunch("loop", 1, 8192 // itemsize, 8)
    if size <= 4096:
        return RowLaunch("tile", max(1, 4096 // size), block, 4)
    num_warps = min(16, max(4, size // (32 * WARP)))
    return RowLaunch("tile", 1, block, num_warps, packed=size > 32768 and itemsize == 2)


@lru_cache(maxsize=1024)
def _persistent(n_cols: int, itemsize: int, clusters: int) -> RowLaunch:
    """Two tensors in, one out, and column sums in registers: a grid that stays on the SMs."""
    block = power_of_two(n_cols)
    size = block * itemsize
    if 16384 < size <= _MAX_SHARED_BYTES and clusters:
        cluster = 2 if size <= 32768 else 8 if size <= 65536 else clusters
        part = block // cluster
        num_warps = min(16, max(4, part // (16 * WARP)))
        return RowLaunch(
            "cluster", 1, part, num_warps, cluster=cluster, packed=itemsize == 2,
            programs_per_sm=max(1, 16 // num_warps), max_registers=128,
        )  # fmt: skip
    if size > 16384:
        return RowLaunch("loop", 1, 8192 // itemsize, 8, programs_per_sm=2)
    if size <= 4096:
        rows = max(1, 4096 // size)
        stages = 2 if size <= 1024 else 3
        return RowLaunch(
            "tile", rows, block, 4, num_stages=stages, programs_per_sm=4, packed=itemsize == 2,
            max_registers=128,
        )  # fmt: skip
    num_warps = min(16, max(4, block // (16 * WARP)))
    return RowLaunch(
        "tile", 1, block, num_warps, num_stages=3, programs_per_sm=max(1, 16 // num_warps),
        packed=itemsize == 2, max_registers=128,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _flat(n_cols: int, itemsize: int, clusters: int) -> RowLaunch:
    """No reduction: 2 accesses of 16 bytes a thread and tensor."""
    return RowLaunch("flat", 1, min(power_of_two(n_cols), 4096 // itemsize), 4)


@lru_cache(maxsize=1024)
def _streamed(n_cols: int, itemsize: int, clusters: int) -> RowLaunch:
    """One tensor in, one number a row out: chunks, 4 accesses of 16 bytes a thread."""
    block = min(power_of_two(n_cols), 8192 // itemsize)
    rows = max(1, 2048 // (block * itemsize))
    return RowLaunch("loop", rows, block, 4)


@lru_cache(maxsize=1024)
def _chunks(n_cols: int, itemsize: int, clusters: int) -> RowLaunch:
    """No reduction: a chunk of a row a program, 2 accesses of 16 bytes a thread."""
    return RowLaunch("flat", 1, min(power_of_two(n_cols), 8192 // itemsize), 8)


@lru_cache(maxsize=1024)
def _column_blocks(n_cols: int, itemsize: int, clusters: int) -> RowLaunch:
    """No reduction along rows: tiles of at most 4 KiB, 2 accesses of 16 bytes a thread."""
    block = max(8, min(power_of_two(n_cols), 2048 // itemsize))
    rows = max(1, 4096 // (block * itemsize))
    return RowLaunch("flat", rows, block, 4)


@lru_cache(maxsize=1024)
def _column_sums(n_cols: int, itemsize: int, clusters: int) -> RowLaunch:
    """Tiles as above, two ahead in shared memory, and sums over rows in registers.

    As many programs as the registers have room for, so that all of a grid run at once.
    """
    plan = _column_blocks(n_cols, itemsize, clusters)
    registers = 96 if itemsize == 2 else 0
    return replace(plan, num_stages=3, programs_per_sm=5, max_registers=registers)


@lru_cache(maxsize=1024)
def _rotary(n_cols: int, itemsize: int, clusters: int) -> RowLaunch:
    """Heads: as many as give each thread 2 accesses of 16 bytes a half."""
    block = power_of_two(n_cols)
    return RowLaunch("tile", max(1, 4096 // (block * itemsize)), block, 4)


def _cluster(
    block: int, itemsize: int, part_bytes: int, clusters: int, registers: int
) -> RowLaunch:
    """Parts of a row of ``part_bytes``, or larger ones; 64 elements a thread of 16-bit rows."""
    cluster = min(clusters, max(2, block * itemsize // part_bytes))
    part = block // cluster
    num_warps = min(16, max(4, part * itemsize // 4096))
    return RowLaunch(
        "cluster", 1, part, num_warps, cluster=cluster, packed=itemsize == 2,
        max_registers=registers,
    )  # fmt: skip


def logit_rows(n_classes: int, itemsize: int) -> int:
    """Rows of logits that are in memory at a time: 512 MiB, but 1,024 rows for a good matmul."""
    rows = _LOGIT_BYTES // (n_classes * itemsize)
    return max(1024, power_of_two(rows + 1) // 2)


FAMILIES = {
    "softmax_fwd": _softmax_fwd,
    "softmax_bwd": _two_inputs,
    "norm_fwd": _norm_fwd,
    "norm_bwd": _persistent,
    "cross_entropy_fwd": _streamed,
    "cross_entropy_bwd": _chunks,
    "flat": _flat,
    "column_blocks": _column_blocks,
    "column_sums": _column_sums,
    "rotary": _rotary,
}
_overrides = Overrides(RowLaunch, FAMILIES)
overridden = _overrides.any
override = _overrides.set
