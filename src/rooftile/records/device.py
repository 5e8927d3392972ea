"""A GPU's figures, each with its source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a datasheet.

    Attributes:
        value: In the unit of the field that holds it; None where the hardware has no such thing
            or nobody published it.
        source: Where it stands, in words.
        confidence: ``"A"`` read off a device or a vendor's file, ``"B"`` quoted from the vendor,
            ``"C"`` derived or recalled, ``"D"`` unofficial, ``"user"`` given by the user.
    """

    value: float | None
    source: str = ""
    confidence: str = ""


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """One level of the memory hierarchy, for the whole device.

    Attributes:
        name: ``"registers"``, ``"shared memory"``, ``"L2"`` or ``"HBM"`` (or GDDR, LPDDR).
        capacity_bytes: Of all units together.
        bandwidth_bytes_per_s: Peak rate, None where neither known nor derivable.
        source: Where both figures come from, in words; says "derived" where they are.
    """

    name: str
    capacity_bytes: int | None
    bandwidth_bytes_per_s: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as the roofline sees it.

    Attributes:
        id: Short name: ``"h100-sxm"``.
        name: Full name: ``"H100 SXM5 80 GB"``.
        vendor: ``"NVIDIA"``, ``"AMD"``, ``"Intel"`` or ``"user"``.
        target: Compiler target: ``"sm_90"``, ``"gfx942"``; "" where there is none.
        peaks: Dense peak of each math key [FLOP/s] (``"fp32"``, ``"bf16"``, ``"tf32"``, ...).
        bandwidth: Of device memory [B/s].
        memory_bytes: Capacity of device memory [B].
        l2_bytes: Capacity of the last-level cache [B].
        units: SMs or CUs.
        launch_s: Least time of one kernel [s].
        hierarchy: Memory levels from the registers outward.
        aliases: Names that drivers and people use.
        notes: What to know before trusting a figure.
        kind: Tells this record's JSON from others.
    """

    id: str
    name: str
    vendor: str
    target: str
    peaks: dict[str, Figure]
    bandwidth: Figure
    memory_bytes: Figure
    l2_bytes: Figure
    units: Figure
    launch_s: Figure
    hierarchy: tuple[MemoryLevel, ...] = ()
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    kind: Literal["rooftile.device"] = "rooftile.device"
    schema_version: int = SCHEMA_VERSION
