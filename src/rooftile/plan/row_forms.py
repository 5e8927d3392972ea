"""What a launch of a row kernel has, and the forms that plans are made of."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
# 65,536 bytes of row a program: past it two programs no longer fit the registers of an SM
TILE_BYTES = 65536


@dataclass(frozen=True, slots=True)
class RowLaunch:
    """How a row-wise kernel is launched.

    Attributes:
        kind: ``"tile"``, ``"loop"``, ``"cluster"``, ``"resident"`` or ``"flat"``.
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


def tile(block: int, size: int) -> RowLaunch:
    """Whole rows in registers, 4 accesses of 16 bytes a thread, at most 16 warps."""
    if size <= 8192:
        return RowLaunch("tile", max(1, 8192 // size), block, 4)
    return RowLaunch("tile", 1, block, min(16, size // 2048))


def cluster_of(
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


def staying(
    block: int, itemsize: int, part_bytes: int, clusters: int, num_warps: int, rows_ahead: int,
    per_sm: int = 1, line_bytes: int = 16,
) -> RowLaunch:  # fmt: skip
    """Clusters that stay on the SMs. Without rows ahead in shared memory one is, in registers."""
    part_bytes = min(part_bytes, 65536 if clusters > 8 else 16384)
    cluster = min(clusters, max(1, block * itemsize // part_bytes))
    return RowLaunch(
        "resident", 1, block // cluster, num_warps, num_stages=rows_ahead, cluster=cluster,
        programs_per_sm=per_sm, max_registers=min(255, 2048 // (num_warps * per_sm)),
        line_bytes=line_bytes,
    )  # fmt: skip


def resident(
    block: int, itemsize: int, clusters: int, num_warps: int, part_bytes: int = 32768
) -> RowLaunch:
    """Parts of so many bytes, of at most 16 KiB where a program has 99 KiB of shared memory.

    Small parts leave room for rows ahead, and with few warps for two programs an SM.
    """
    part_bytes = min(part_bytes, 32768 if clusters > 8 else 16384)
    cluster = min(clusters, max(1, block * itemsize // part_bytes))
    per_sm = 2 if num_warps == 8 and part_bytes == 16384 and clusters > 8 else 1
    return RowLaunch(
        "resident", 1, block // cluster, num_warps, num_stages=8, cluster=cluster,
        programs_per_sm=per_sm, max_registers=min(255, 2048 // (num_warps * per_sm)), line_bytes=16,
    )  # fmt: skip


def shared(block: int, itemsize: int, part_bytes: int, clusters: int) -> RowLaunch:
    """Parts of at most ``part_bytes`` where clusters allow it; 64 bytes of a row a thread."""
    cluster = min(clusters, max(1, block * itemsize // part_bytes))
    part = block // cluster
    num_warps = min(32, max(4, part * itemsize // 2048))
    return RowLaunch(
        "cluster", 1, part, num_warps, cluster=cluster, packed=itemsize == 2, max_registers=64
    )


def staying_registers(block: int, cluster: int, num_warps: int, per_sm: int) -> RowLaunch:
    """A cluster whose warps keep their columns of all rows in registers, two rows ahead."""
    return RowLaunch(
        "cluster", 1, block // cluster, num_warps, num_stages=2, cluster=cluster, packed=True,
        programs_per_sm=per_sm, max_registers=min(255, 2048 // (num_warps * per_sm)), line_bytes=16,
    )  # fmt: skip
