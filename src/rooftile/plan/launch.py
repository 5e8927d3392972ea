"""Launch parameters of each kernel family. The planner reports them and the kernels use them.

Five families cut a matrix of rows:

- ``tile``: a program holds whole rows in registers, several rows where they are short;
- ``loop``: a program walks one long row in chunks and reads it again from L2;
- ``cluster``: the programs of a cluster hold a part of one long row each and exchange sums; in the
  norms' backward they stay on the SMs, with their columns' weights and sums in registers;
- ``resident``: such clusters stay on the SMs, with the weights and rows ahead in shared memory;
- ``flat``: no reduction, the tensor is cut into equal chunks.

Sizes follow from 16-byte accesses: 2 to 8 of them a thread keep enough bytes in flight to cover the
latency of HBM (about 30 KB on each SM of an H200), and at most 64 float32 of a row a thread leave
the registers for two blocks an SM.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rooftile.plan import launch_norms
from rooftile.plan.launch_override import Overrides
from rooftile.plan.row_forms import (
    TILE_BYTES,
    WARP,
    RowLaunch,
    cluster_of,
    power_of_two,
    tile,
)

__all__ = [
    "FAMILIES",
    "RowLaunch",
    "logit_rows",
    "overridden",
    "override",
    "power_of_two",
    "row_launch",
]

_LOGIT_BYTES = 512 * 2**20


def row_launch(
    family: str, n_cols: int, itemsize: int, *, clusters: int = 0, stay: bool = False
) -> RowLaunch:
    """Plan a row-wise kernel.

    Args:
        family: One of ``FAMILIES``.
        n_cols: Elements of a row.
        itemsize: Bytes of an element.
        clusters: Programs of the GPU's largest cluster, 0 where it has none or the kernel no such
            form.
        stay: Whether clusters may stay on the SMs: the grid follows the GPU, not the rows alone.

    Returns:
        The parameters, with those of ``override`` in place of the planned ones.
    """
    return _overrides.applied(family, FAMILIES[family](n_cols, itemsize, clusters, stay))


@lru_cache(maxsize=1024)
def _softmax_fwd(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """One tensor in, one out: 4 accesses of 16 bytes a thread, 8 for the longest rows."""
    block = power_of_two(n_cols)
    size = block * itemsize
    anywhere = size > 16384 and n_cols * itemsize % 16 != 0  # the edges cost registers
    if (size > TILE_BYTES // 2 or anywhere) and clusters:
        return cluster_of(block, itemsize, 16384, clusters, 64)
    if size > TILE_BYTES:
        return RowLaunch("loop", 1, 16384 // itemsize, 8)
    if size > 16384 and itemsize == 2:  # 64 registers: as many bytes in flight, twice the programs
        return RowLaunch("tile", 1, block, size // 4096, packed=True, max_registers=64)
    return tile(block, size)


@lru_cache(maxsize=1024)
def _two_inputs(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """Two tensors in, one out: 2 accesses of 16 bytes a thread and tensor."""
    block = power_of_two(n_cols)
    size = block * itemsize
    if size > 16384 and clusters:  # 32 elements of each tensor a thread
        cluster = min(size // 8192 if size <= 65536 else 8 if size <= 131072 else 16, clusters)
        part = block // cluster
        return RowLaunch(
            "cluster", 1, part, min(16, max(4, part // 1024)), cluster=cluster, packed=itemsize == 2
        )
    if size > TILE_BYTES:
        return RowLaunch("loop", 1, 8192 // itemsize, 8)
    if size <= 4096:
        return RowLaunch("tile", max(1, 4096 // size), block, 4)
    num_warps = min(16, max(4, size // (32 * WARP)))
    return RowLaunch("tile", 1, block, num_warps, packed=size > 32768 and itemsize == 2)


@lru_cache(maxsize=1024)
def _flat(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """No reduction: 2 accesses of 16 bytes a thread and tensor."""
    return RowLaunch("flat", 1, min(power_of_two(n_cols), 4096 // itemsize), 4)


@lru_cache(maxsize=1024)
def _streamed(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """One tensor in, one number a row out: chunks, at most 2 accesses of 16 bytes a thread.

    With 4 a thread half as many warps hide what an element costs: on an H200 0.886 of a copy's
    speed at 32,000 classes, where 2 have 0.927.
    """
    size = min(power_of_two(n_cols) * itemsize, 8192)
    rows = max(1, 2048 // size)
    return RowLaunch("loop", rows, size // itemsize, 8 if size > 4096 else 4)


@lru_cache(maxsize=1024)
def _chunks(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """No reduction: a chunk of a row a program, 2 accesses of 16 bytes a thread."""
    return RowLaunch("flat", 1, min(power_of_two(n_cols), 8192 // itemsize), 8)


@lru_cache(maxsize=1024)
def _column_blocks(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """No reduction along rows: tiles of at most 4 KiB, 2 accesses of 16 bytes a thread."""
    block = max(8, min(power_of_two(n_cols), 2048 // itemsize))
    rows = max(1, 4096 // (block * itemsize))
    return RowLaunch("flat", rows, block, 4)


@lru_cache(maxsize=1024)
def _column_sums(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """Tiles as above, two ahead in shared memory, and sums over rows in registers.

    As many programs as the registers have room for, so that all of a grid run at once.
    """
    plan = _column_blocks(n_cols, itemsize, clusters, stay)
    registers = 96 if itemsize == 2 else 0
    return replace(plan, num_stages=3, programs_per_sm=5, max_registers=registers)


@lru_cache(maxsize=1024)
def _rotary(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """Heads: as many as give each thread 2 accesses of 16 bytes a half."""
    block = power_of_two(n_cols)
    return RowLaunch("tile", max(1, 4096 // (block * itemsize)), block, 4)


def logit_rows(n_classes: int, itemsize: int, width: int = 0) -> int:
    """Rows of logits that are in memory at a time: 512 MiB, but 1,024 rows for a good matmul.

    Where the weight's gradient is wanted, and so its ``width`` given, as many bytes as that has:
    each group reads and writes a sum of it in float32, which takes twice as much meanwhile.
    """
    row_bytes = max(1, n_classes * itemsize)
    rows = max(_LOGIT_BYTES, n_classes * width * itemsize) // row_bytes
    return max(1024, power_of_two(rows + 1) // 2)


FAMILIES = {
    "softmax_fwd": _softmax_fwd,
    "softmax_bwd": _two_inputs,
    "norm_fwd": launch_norms.norm_fwd,
    "layer_norm_fwd": launch_norms.layer_norm_fwd,
    "add_norm_fwd": launch_norms.add_norm_fwd,
    "norm_bwd": launch_norms.norm_bwd,
    "add_norm_bwd": launch_norms.add_norm_bwd,
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
