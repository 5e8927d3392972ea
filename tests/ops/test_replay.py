"""Calls made again: what is launched a second time, and which calls torch must see."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from rooftile.ops import _replay
from rooftile.ops._replay import Launch, Op, empty, recorder
from rooftile.plan.launch import override


class Compiled:
    """A kernel that notes what it is launched with."""

    function, packed_metadata = "function", "metadata"

    def __init__(self):
        self.launched = []

    def run(self, *args):
        """As Triton's: grid, stream, function, metadata, three for hooks, the parameters."""
        self.launched.append((args[:3], args[3], args[9:]))


@pytest.fixture
def world(monkeypatch):
    """An op of one kernel on what passes for GPU 0, and how often torch and its body ran."""
    monkeypatch.setattr(_replay, "device_of", lambda t: 0)
    monkeypatch.setattr(_replay, "current_device", lambda: 0)
    monkeypatch.setattr(_replay, "current_stream", lambda device: 7)
    seen = SimpleNamespace(body=0, torch=0, kernel=Compiled())

    def body(x, scale):
        seen.body += 1
        y = empty(x.shape, x.dtype, x.device)
        if recorder.launches is not None:
            recorder.launches.append(Launch(seen.kernel, (3,), [x, y, scale]))
        return y

    def overload(x, scale):
        seen.torch += 1
        return x

    seen.op = Op(body, overload)
    return seen


def test_second_call_launches_on_its_own_tensors(world):
    """The kernel recorded by the first call gets the addresses of the second call's tensors."""
    world.op(torch.ones(4, 6), 2.0)
    x = torch.ones(4, 6)
    y = world.op(x, 2.0)
    assert (world.body, world.torch) == (1, 0)
    assert world.kernel.launched == [((3, 1, 1), 7, (x.data_ptr(), y.data_ptr(), 2.0))]
    assert (y.shape, y.dtype) == (x.shape, x.dtype)


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(4, 7),
        torch.ones(6, 4).t(),
        torch.ones(4, 6).half(),
        torch.ones(32)[1:25].view(4, 6),
    ],
)
def test_another_shape_stride_dtype_or_alignment_is_planned_anew(world, x):
    """What a plan depends on is part of what is remembered."""
    world.op(torch.ones(4, 6), 2.0)
    world.op(x, 2.0)
    world.op(torch.ones(4, 6), 3.0)
    assert (world.body, world.kernel.launched) == (3, [])


def test_calls_that_torch_must_see(world):
    """Subclasses, modes, transforms, tangents and overridden plans go through the dispatcher."""

    class Sub(torch.Tensor):
        pass

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    x = torch.ones(4, 6)
    world.op(torch.ones(4, 6).as_subclass(Sub), 2.0)
    with Mode():
        world.op(x, 2.0)
    torch.func.vmap(lambda t: world.op(t, 2.0))(x)
    with torch.autograd.forward_ad.dual_level():
        world.op(x, 2.0)
    with override("softmax_fwd", num_warps=2):
        world.op(x, 2.0)
    world.op(torch.ones(0, 6), 2.0)
    world.op(torch._neg_view(x), 2.0)
    assert (world.body, world.torch) == (0, 7)


def test_a_kernel_that_reads_a_copy_is_not_made_again(world):
    """A tensor that is neither the call's nor made by ``empty`` holds values of one call alone."""

    def body(x):
        world.body += 1
        y = empty(x.shape, x.dtype, x.device)
        recorder.launches.append(Launch(world.kernel, (1,), [x.clone(), y]))
        return y

    op = Op(body, None)
    for _ in range(2):
        op(torch.ones(4, 6))
    assert (world.body, world.kernel.launched) == (2, [])
