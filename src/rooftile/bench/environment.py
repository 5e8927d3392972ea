"""What a run stands on: device, driver, versions, clocks under load."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib import metadata, util

import torch

from rooftile.bench.peers import versions
from rooftile.errors import UnknownDeviceError
from rooftile.records.device import Device
from rooftile.records.measurement import Environment
from rooftile.spec import devices

_QUERY = ("driver_version", "clocks.sm", "clocks.mem", "power.limit")
_LOAD_BYTES, _LOAD_COPIES = 2**30, 1000  # half a second of copies at 4 TB/s, while clocks are read

Smi = Callable[[], str]


def environment(device: str = "cuda", smi: Smi | None = None) -> Environment:
    """Describe the device and the software, with clocks read under load.

    Args:
        device: ``"cuda"`` or ``"cuda:1"``; ``"cpu"`` for a check of results alone.
        smi: Gives driver, clocks and power limit as ``nvidia-smi`` does; None asks it.
    """
    gpu = device.startswith("cuda")
    name, units, l2_bytes, memory_bytes = _properties(device) if gpu else ("cpu", 0, 0, 0)
    driver, sm, memory, power = (
        _under_load(device, smi or partial(_nvidia_smi, device)) if gpu else ("",) * 4
    )
    return Environment(
        gpu=name,
        gpu_id=_gpu_id(name) if gpu else "",
        driver=driver,
        cuda=str(torch.version.cuda or getattr(torch.version, "hip", None) or ""),
        torch=str(torch.__version__),
        triton=_version("triton"),
        python=platform.python_version(),
        rooftile=_version("rooftile"),
        peers=versions(),
        units=units,
        l2_bytes=l2_bytes,
        memory_bytes=memory_bytes,
        sm_clock_mhz=_number(sm),
        memory_clock_mhz=_number(memory),
        power_limit_w=_number(power),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def datasheet(environment: Environment) -> Device | None:
    """The GPU's figures; None for one in no table."""
    return devices.device(environment.gpu_id) if environment.gpu_id else None


def _properties(device: str) -> tuple[str, int, int, int]:
    found = torch.cuda.get_device_properties(device)
    return (
        str(found.name),
        int(found.multi_processor_count),
        int(found.L2_cache_size),
        int(found.total_memory),
    )


def _gpu_id(name: str) -> str:
    try:
        return devices.device(name).id
    except UnknownDeviceError:
        return ""  # its ratios to the datasheet are then left out, and the record says why


def _under_load(device: str, smi: Smi) -> tuple[str, ...]:
    """Driver, clocks and power limit while copies run."""
    source = torch.ones(_LOAD_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    for _ in range(_LOAD_COPIES):
        target.copy_(source)
    words = [word.strip() for word in smi().strip().split("\n")[0].split(",")]
    torch.cuda.synchronize()
    return tuple(words) if len(words) == len(_QUERY) else ("",) * len(_QUERY)


def _nvidia_smi(device: str) -> str:
    """Its answer for that GPU, whatever number it has in this process; "" on a machine without."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if uuid is not None:
        command += ["-i", f"GPU-{uuid}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""  # an AMD GPU, or no such tool: clocks stay unknown


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # "[N/A]", or nothing was read


def _version(package: str) -> str:
    """The version of an installed package; of this one also where it runs from its sources."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "" if util.find_spec(package) is None else "source"
