"""How row kernels cut their rows: what ``rooftile.plan.launch`` decides, in words and shares."""

from __future__ import annotations

from rooftile.errors import InputError
from rooftile.plan.launch import FAMILIES, RowLaunch, row_launch
from rooftile.plan.tile import MAX_ELEMENTS
from rooftile.records.tile import RowTile, Shape


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
    width = launch.block_n * launch.cluster
    tiles = -(-n_cols // width)
    shape, reason = _shape(launch, n_cols, itemsize)
    once = tiles == 1 or family == "cross_entropy_fwd"  # one number a row needs no second look
    return RowTile(
        n_cols=n_cols,
        itemsize=itemsize,
        shape=shape,
        rows=launch.rows,
        block=launch.block_n,
        tiles=tiles,
        num_warps=launch.num_warps,
        programs=launch.cluster,
        reads=1 if once else 2,
        idle=1 - n_cols / (tiles * width),
        reason=reason,
    )


def _shape(launch: RowLaunch, n_cols: int, itemsize: int) -> tuple[Shape, str]:
    """The name of a launch's form, and why it is this one."""
    size = f"{n_cols * itemsize:,} B"
    if launch.kind in ("cluster", "resident"):
        return "split", f"{launch.cluster} programs hold a part of the row each and exchange sums"
    if launch.kind == "loop":
        whole = 1 << (n_cols - 1).bit_length()
        limit = f", and {whole:,} are more than a Triton tensor has" if whole > MAX_ELEMENTS else ""
        return "loop", f"{size} of row are walked in chunks{limit}"
    if launch.rows > 1:
        return "many rows", f"one row of {size} is too little for {launch.num_warps} warps"
    return "one row", "the row fits the registers of one program: read once, written once"
