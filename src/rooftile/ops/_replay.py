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
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from rooftile.ops._direct import Step, step
from rooftile.plan.launch import overridden

ALIGNMENT = 127  # plans look at addresses modulo 32, Triton modulo 16


# of torch's compiler, in C++; None in a torch without it
compiler_parts = getattr(getattr(torch._C, "_dynamo", None), "guards", None)


def _allocator() -> Callable[..., Tensor]:
    """What makes a tensor from shape, strides and dtype on the current GPU, without values.

    torch's compiler has one of its own, which takes a third of the time of ``torch.empty``.
    """
    quick = getattr(compiler_parts, "_empty_strided_cuda", None)
    return quick or partial(_empty_strided, device="cuda")


def _empty_strided(shape: Any, stride: Any, dtype: torch.dtype, device: str) -> Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device=device)


new_tensor = _allocator() if torch.version.cuda else partial(_empty_strided, device="cuda")
device_of = Tensor.get_device  # -1 on a CPU
address_of = Tensor.data_ptr
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


class Replay(NamedTuple):
    """A recorded call: tensors to make, launches, and which of the tensors are its results.

    Launches pick from the addresses of the call's tensors and of those made for it, and from what
    is the same in each call.
    """

    device: int
    made: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    steps: tuple[Step, ...]
    constants: tuple[Any, ...]
    results: int | tuple[int, ...] | None

    def __call__(self, addresses: list[int]) -> Any:
        """Launch on tensors at other addresses."""
        device, layouts, steps, constants, results = self
        made = [new_tensor(*layout) for layout in layouts]
        values = [*addresses, *map(address_of, made), *constants]
        stream = current_stream(device)
        for run, before, between, pick, after, nested in steps:
            if nested:
                run(*before, stream, *between, (*pick(values), *after))
            else:
                run(*before, stream, *between, *pick(values), *after)
        if isinstance(results, int):
            return made[results]
        return None if results is None else tuple([made[i] for i in results])


def replay_of(
    device: int, launches: list[Launch], inputs: list[Tensor], made: list[Tensor], result: Any
) -> Replay | None:
    """How a call can be made again; None where its kernels read a tensor that is neither."""
    tensors = [*inputs, *made]
    where = {t.data_ptr(): i for i, t in enumerate(tensors) if t.numel()}
    if len(where) != sum(t.numel() > 0 for t in tensors) or 0 in where:
        return None  # two of them begin at one address
    steps = []
    constants: list[Any] = []
    for compiled, grid, values in launches:
        places = [where.get(v.data_ptr()) if isinstance(v, Tensor) else None for v in values]
        if any(isinstance(v, Tensor) and p is None for v, p in zip(values, places, strict=True)):
            return None
        x, y, z = (*grid, 1, 1)[:3]
        steps.append(step(compiled, (x, y, z), values, places, constants, len(tensors)))
    results: int | tuple[int, ...] | None = None
    if result is not None:
        own = {id(t): i for i, t in enumerate(made)}
        several = result if isinstance(result, tuple) else (result,)
        if any(id(t) not in own for t in several):
            return None
        found = tuple(own[id(t)] for t in several)
        results = found if isinstance(result, tuple) else found[0]
    layouts = tuple((tuple(t.shape), t.stride(), t.dtype) for t in made)
    return Replay(device, layouts, tuple(steps), tuple(constants), results)


def undisturbed() -> bool:
    """Whether nothing wants to see an op that torch's guards of its tensors do not look at.

    That is a mode of torch's functions, a tangent, launch parameters set by hand, a profiler, or an
    op around it, which records what is launched: made again, this one would launch unseen.
    """
    return (
        recorder.launches is None
        and _function_modes() == 0
        and forward_ad._current_level < 0
        and not overridden()
        and not _hooked()
    )


def unobserved() -> bool:
    """Whether nobody but the GPU has to see an op: no mode, transform, tangent or profiler."""
    return (
        undisturbed()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
    )


_function_modes = torch._C._len_torch_function_stack
_knobs = triton.knobs.runtime


def _hooked() -> bool:
    """Whether a profiler of Triton's listens to launches."""
    enter, leave = _knobs.launch_enter_hook, _knobs.launch_exit_hook
    if type(enter) is type(leave) is _Chain:
        return bool(enter.calls or leave.calls)
    return enter is not None or leave is not None


_Chain = getattr(triton.knobs, "HookChain", None)
