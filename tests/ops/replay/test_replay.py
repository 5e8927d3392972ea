"""Calls made again: what is launched a second time, and which calls torch must see."""

from __future__ import annotations

import pytest
import torch
from replays import ones

from rooftile.ops._op import Op
from rooftile.ops._replay import Launch, empty, recorder
from rooftile.plan.launch import override


def test_second_call_launches_on_its_own_tensors(world):
    """The kernel recorded by the first call gets the addresses of the second call's tensors."""
    world.op(ones(), 2.0)
    x = ones()
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


class Launcher:
    """As Triton's launchers are: an object that calls a C function with arguments of its own."""

    global_scratch_size = profile_scratch_size = 0

    def __init__(self, nested):
        self.nested = nested
        self.calls = []
        self.ran = 0
        self.launch = lambda *args: self.calls.append(args)

    def __call__(self, x, y, z, stream, function, metadata, launch_metadata, enter, leave, *params):
        """The parameters last, in a row or as a tuple."""
        self.ran += 1
        scratch = "scratch" if self.global_scratch_size else None
        head = x, y, z, stream, function, False, True, scratch, metadata, enter, leave
        self.launch(*head, *((params,) if self.nested else params))


@pytest.mark.parametrize("nested", [False, True])
def test_calls_go_straight_to_the_launchers_own_function(world, nested):
    """Triton's Python is gone through once; then what it called is called, whatever its form."""
    world.kernel.run = Launcher(nested)
    first = world.op(ones(), 2.0)
    x = ones()
    ys = [world.op(x, 2.0) for _ in range(2)]
    params = [(x.data_ptr(), y.data_ptr(), 2.0) for y in ys]
    head = 3, 1, 1, 7, "function", False, True, None, "metadata", None, None
    assert world.kernel.run.calls == [(*head, *((p,) if nested else p)) for p in params]
    assert (world.body, world.kernel.run.ran, first.shape) == (1, 0, x.shape)


def test_a_launcher_that_needs_memory_is_asked_each_time(world):
    """Scratch memory is of one launch alone, so the launcher's own call provides it."""
    world.kernel.run = Launcher(nested=False)
    world.kernel.run.global_scratch_size = 64
    for _ in range(3):
        world.op(ones(), 2.0)
    assert (world.body, world.kernel.run.ran) == (1, 2)
    assert [call[7] for call in world.kernel.run.calls] == ["scratch"] * 2
