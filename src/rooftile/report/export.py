"""What a bundle holds, as text."""

from __future__ import annotations

from rooftile.records.manifest import ExportedKernel, Manifest
from rooftile.report.columns import Column, Line, align

_COLUMNS = (
    Column("kernel"),
    Column("bytes", "right"),
    Column("registers", "right"),
    Column("shared B", "right"),
    Column("threads", "right"),
    Column("grid"),
    Column("sizes"),
)


def bundle_lines(manifest: Manifest) -> list[Line]:
    """One line a kernel."""
    return align(_COLUMNS, [_row(kernel) for kernel in manifest.kernels])


def _row(kernel: ExportedKernel) -> list[str]:
    file = kernel.binary or kernel.ptx
    limits = [
        f"{size.name} {size.least} to {size.most or 'any'}"
        + (f" by {size.multiple_of}" if size.multiple_of > 1 else "")
        for size in kernel.sizes
        if size.least > 1 or size.most
    ]
    shared = kernel.dynamic_shared_bytes + kernel.static_shared_bytes
    return [
        kernel.symbol + ("" if kernel.binary else " (PTX)"),
        f"{file.bytes:,}" if file else "",
        str(kernel.registers),
        f"{shared:,}",
        f"{kernel.threads}" + (f" x {kernel.cluster}" if kernel.cluster > 1 else ""),
        _grid(kernel.grid),
        ", ".join(limits),
    ]


def _grid(grid: tuple[str, ...]) -> str:
    """Extents up to the last that is not 1."""
    shown = list(grid)
    while len(shown) > 1 and shown[-1] == "1":
        shown.pop()
    return " x ".join(shown) or "given"
