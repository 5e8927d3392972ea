"""A chain of ops as text."""

from __future__ import annotations

from rooftile import units
from rooftile.records.chain import Chain
from rooftile.report.columns import Line, pairs


def chain_lines(chain: Chain) -> list[Line]:
    """Traffic before and after, and what is saved."""
    kernels = "1 kernel" if chain.ops == 1 else f"{units.count(chain.ops)} kernels"
    before = f"{kernels}, {_bytes(chain.unfused_bytes)}"
    after = f"1 kernel, {_bytes(chain.fused_bytes)}"
    if chain.unfused_s is not None and chain.fused_s is not None:
        before += f", {units.seconds(chain.unfused_s)} at least"
        after += f", {units.seconds(chain.fused_s)} at least"
    saved = f"{_bytes(chain.saved_bytes)}, "
    saved += f"{units.percent(chain.saved_bytes, chain.unfused_bytes)}, "
    saved += f"{chain.times_less:.4g} times less"
    rows = [
        ("chain", f"{units.count(chain.elements)} elements of {chain.dtype}"),
        *([("GPU", chain.gpu)] if chain.gpu else []),
        ("unfused", before),
        ("fused", after),
        ("saved", saved),
    ]
    return pairs(rows)


def _bytes(value: int) -> str:
    gib = f"{value / 2**30:.4g} GiB" if value >= 2**27 else units.capacity(value)
    return f"{units.count(value)} bytes ({gib})"
