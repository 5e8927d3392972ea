"""The GPUs that Rooftile knows: ``rooftile.gpus()``, ``rooftile.gpu("h100-sxm")``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooftile.records.device import Device


def gpus() -> tuple[Device, ...]:
    """All known GPUs, each figure with its source and confidence.

    Returns:
        One Device a GPU: dense peaks [FLOP/s], bandwidth [B/s], memory levels.
    """
    from rooftile.spec.devices import devices

    return devices()


def gpu(name: str | Path) -> Device:
    """One GPU by its id, its full name or the name its driver gives.

    Args:
        name: ``"h100-sxm"``, ``"H100 SXM5 80 GB"``, ``"NVIDIA H100 80GB HBM3"``, ...: case and
            punctuation do not matter; or the path of a JSON file, which ends in ``.json``: of
            figures (``rooftile.spec.custom`` shows the format), or a Device that was written.

    Returns:
        The GPU.

    Raises:
        UnknownDeviceError: No GPU has that name. The message lists near ones.
        FileFormatError: The file is no description of a GPU.
    """
    from rooftile.api.device import choose_device

    return choose_device(str(name))
