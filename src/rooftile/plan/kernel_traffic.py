"""What a grid of a compiled kernel can move, from its binary, beside what a formula says."""

from __future__ import annotations

from collections.abc import Mapping

from rooftile.errors import InputError
from rooftile.records.resources import KernelResources, MemoryAccess, Traffic

# A row read twice and written once is 1.5 of once and once; masks of a padded block can double it
TOO_MUCH = 1.4
NARROW_BYTES = 4


def traffic(
    kernel: KernelResources,
    blocks: int,
    *,
    trips: Mapping[int, int] | None = None,
    formula_bytes: float | None = None,
) -> Traffic:
    """The bytes that a grid's loads and stores can move.

    Args:
        kernel: A compiled kernel.
        blocks: Blocks of the grid, as it is launched: clusters where ``num_ctas`` is above 1.
        trips: Loop number to how often its body runs in a block; loops without one are given per
            iteration.
        formula_bytes: What must move [B], from a formula of the op.

    Raises:
        InputError: ``blocks`` is not positive, or a loop is not there.
    """
    if blocks < 1:
        raise InputError(f"blocks must be 1 or more, got {blocks}")
    if formula_bytes is not None and formula_bytes <= 0:
        raise InputError(f"formula_bytes must be above 0, got {formula_bytes:g}")
    blocks *= _cluster(kernel)
    times = dict(trips or {})
    for loop, count in times.items():
        if not 1 <= loop <= kernel.loops or count < 0:
            raise InputError(
                f"trips must give a loop of 1 to {kernel.loops} and how often it runs, got"
                f" {loop}={count}"
            )
    lanes = blocks * kernel.threads
    loaded = stored = 0
    open_loops: dict[int, tuple[int, int]] = {}
    for access in kernel.accesses:
        size = access.width_bytes * access.count * lanes
        reads = size if access.kind in ("load", "copy to shared") else 0
        if access.loop and access.loop not in times:
            before = open_loops.get(access.loop, (0, 0))
            open_loops[access.loop] = (before[0] + reads, before[1] + size - reads)
            continue
        factor = times[access.loop] if access.loop else 1
        loaded += reads * factor
        stored += (size - reads) * factor
    known = not open_loops and all(access.width_bytes for access in kernel.accesses)
    ratio = (loaded + stored) / formula_bytes if formula_bytes and known else None
    return Traffic(
        kernel=kernel.kernel,
        target=kernel.target,
        blocks=blocks,
        threads=kernel.threads,
        loaded_bytes=loaded,
        stored_bytes=stored,
        per_iteration=open_loops,
        formula_bytes=formula_bytes,
        ratio=ratio,
        widths=(kernel.load_width_bytes, kernel.store_width_bytes),
        flags=tuple(_flags(kernel, ratio)),
    )


def _cluster(kernel: KernelResources) -> int:
    """Blocks of a cluster: a grid counts clusters, the binary is of one block."""
    ctas = kernel.options.get("num_ctas", 1)
    return ctas if isinstance(ctas, int) else 1


def _flags(kernel: KernelResources, ratio: float | None) -> list[str]:
    """What a reader should look at."""
    flags = []
    if ratio is not None and ratio > TOO_MUCH:
        flags.append(
            f"moves {ratio:.2f} times the formula's bytes: something is read or written more than"
            " once, or much of a block is padding"
        )
    if ratio is not None and ratio < 0.99:
        flags.append(
            f"can move only {ratio:.2f} of the formula's bytes: the grid, the trip counts or the"
            " formula are not this kernel's"
        )
    for name, accesses in (("loads", kernel.loads), ("stores", _stores(kernel))):
        widest = max((access.width_bytes for access in accesses), default=0)
        if 0 < widest < NARROW_BYTES:
            flags.append(
                f"{widest}-byte {name}: strides or lengths are not known to be multiples of 16"
            )
    if kernel.spills:
        flags.append(
            f"each thread spills {kernel.spill_store_bytes} B and reads {kernel.spill_load_bytes} B"
            " back: not counted here, it adds to the traffic where the L1 does not hold it"
        )
    if any(not access.width_bytes for access in kernel.accesses):
        flags.append("bulk copies: their size is in a descriptor, not in the binary")
    return flags


def _stores(kernel: KernelResources) -> tuple[MemoryAccess, ...]:
    return tuple(access for access in kernel.accesses if access.kind == "store")
