"""Where kernels can run, and the one place that launches them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import triton
from torch import Tensor

from rooftile.errors import InputError
from rooftile.plan.launch import RowLaunch

INTERPRETED: bool = triton.knobs.runtime.interpret
# ROCm devices are of type "cuda" in PyTorch too. The interpreter runs kernels on CPU tensors.
DEVICES = ("cuda", "xpu")
_HOPPER = (9, 0)


@lru_cache(maxsize=64)
def sm_count(device: torch.device) -> int:
    """Multiprocessors (compute units) of a device; 2 under the interpreter."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    if device.type == "xpu":
        return int(torch.xpu.get_device_properties(device).gpu_subslice_count)
    return 2


@lru_cache(maxsize=64)
def has_clusters(device: torch.device) -> bool:
    """Whether blocks of a cluster can write each other's shared memory: NVIDIA's Hopper and on."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= _HOPPER


@lru_cache(maxsize=64)
def architecture(device: torch.device) -> str:
    """The compiler's target for a device: "sm_90", "gfx942", "xpu"; "interpreted" on a CPU."""
    if device.type == "cuda" and torch.version.hip is not None:
        return str(torch.cuda.get_device_properties(device).gcnArchName).split(":")[0]
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"sm_{major}{minor}"
    return "interpreted" if device.type == "cpu" else device.type


@lru_cache(maxsize=64)
def is_nvidia(device: torch.device) -> bool:
    """Whether a kernel may hold inline PTX."""
    return device.type == "cuda" and torch.version.hip is None


def compiler_options(plan: RowLaunch, device: torch.device) -> dict[str, int]:
    """What a plan asks of the compiler of a device."""
    if plan.max_registers and is_nvidia(device):
        return {"num_warps": plan.num_warps, "maxnreg": plan.max_registers}
    return {"num_warps": plan.num_warps}


def stays_packed(plan: RowLaunch, width: int, device: torch.device) -> bool:
    """Whether a tile stays as loaded: vectors of 16-bit elements, on a GPU with inline PTX."""
    return plan.packed and width > 1 and is_nvidia(device)


def launch(
    kernel: Any, grid: tuple[int, ...], device: torch.device, *args: Any, **meta: Any
) -> None:
    """Launch a kernel on the device that holds its tensors; an empty grid launches nothing."""
    if 0 in grid:
        return
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            kernel[grid](*args, **meta)
    else:
        kernel[grid](*args, **meta)


def register(name: str, schema: str, function: Callable[..., Any]) -> Any:
    """Define a torch op and its implementation on every device that can run kernels.

    Args:
        name: Of the op, without the namespace.
        schema: Arguments and results in torch's schema language.
        function: Launches the kernels.

    Returns:
        The op's default overload.
    """
    torch.library.define(f"rooftile::{name}", schema)
    torch.library.impl(f"rooftile::{name}", DEVICES, function)
    torch.library.impl(f"rooftile::{name}", "cpu", function if INTERPRETED else _refuse_cpu(name))
    return getattr(torch.ops.rooftile, name).default


def _refuse_cpu(name: str) -> Callable[..., Tensor]:
    def refuse(*_: Any) -> Tensor:
        raise InputError(
            f"input of {name} must be on a GPU, got cpu; to interpret kernels on the CPU, set "
            "TRITON_INTERPRET=1 in the environment before triton is imported"
        )

    return refuse
