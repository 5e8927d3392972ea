"""What `torch.cuda` says and does on a machine without a GPU, while a capture runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _device

from rooftile.capture.notes import note

# a Hopper: the newest that most code asks about
_CAPABILITY = (9, 0)
_NOTHING = """
empty_cache init ipc_collect manual_seed manual_seed_all reset_accumulated_memory_stats
reset_max_memory_allocated reset_peak_memory_stats seed seed_all set_device set_stream synchronize
"""
_MARKS = ("mark", "range_start", "range_end", "range_push", "range_pop")  # of torch.cuda.nvtx
_ZERO = """
current_device max_memory_allocated max_memory_reserved memory_allocated memory_reserved
"""


class _Inert:
    """A stream or an event: it can be recorded, awaited and entered, and has no time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.cuda_stream = 0
        self.device = torch.device("cpu")

    def _self(self, *args: Any, **kwargs: Any) -> Any:
        return self

    record = record_event = wait = wait_event = wait_stream = synchronize = __enter__ = _self

    def query(self) -> bool:
        """Nothing is left to wait for."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """No time passes."""
        return 0.0

    def __exit__(self, *error: Any) -> None:
        return None


def _properties(device: Any = None) -> SimpleNamespace:
    note("asked for the GPU's properties: those of an H100 SXM were told")
    major, minor = _CAPABILITY
    return SimpleNamespace(
        name="NVIDIA H100 80GB HBM3",
        major=major,
        minor=minor,
        multi_processor_count=132,
        warp_size=32,
        total_memory=80 << 30,
    )


def _name(device: Any = None) -> str:
    return str(_properties().name)


def _capability(device: Any = None) -> tuple[int, int]:
    note(f"asked for the GPU's compute capability: {_CAPABILITY[0]}.{_CAPABILITY[1]} was told")
    return _CAPABILITY


class _AnyGenerator(type):
    """Torch's own generators are instances of the stand-in too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _GENERATOR)


_GENERATOR = torch.Generator


class _Generator(metaclass=_AnyGenerator):
    """Makes a generator of the CPU whatever device is named."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _GENERATOR("cpu")


def _stand_ins() -> dict[str, Callable[..., Any]]:
    nothing: dict[str, Callable[..., Any]]
    nothing = {name: lambda *args, **kwargs: None for name in _NOTHING.split()}
    zero: dict[str, Callable[..., Any]]
    zero = {name: lambda *args, **kwargs: 0 for name in _ZERO.split()}
    classes = ("Event", "Stream", "ExternalStream", "current_stream", "default_stream", "stream")
    inert: dict[str, Callable[..., Any]] = dict.fromkeys((*classes, "device"), _Inert)
    asked: dict[str, Callable[..., Any]] = {
        "get_device_capability": _capability,
        "get_device_name": _name,
        "get_device_properties": _properties,
    }
    return {**nothing, **zero, **inert, **asked}


@contextmanager
def absent_gpu(cpu: Callable[[Any], Any]) -> Iterator[None]:
    """Answer for a GPU that is not there, while it lasts; where there is one, it answers itself.

    Args:
        cpu: Makes a device that is not there the CPU.
    """
    context: Any = _device.DeviceContext
    original_init = context.__init__
    replaced: list[tuple[Any, str, Any]] = []
    if not torch.cuda.is_available():
        replaced = [(torch.cuda, name, getattr(torch.cuda, name)) for name in _stand_ins()]
    if replaced:
        replaced += [(torch.cuda.nvtx, name, getattr(torch.cuda.nvtx, name)) for name in _MARKS]
    replaced.append((torch, "Generator", torch.Generator))
    marks = dict.fromkeys(_MARKS, lambda *args, **kwargs: None)
    stand_ins = {**_stand_ins(), **marks, "Generator": _Generator}
    try:
        for owner, name, _ in replaced:
            setattr(owner, name, stand_ins[name])
        context.__init__ = lambda self, device: original_init(self, cpu(device))
        yield
    finally:
        context.__init__ = original_init
        for owner, name, original in replaced:
            setattr(owner, name, original)
