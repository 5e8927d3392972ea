"""Calls made again: what is launched a second time, and which calls torch must see."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch

from rooftile import ops
from rooftile.ops import _op, _repeat, _replay
from rooftile.ops._op import Op
from rooftile.ops._repeat import repeats
from rooftile.ops._replay import Launch, empty, recorder
from rooftile.plan.launch import override


def ones(n_rows=4):
    """Rows of 6 ones that start at a multiple of 128 bytes, as a GPU's allocations do."""
    base = torch.ones(6 * n_rows + 32)
    start = -base.data_ptr() % 128 // 4
    return base[start : start + 6 * n_rows].view(n_rows, 6)


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
    monkeypatch.setattr(_replay, "new_tensor", partial(_replay._empty_strided, device="cpu"))
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


@pytest.fixture
def guarded(world, monkeypatch):
    """The op of ``world`` after two calls: the guard knows it, and a key is an error."""
    for _ in range(2):
        world.op(ones(), 2.0)
    assert len(world.op.recent.calls) == 1
    world.keys = []
    key_of = _op._key_of
    monkeypatch.setattr(_op, "_key_of", lambda args: world.keys.append(args) or key_of(args))
    return world


def test_a_guard_recognizes_a_call(guarded):
    """A like call needs no key, and launches on its own tensors."""
    x = ones()
    y = guarded.op(x, 2.0)
    assert guarded.keys == []
    assert guarded.kernel.launched[-1] == ((3, 1, 1), 7, (x.data_ptr(), y.data_ptr(), 2.0))


@pytest.mark.parametrize(
    "args",
    [
        (ones().half(), 2.0),
        (ones(5), 2.0),
        (ones(8)[::2], 2.0),
        (ones(), 3.0),
        (ones(), 2),
        (torch.ones(64)[1:25].view(4, 6), 2.0),
        (torch.nn.Parameter(ones()), 2.0),
        (torch._neg_view(ones()), 2.0),
    ],
    ids=["dtype", "shape", "strides", "number", "type", "alignment", "class", "lazy"],
)
def test_a_guard_refuses_other_arguments(guarded, args):
    """Whatever a plan or a result depends on is another call."""
    with torch.no_grad():
        guarded.op(*args)
    assert len(guarded.keys) == 1


def test_a_guard_refuses_memory_given_back(guarded):
    """A tensor whose storage was emptied has a shape and no address: torch must see it."""
    x = ones().clone()
    x.untyped_storage().resize_(0)
    guarded.op(x, 2.0)
    assert (guarded.torch, guarded.body) == (1, 1)


