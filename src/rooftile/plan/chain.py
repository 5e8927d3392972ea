"""The plain formula of fusion: a chain of pointwise ops over one tensor.

Each op of the chain reads the tensor and writes it: ``2 * ops * elements * itemsize`` bytes. One
kernel reads the first and writes the last: ``2 * elements * itemsize``.
"""

from __future__ import annotations

from rooftile.cost.roofline import times
from rooftile.errors import InputError
from rooftile.records.chain import Chain
from rooftile.records.cost import Cost
from rooftile.records.device import Device
from rooftile.spec.dtypes import dtype as known


def chain_traffic(elements: int, ops: int, dtype: str, device: Device | None = None) -> Chain:
    """What a chain moves unfused and fused.

    Args:
        elements: Of the tensor, at least 0.
        ops: Of the chain, at least 1.
        dtype: Of the elements.
        device: For least times; None: bytes alone.

    Raises:
        InputError: A number is out of range, or the dtype is not known.
    """
    if elements < 0:
        raise InputError(f"elements must be at least 0, got {elements}")
    if ops < 1:
        raise InputError(f"ops must be at least 1, got {ops}")
    found = known(dtype)
    size = elements * found.itemsize
    unfused_s = fused_s = None
    if device is not None:
        fused_s = times(Cost(read_bytes=size, write_bytes=size), device).least_s
        unfused_s = ops * fused_s
    return Chain(
        elements=elements,
        ops=ops,
        dtype=found.name,
        unfused_bytes=2 * ops * size,
        fused_bytes=2 * size,
        gpu="" if device is None else device.id,
        unfused_s=unfused_s,
        fused_s=fused_s,
    )
