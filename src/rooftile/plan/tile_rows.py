"""How row kernels cut their rows: what ``rooftile.plan.launch`` decides, in words and shares."""

from __future__ import annotations

from rooftile.errors import InputError
from rooftile.plan.launch import FAMILIES, row_launch
from rooftile.plan.tile import MAX_ELEMENTS
from rooftile.records.tile import RowTile


def row_tile(
    n_cols: int, itemsize: int, *, family: str = "softmax_fwd", clusters: bool = False
) -> RowTile:
    """How a kernel of a family walks rows of this length.

    Args:
        n_cols: Elements of a row.
        itemsize: Bytes of an element.
        family: A family of row kernels, as in ``rooftile.plan.launch``.
        clusters: The GPU has thread block clusters, so a row can be split.

    Raises:
        InputError: There is no such family, or a size is not positive.
    """
    for name, value in (("n_cols", n_cols), ("itemsize", itemsize)):
        if value < 1:
            raise InputError(f"{name} must be 1 or more, got {value}")
    if family not in FAMILIES:
        raise InputError(f"family must be one of {', '.join(FAMILIES)}, got {family!r}")
    launch = row_launch(family, n_cols, itemsize, clusters=clusters)
    if launch.kind == "cluster":
        width = launch.block_n * launch.cluster
        tiles = -(-n_cols // width)
        reason = f"{launch.cluster} programs hold a part of the row each and exchange sums"
        shape, reads = "split", 1
    elif launch.kind == "loop":
        width = launch.block_n
        tiles = -(-n_cols // width)
        whole = 1 << (n_cols - 1).bit_length()
        limit = f", and {whole:,} are more than a Triton tensor has" if whole > MAX_ELEMENTS else ""
        reason = f"{n_cols * itemsize:,} B of row do not stay in a program's registers{limit}"
        shape, reads = "loop", 1 if tiles == 1 or family.startswith("cross_entropy_fwd") else 2
    else:
        width, tiles, reads = launch.block_n, 1, 1
        shape = "many rows" if launch.rows > 1 else "one row"
        reason = (
            f"one row of {n_cols * itemsize:,} B is too little for {launch.num_warps} warps"
            if launch.rows > 1
            else "the row fits the registers of one program: read once, written once"
        )
    return RowTile(
        n_cols=n_cols,
        itemsize=itemsize,
        shape="split" if shape == "split" else "loop" if shape == "loop"
        else "many rows" if shape == "many rows" else "one row",
        rows=launch.rows,
        block=launch.block_n,
        tiles=tiles,
        num_warps=launch.num_warps,
        programs=launch.cluster,
        reads=reads,
        idle=1 - n_cols / (tiles * width),
        reason=reason,
    )  # fmt: skip
