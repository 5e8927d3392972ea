"""Launch parameters of the norms, by direction and by what is read and written."""

from __future__ import annotations

from functools import lru_cache

from rooftile.plan.row_forms import (
    TILE_BYTES,
    WARP,
    RowLaunch,
    cluster_of,
    power_of_two,
    resident,
    shared,
    staying,
    staying_registers,
    tile,
)


@lru_cache(maxsize=1024)
def norm_fwd(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """RMS norm. As softmax; the weights take registers too, so long rows are shared earlier."""
    block = power_of_two(n_cols)
    size = block * itemsize
    anywhere = n_cols * itemsize % 16 != 0
    if size > 65536 and stay:
        if anywhere:
            return staying(block, itemsize, 16384, clusters, 8, 8, 2, line_bytes=32)
        return staying(block, itemsize, 32768, clusters, 16, 0)
    if size == TILE_BYTES and itemsize == 2 and clusters >= 4:
        # on an H200 92 % of a copy's speed for the 90 of two programs; at 30,000 columns 92 for 82
        warps, registers = (8, 80) if n_cols == block else (4, 128)
        return RowLaunch(
            "cluster", 1, block // 4, warps, cluster=4, packed=True, max_registers=registers
        )
    if size > TILE_BYTES // 2 and clusters:
        return cluster_of(block, itemsize, 32768, clusters, 80)
    if size > 16384 and clusters and not anywhere:
        return shared(block, itemsize, 32768, clusters)
    return _norm_of_one(n_cols, itemsize)


@lru_cache(maxsize=1024)
def layer_norm_fwd(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """As RMS norm, but beside a row's weights and biases L2 has no bandwidth left for the row."""
    block = power_of_two(n_cols)
    size = block * itemsize
    anywhere = n_cols * itemsize % 16 != 0
    if stay and size > (16384 if anywhere else 32768):
        if anywhere:
            return staying(block, itemsize, 16384, clusters, 4, 8, 2, line_bytes=32)
        if size > 262144:
            return staying(block, itemsize, 32768, clusters, 8, 8)
        return staying(block, itemsize, 32768, clusters, 16, 0)
    if size > 8192 and clusters:
        return shared(block, itemsize, 32768, clusters)
    return _norm_of_one(n_cols, itemsize)


@lru_cache(maxsize=1024)
def add_norm_fwd(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """Two tensors in, two out: the weights are few beside them."""
    block = power_of_two(n_cols)
    size = block * itemsize
    if size > 262144 and stay:
        return staying(block, itemsize, 32768, clusters, 16, 0)
    if size > 16384 and clusters:
        return shared(block, itemsize, 32768, clusters)
    return _norm_of_one(n_cols, itemsize)


def _norm_of_one(n_cols: int, itemsize: int) -> RowLaunch:
    """A norm whose rows have one program each."""
    block = power_of_two(n_cols)
    size = block * itemsize
    if size > TILE_BYTES:
        return RowLaunch("loop", 1, 16384 // itemsize, 8)
    if size > 32768 and itemsize == 2:
        return RowLaunch("tile", 1, block, 32)
    if size > 16384 and itemsize == 2:
        return RowLaunch("tile", 1, block, size // 4096, packed=True, max_registers=80)
    if size == 1024:  # a row a warp: no sum goes through shared memory
        return RowLaunch("tile", 2, block, 1)
    if size <= 512:  # the weights of fewer rows leave room for more programs
        return RowLaunch("tile", 2048 // size, block, 4)
    return tile(block, size)


@lru_cache(maxsize=1024)
def norm_bwd(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """Two tensors in, one out, and column sums in registers: a grid that stays on the SMs.

    16 columns a thread and 16 warps an SM, or 32 and 8 where a cluster would be too large.
    """
    block = power_of_two(n_cols)
    size = block * itemsize
    if stay and itemsize == 2 and size >= 16384:
        per_sm = 4 if size <= 32768 else 2
        cluster = block // (2048 if per_sm == 4 else 4096)
        if cluster <= clusters:
            return staying_registers(block, cluster, 4, per_sm)
    if size > 16384 and stay:
        return resident(block, itemsize, clusters, 16 if size <= 32768 else 8, 16384)
    return _backward_of_one(block, itemsize)


@lru_cache(maxsize=1024)
def add_norm_bwd(n_cols: int, itemsize: int, clusters: int, stay: bool) -> RowLaunch:
    """Three tensors in, one out, and column sums in registers."""
    block = power_of_two(n_cols)
    if block * itemsize > 16384 and stay:
        if itemsize == 2 and block // 4096 <= clusters:
            return staying_registers(block, block // 4096, 8, 2)
        return resident(block, itemsize, clusters, 16, 16384)
    return _backward_of_one(block, itemsize)


def _backward_of_one(block: int, itemsize: int) -> RowLaunch:
    """A norm's backward whose rows have one program each."""
    size = block * itemsize
    if size > 16384:
        return RowLaunch("loop", 1, 8192 // itemsize, 8, programs_per_sm=2)
    if size == 1024:
        return RowLaunch(
            "tile", 2, block, 2, num_stages=3, programs_per_sm=6, packed=itemsize == 2,
            max_registers=168,
        )  # fmt: skip
    if size <= 4096:
        rows = max(1, 4096 // size)
        stages = 2 if size < 1024 else 3
        return RowLaunch(
            "tile", rows, block, 4, num_stages=stages, programs_per_sm=4, packed=itemsize == 2,
            max_registers=128,
        )  # fmt: skip
    num_warps = min(16, max(4, block // (16 * WARP)))
    return RowLaunch(
        "tile", 1, block, num_warps, num_stages=3, programs_per_sm=max(1, 16 // num_warps),
        packed=itemsize == 2, max_registers=128,
    )  # fmt: skip