def test_what_torch_must_see_is_seen_behind_a_guard(guarded):
    """A mode, a transform, a tangent or an override after the call is known."""

    class Function(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Dispatch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    before = len(guarded.kernel.launched)
    for context in (
        Function(), Dispatch(), torch.autograd.forward_ad.dual_level(),
        override("softmax_fwd", num_warps=2),
    ):  # fmt: skip
        x = ones()
        with context:
            guarded.op(x, 2.0)
    x = ones()
    torch.func.vmap(lambda t: guarded.op(x, 2.0) + t)(torch.ones(2))
    torch.func.grad(lambda t: (guarded.op(x, 2.0) * t).sum())(torch.ones(1))
    assert guarded.torch == 6
    assert len(guarded.kernel.launched) == before


def test_a_guard_of_another_gpu(guarded, monkeypatch):
    """Where another GPU is the current one, its streams are not those of the tensors."""
    monkeypatch.setattr(_replay, "current_device", lambda: 1)
    guarded.op(ones(), 2.0)
    assert guarded.torch == 1


def test_calls_known_at_a_time(guarded):
    """The last three; one that comes back is known again."""
    for n_rows in (1, 2, 3):
        for _ in range(2):
            guarded.op(ones(n_rows), 2.0)
    assert len(guarded.op.recent.calls) == 3
    guarded.keys.clear()
    for n_rows in (1, 2, 3):
        guarded.op(ones(n_rows), 2.0)
    assert guarded.keys == []
    for _ in range(2):
        guarded.op(ones(), 2.0)
    assert len(guarded.keys) == 1


def test_arguments_by_name_and_by_place(public):
    """What is given by name is told from the same values given by place."""
    for _ in range(3):
        public.public(ones(), scale=3.0)
    with pytest.raises(TypeError):
        public.public(ones(), "scale", 3.0)
    assert (public.checked, public.body) == (1, 1)


def test_a_guard_asks_for_no_gradient(public):
    """A leaf that records is not taken for one that did not, and the other way round."""
    leaf = ones().requires_grad_()
    for _ in range(3):
        with torch.no_grad():
            public.public(leaf)
    assert public.checked == 1
    public.public(leaf)
    assert public.checked == 2


@pytest.fixture
def public(world):
    """A public op above the one of ``world``: it checks its argument, and counts that."""
    world.checked = 0

    @repeats(unless=lambda: world.looks)
    def scaled(x, scale=2.0, *, twice=False):
        world.checked += 1
        y = world.op(x, scale)
        return world.op(y, scale) if twice else y

    world.looks = False
    world.public = scaled
    return world


def test_a_public_op_checks_a_call_once(public):
    """A like call goes straight to the recorded kernel, on its own tensors, in any grad mode."""
    public.public(ones(), 3.0)
    x = ones()
    y = public.public(x, 3.0)
    with torch.no_grad():
        public.public(ones().requires_grad_(), 3.0)
    assert (public.checked, public.body) == (1, 1)
    assert public.kernel.launched[0] == ((3, 1, 1), 7, (x.data_ptr(), y.data_ptr(), 3.0))
    assert len(public.kernel.launched) == 2


def test_other_arguments_are_checked(public):
    """Another number, keyword, shape or dtype is another call."""
    x = ones()
    public.public(x, 3.0)
    for args, options in (((x, 4.0), {}), ((x,), {"scale": 3.0}), ((x[:2], 3.0), {}), ((x,), {})):
        public.public(*args, **options)
    public.public(x.half(), 3.0)
    assert public.checked == 6


def test_calls_of_a_public_op_that_are_never_repeated(public):
    """With a gradient to record, with values to look at, and where two ops were called."""
    x = ones()
    leaf = ones().requires_grad_()
    for _ in range(2):
        public.public(leaf)
        public.public(x, twice=True)
    public.public(x)
    public.looks = True
    public.public(x)
    assert public.checked == 6


def test_a_public_op_that_adds_work_of_its_own_is_not_repeated(world):
    """Only a call whose result is the op's own, from the call's own tensors, is made again."""
    calls = []

    @repeats()
    def after(x):
        calls.append("after")
        return world.op(x, 2.0) + 1

    @repeats()
    def before(x):
        calls.append("before")
        return world.op(x * 2, 2.0)

    for _ in range(2):
        after(ones())
        before(ones())
    assert calls == ["after", "before"] * 2


X, W = torch.ones(8, 64), torch.ones(64)
CALLS = {
    "softmax": (X, 1),
    "log_softmax": (X, 1),
    "rms_norm": (X, (64,), W),
    "layer_norm": (X, (64,), W, W),
    "add_rms_norm": (X, X + 1, (64,), W),
    "add_layer_norm": (X, X + 1, (64,), W, W.clone()),
    "cross_entropy": (X, torch.zeros(8, dtype=torch.int64)),
    "swiglu": (X, X + 1),
    "geglu": (X, X + 1),
    "bias_gelu_dropout_residual": (X, W, X + 1),
    "rotary_embedding": (X.view(1, 2, 4, 64), torch.ones(2, 32), torch.zeros(2, 32)),
}


@pytest.mark.parametrize("op", CALLS)
def test_every_public_op_repeats_its_calls(op, world, monkeypatch):
    """The second call of each goes straight to the kernels that the first recorded."""

    def launch(kernel, grid, device, *args, **meta):
        values = [*args, *(meta[name] for name in kernel.arg_names[len(args) :])]
        recorder.launches.append(Launch(world.kernel, grid, values))

    for name, module in list(sys.modules.items()):
        if name.startswith("rooftile.ops.") and hasattr(module, "launch"):
            monkeypatch.setattr(module, "launch", launch)
    monkeypatch.setattr(import_module("rooftile.ops.cross_entropy"), "_asked", False)
    args = [a.clone() if isinstance(a, torch.Tensor) else a for a in CALLS[op]]
    function = getattr(ops, op)
    function(*args)
    before = len(world.kernel.launched)
    monkeypatch.setattr(_repeat, "_watched", None)
    function(*args)
    assert len(world.kernel.launched) > before == 0
