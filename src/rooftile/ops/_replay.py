"""Calls of an op made again with little work on the host.

An op's launches depend on its tensors' shapes, strides, dtypes, device and alignment and on its
other arguments, not on what the tensors hold. So the first call with a set of them records what
was launched, and later calls launch the same compiled kernels on their own tensors: without torch's
dispatcher, the planning and Triton's look-up, which together take several times the launch.

Only what is sure to be the same is made again: plain tensors, no mode of torch that wants to see
the op, no launch parameter overridden, and no kernel that reads anything but the call's own tensors
and those that ``empty`` made for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from rooftile.plan.launch import overridden

MOST_CALLS = 4096  # sets of arguments remembered of one op
ALIGNMENT = 127  # plans look at addresses modulo 32, Triton modulo 16


def _allocator() -> Callable[..., Tensor]:
    """What makes a tensor from shape, strides and dtype on the current GPU, without values.

    torch's compiler has one of its own, which takes a third of the time of ``torch.empty``.
    """
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, "_empty_strided_cuda", None)
    return quick or partial(_empty_strided, device="cuda")


def _empty_strided(shape: Any, stride: Any, dtype: torch.dtype, device: str) -> Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device=device)


new_tensor = _allocator() if torch.version.cuda else partial(_empty_strided, device="cuda")
device_of = Tensor.get_device  # -1 on a CPU
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0)
PLAIN = frozenset((Tensor, Parameter))


class Launch(NamedTuple):
    """A kernel that was launched: compiled, its grid, the values of its parameters."""

    compiled: Any
    grid: tuple[int, ...]
    values: list[Any]


class Recorder(threading.local):
    """What the op that runs in this thread has launched and made; None where nobody asks.

    ``replays`` are the calls that can be made again, with their tensors and results.
    """

    launches: list[Launch] | None = None
    made: list[Tensor]
    replays: list[tuple[Replay, list[Tensor], Any]] | None = None


recorder = Recorder()


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor without values, for an op's results and for what its kernels hand on."""
    t = torch.empty(shape, dtype=dtype, device=device)
    if recorder.launches is not None:
        recorder.made.append(t)
    return t


class _Step(NamedTuple):
    """A launch to make again; ``pick`` takes its parameters out of all addresses and numbers."""

    run: Callable[..., None]
    function: Any
    metadata: Any
    grid: tuple[int, int, int]
    pick: Callable[[list[Any]], tuple[Any, ...]]


class Replay(NamedTuple):
    """A recorded call: tensors to make, launches, and which of the tensors are its results."""

    device: int
    made: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    steps: tuple[_Step, ...]
    numbers: list[Any]
    results: int | tuple[int, ...] | None

    def __call__(self, addresses: list[int]) -> Any:
        """Launch on tensors at other addresses."""
        made = [new_tensor(*layout) for layout in self.made]
        values = [*addresses, *[t.data_ptr() for t in made], *self.numbers]
        stream = current_stream(self.device)
        for run, function, metadata, grid, pick in self.steps:
            run(*grid, stream, function, metadata, None, None, None, *pick(values))
        if self.results is None:
            return None
        if isinstance(self.results, int):
            return made[self.results]
        return tuple([made[i] for i in self.results])


class Op:
    """A torch op that remembers its calls.

    Args:
        function: Makes the op's results and launches its kernels.
        overload: The op as torch knows it, for calls that torch must see.
    """

    def __init__(self, function: Callable[..., Any], overload: Any) -> None:
        self.function = function
        self.overload = overload
        self.calls: dict[tuple[Any, ...], Replay] = {}

    def __call__(self, *args: Any) -> Any:
        """Call the op on positional arguments."""
        if torch.compiler.is_compiling() or type(args[0]) not in PLAIN or not unobserved():
            return self.overload(*args)
        device = device_of(args[0])
        if device < 0 or device != current_device():
            return self.overload(*args)
        key: list[Any] = [device]
        addresses: list[int] = []
        for value in args:
            if type(value) in PLAIN:
                address = value.data_ptr()
                if device_of(value) != device or not address or value.is_neg():
                    return self.overload(*args)
                addresses.append(address)
                key += value.shape, value.stride(), value.dtype, address & ALIGNMENT
            elif isinstance(value, Tensor):
                return self.overload(*args)
            else:
                key.append(value)
        replay = self.calls.get(tuple(key))
        if replay is not None:
            result = replay(addresses)
            if recorder.replays is not None:
                tensors = [value for value in args if isinstance(value, Tensor)]
                recorder.replays.append((replay, tensors, result))
            return result
        tensors = [value for value in args if isinstance(value, Tensor)]
        if not all(t.numel() and t.layout == torch.strided for t in tensors):
            return self.overload(*args)
        return self._record(device, args, tensors, tuple(key))

    def _record(
        self, device: int, args: tuple[Any, ...], tensors: list[Tensor], key: tuple[Any, ...]
    ) -> Any:
        """Make the call, and remember it where it can be made again."""
        outer = recorder.launches
        recorder.launches, recorder.made = [], []
        try:
            result = self.function(*args)
            replay = replay_of(device, recorder.launches, tensors, recorder.made, result)
        finally:
            recorder.launches = outer
        if replay is not None:
            if len(self.calls) >= MOST_CALLS:
                self.calls.clear()
            self.calls[key] = replay
            if recorder.replays is not None:
                recorder.replays.append((replay, tensors, result))
        return result


def replay_of(
    device: int, launches: list[Launch], inputs: list[Tensor], made: list[Tensor], result: Any
) -> Replay | None:
    """How a call can be made again; None where its kernels read a tensor that is neither."""
    tensors = [*inputs, *made]
    where = {t.data_ptr(): i for i, t in enumerate(tensors) if t.numel()}
    if len(where) != sum(t.numel() > 0 for t in tensors) or 0 in where:
        return None  # two of them begin at one address
    steps = []
    numbers: list[Any] = []
    for compiled, grid, values in launches:
        places = []
        for value in values:
            if isinstance(value, Tensor):
                source = where.get(value.data_ptr())
                if source is None:
                    return None
                places.append(source)
            else:
                places.append(len(tensors) + len(numbers))
                numbers.append(value)
        x, y, z = (*grid, 1, 1)[:3]
        head = compiled.run, compiled.function, compiled.packed_metadata
        steps.append(_Step(*head, (x, y, z), _picker(places)))
    results: int | tuple[int, ...] | None = None
    if result is not None:
        own = {id(t): i for i, t in enumerate(made)}
        several = result if isinstance(result, tuple) else (result,)
        if any(id(t) not in own for t in several):
            return None
        found = tuple(own[id(t)] for t in several)
        results = found if isinstance(result, tuple) else found[0]
    layouts = tuple((tuple(t.shape), t.stride(), t.dtype) for t in made)
    return Replay(device, layouts, tuple(steps), numbers, results)


def _picker(places: list[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Takes the elements at some places; a kernel has two parameters at least."""
    return itemgetter(*places)


def unobserved() -> bool:
    """Whether nobody but the GPU has to see an op: no mode, transform, tangent or profiler.

    Nor an op around it, which records what is launched: made again, this one would launch unseen.
    """
    return (
        recorder.launches is None
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
        and not overridden()
        and not _hooked()
    )


def _hooked() -> bool:
    """Whether a profiler of Triton's listens to launches."""
    knobs = triton.knobs.runtime
    for hook in (knobs.launch_enter_hook, knobs.launch_exit_hook):
        if hook is not None and getattr(hook, "calls", True):
            return True
    return False
