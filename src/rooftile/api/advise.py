"""What to do about each op of a priced step: ``rooftile.advise(...)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rooftile.records.device import Device
    from rooftile.records.estimate import Estimate
    from rooftile.records.plan import Plan
    from rooftile.records.whatif import WhatIf

HOT_SHARE = 0.01


def advise(estimate: Estimate, *, hot_share: float = HOT_SHARE) -> Plan:
    """Say which ops may share a kernel, what that saves, and what to do about each op.

    ``rooftile.advise(rooftile.audit("model.py:make"))``. Nothing is loaded but the standard
    library, and 8,000 ops take under a second.

    Args:
        estimate: What :func:`rooftile.audit` gives.
        hot_share: Share of the step's least time, 0 to 1, from which ops that one kernel would
            serve count as hot.

    Returns:
        Fusion groups with their traffic before and after, named refusals, and a verdict for every
        op that launches a kernel: LEAVE IT, USE LIBRARY, AUTO-FUSE or HAND-WRITE.

    Raises:
        InputError: ``hot_share`` is no share.
    """
    from rooftile.plan.decide import decide

    return decide(estimate, hot_share=hot_share)


def what_if(
    estimate: Estimate, gpus: Sequence[str | Device], *, hot_share: float = HOT_SHARE
) -> WhatIf:
    """Say where the verdict on an op flips from one GPU to another.

    The step is captured once; ``rooftile.what_if(rooftile.audit("m.py:make"), ["h100-sxm", "l4"])``
    prices it on each.

    Args:
        estimate: What :func:`rooftile.audit` gives, on whatever GPU.
        gpus: Names, JSON files or records; at least one.
        hot_share: As for :func:`advise`, on each GPU's own step.

    Raises:
        InputError: No GPU is named, or one has no peak for a dtype of the step.
        UnknownDeviceError: No GPU has that name.
    """
    from rooftile.api.device import choose_device
    from rooftile.cost.graph import estimate as price
    from rooftile.errors import InputError
    from rooftile.plan.decide import decide
    from rooftile.plan.whatif import what_if as compare

    if not gpus:
        raise InputError("gpus must name at least one GPU, got none")
    devices = [choose_device(gpu) for gpu in gpus]
    plans = [decide(price(estimate.graph, device), hot_share=hot_share) for device in devices]
    return compare(plans)


def check_hot_share(hot_share: float) -> None:
    """Refuse a threshold that is no share, before any work is done for it.

    Raises:
        InputError: It is not from 0 to 1.
    """
    from rooftile.errors import InputError

    if not 0 <= hot_share <= 1:
        raise InputError(f"hot_share must be from 0 to 1, got {hot_share}")


def check_gpus(gpu: str | None, **single: str | None) -> list[str]:
    """Several GPUs out of a list with commas, refused before any work where they cannot be.

    Args:
        gpu: Names or files, parted by commas, or None.
        **single: Options that are for one GPU alone, by name; None where not given.

    Returns:
        The GPUs where there are several; else nothing.

    Raises:
        InputError: A name is empty or stands twice, or an option is for one GPU alone.
        UnknownDeviceError: No GPU has that name.
    """
    from rooftile.api.device import choose_device
    from rooftile.errors import InputError

    if gpu is None or "," not in gpu:
        return []
    names = [name.strip() for name in gpu.split(",")]
    if not all(names):
        raise InputError(f"gpu must be names parted by commas, got {gpu!r}")
    given = [f"--{name}" for name, value in single.items() if value is not None]
    if given:
        raise InputError(f"{' and '.join(given)} must be for one GPU, got {len(names)}: {gpu}")
    ids = [choose_device(name).id for name in names]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise InputError(f"gpu must name each once, got {', '.join(twice)} twice")
    return names
