"""Launch parameters of the Hopper attention kernels for packed sequences.

Their lengths are known on the device alone: the host sizes the table of tiles for the worst case,
and says how many rounds of it are sorted together.
"""

from __future__ import annotations

from rooftile.plan.schedule_hopper import Q_BYTES

# More of L2 than where the host deals tiles: three rounds sorted together, 26 MB of K and V at 128
# columns, leave blocks nearer to each other than two, by 1 % as counted; not timed
_KV_BYTES = 26e6
_MOST_ROUNDS = 4


def most_tiles(tokens: int, sequences: int, rows: int, heads: int) -> int:
    """Tiles of all heads at most, wherever the sequences end; rows after the last are one more."""
    return (tokens // rows + sequences + 1) * heads


def table_rounds(tiles: int, blocks: int, dealt: bool) -> int:
    """Rounds of the table: a tile for each block; dealt, one more, for the kernels read ahead."""
    return -(-tiles // blocks) + dealt


def sorted_rounds(
    rows: int, width: int, group: int, blocks: int, of_keys: bool, dealt: bool
) -> int:
    """Rounds whose tiles are sorted together, at least; up to twice as many but one are.

    As many as leave the other side's operands in L2, but few, for tiles are compared with each
    other. Of the forward, two at least: a block's long tile of one is made up for in the next.

    Args:
        rows: Queries or keys of a tile.
        width: Columns of a tile.
        group: Query heads that share a key head.
        blocks: Blocks at a time.
        of_keys: Tiles are of keys, the other side Q, dO and sums of dQ; else K and V.
        dealt: Whether blocks take tile after tile; else each takes one.
    """
    tile = rows * width * (8 * group if of_keys else 4 / group)
    fit = (Q_BYTES if of_keys else _KV_BYTES) // (blocks * tile)
    least = 2 if dealt and not of_keys else 1
    return int(min(max(least, fit), _MOST_ROUNDS if dealt else 1))
