"""How to cut an op: ``rooftile.tile("matmul", (4096, 4096, 4096), gpu="h100-sxm")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rooftile.errors import InputError

if TYPE_CHECKING:
    from rooftile.records.device import Device
    from rooftile.records.tile import RowTile, TilePlan

KINDS = {
    "rows": "N",
    "matmul": "MxNxK",
    "attention": "BATCHxHEADSxQUERIESxHEAD_DIM or BATCHxHEADSxQUERIESxKEYSxHEAD_DIM",
}


def tile(
    op: str,
    shape: Sequence[int] | str,
    *,
    dtype: str = "bfloat16",
    gpu: str | Device | None = None,
    family: str = "softmax_fwd",
    kv_heads: int | None = None,
    top: int = 8,
) -> RowTile | TilePlan:
    """Say how a kernel should cut its tensors, by what the cuts move and how they fill the GPU.

    Args:
        op: ``"rows"`` (softmax, norms, losses), ``"matmul"`` or ``"attention"``.
        shape: Rows: the columns. Matmul: M, N, K. Attention: batch, heads, tokens, head dimension,
            with the keys' tokens before the last where they differ. Numbers, or ``"4096x4096x64"``.
        dtype: Of the operands.
        gpu: A GPU's name, the path of a JSON file, or a Device; None: h100-sxm.
        family: Of a row kernel: ``"softmax_fwd"``, ``"norm_bwd"``, ...
        kv_heads: Heads of keys, for attention; None: as many as of queries.
        top: Tiles to keep.

    Returns:
        RowTile of rows, else TilePlan with the best tile first.

    Raises:
        InputError: An argument is wrong, or no tile can fit; the message says which and why.
        UnknownDeviceError: No GPU has that name. The message lists near ones.
    """
    from rooftile.api.device import choose_device
    from rooftile.plan.tile_attention import attention_tiles
    from rooftile.plan.tile_matmul import matmul_tiles
    from rooftile.plan.tile_rows import row_tile
    from rooftile.spec.dtypes import itemsize

    if op not in KINDS:
        raise InputError(f"op must be one of {', '.join(KINDS)}, got {op!r}")
    extents = _extents(op, shape)
    size = itemsize(dtype)
    device = choose_device(gpu, default="h100-sxm")
    if op == "rows":
        clusters = device.target in ("sm_90", "sm_100", "sm_103")
        return row_tile(extents[0], size, family=family, clusters=clusters)
    if op == "matmul":
        m, n, k = extents
        return matmul_tiles(m, n, k, dtype=dtype, itemsize=size, gpu=device, top=top)
    batch, heads, queries, *keys, head_dim = extents
    return attention_tiles(
        batch, heads, queries, keys[0] if keys else queries, head_dim,
        dtype=dtype, itemsize=size, gpu=device, kv_heads=kv_heads, top=top,
    )  # fmt: skip


def tile_plan(n: int, sram_bytes: int, itemsize: int) -> tuple[int, int]:
    """The largest power-of-two block that fits a row and on-chip memory, and the blocks of a row.

    ``rooftile.tile_plan(50257, 100 * 1024, 4)`` is ``(16384, 4)``.

    Args:
        n: Elements of the row.
        sram_bytes: On-chip memory for one block [B].
        itemsize: Bytes of an element.

    Raises:
        InputError: Nothing is there to cut, or not one element fits.
    """
    from rooftile.plan.tile import tile_plan as plan

    return plan(n, sram_bytes, itemsize)


def _extents(op: str, shape: Sequence[int] | str) -> tuple[int, ...]:
    """The numbers of a shape, as many as the op has."""
    parts = shape.lower().split("x") if isinstance(shape, str) else [str(part) for part in shape]
    wanted = {"rows": (1,), "matmul": (3,), "attention": (4, 5)}[op]
    if len(parts) not in wanted or not all(part.strip().isdigit() for part in parts):
        raise InputError(f"shape of {op} must be {KINDS[op]}, got {shape!r}")
    return tuple(int(part) for part in parts)
