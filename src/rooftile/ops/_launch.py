"""Where kernels can run, and the one place that launches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton

from rooftile.errors import InputError
from rooftile.ops._op import Op
from rooftile.ops._replay import Launch, recorder
from rooftile.plan.launch import RowLaunch

INTERPRETED: bool = triton.knobs.runtime.interpret
# ROCm devices are of type "cuda" in PyTorch too. The interpreter runs kernels on CPU tensors.
DEVICES = ("cuda", "xpu")
_HOPPER, _BLACKWELL = 9, 10


class Planned(NamedTuple):
    """A GPU that is not there, for which tensors on the CPU stand in."""

    arch: str
    sms: int

    @property
    def nvidia(self) -> bool:
        """Whether NVIDIA makes it."""
        return self.arch.startswith("sm_")


_planned: Planned | None = None


@contextmanager
def planned_for(gpu: Planned) -> Iterator[None]:
    """Plan launches on CPU tensors as for a GPU. Nothing can be launched meanwhile: what calls this
    records launches instead of doing them."""
    global _planned
    before, _planned = _planned, gpu
    try:
        yield
    finally:
        _planned = before


def sm_count(device: torch.device) -> int:
    """Multiprocessors (compute units) of a device; 2 under the interpreter."""
    return _planned.sms if _planned and device.type == "cpu" else _sm_count(device)


def max_cluster(device: torch.device) -> int:
    """Blocks of the largest cluster, which write each other's shared memory; 0 where there is none.

    8 on NVIDIA's Hopper and on; its datacentre GPUs run 16.
    """
    if _planned and device.type == "cpu":
        return _cluster_of(int(_planned.arch[3:]) // 10) if _planned.nvidia else 0
    return _max_cluster(device)


def _cluster_of(major: int) -> int:
    if major < _HOPPER:
        return 0
    return 16 if major in (_HOPPER, _BLACKWELL) else 8


def architecture(device: torch.device) -> str:
    """The compiler's target for a device: "sm_90", "gfx942", "xpu"; "interpreted" on a CPU."""
    return _planned.arch if _planned and device.type == "cpu" else _architecture(device)


def is_nvidia(device: torch.device) -> bool:
    """Whether a kernel may hold inline PTX."""
    if _planned and device.type == "cpu":
        return _planned.nvidia
    return _is_nvidia(device)


@lru_cache(maxsize=64)
def _sm_count(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    if device.type == "xpu":
        return int(torch.xpu.get_device_properties(device).gpu_subslice_count)
    return 2


@lru_cache(maxsize=64)
def _max_cluster(device: torch.device) -> int:
    if device.type != "cuda" or torch.version.hip is not None:
        return 0
    return _cluster_of(torch.cuda.get_device_capability(device)[0])


@lru_cache(maxsize=64)
def _architecture(device: torch.device) -> str:
    if device.type == "cuda" and torch.version.hip is not None:
        return str(torch.cuda.get_device_properties(device).gcnArchName).split(":")[0]
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"sm_{major}{minor}"
    return "interpreted" if device.type == "cpu" else device.type


@lru_cache(maxsize=64)
def _is_nvidia(device: torch.device) -> bool:
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
            compiled = kernel[grid](*args, **meta)
    else:
        compiled = kernel[grid](*args, **meta)
    if recorder.launches is not None:
        values = [*args, *(meta[name] for name in kernel.arg_names[len(args) :])]
        recorder.launches.append(Launch(compiled, grid, values))


def register(name: str, schema: str, function: Callable[..., Any], replays: bool = False) -> Any:
    """Define a torch op and its implementation on every device that can run kernels.

    Args:
        name: Of the op, without the namespace.
        schema: Arguments and results in torch's schema language.
        function: Launches the kernels.
        replays: Whether launching is all that it does with a tensor's values; then a call like one
            before is made again without the dispatcher.

    Returns:
        The op: torch's default overload, or an ``Op`` around it.
    """
    torch.library.define(f"rooftile::{name}", schema)
    torch.library.impl(f"rooftile::{name}", DEVICES, function)
    on_cpu = function if INTERPRETED else _planned_alone(name, function)
    torch.library.impl(f"rooftile::{name}", "cpu", on_cpu)
    overload = getattr(torch.ops.rooftile, name).default
    return Op(function, overload) if replays else overload


def _planned_alone(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """On the CPU kernels can be planned, not run."""

    def plan(*args: Any) -> Any:
        if _planned is not None:
            return function(*args)
        raise InputError(
            f"input of {name} must be on a GPU, got cpu; to interpret kernels on the CPU, set "
            "TRITON_INTERPRET=1 in the environment before triton is imported"
        )

    return plan
