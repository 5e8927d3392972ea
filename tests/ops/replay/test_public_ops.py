"""Public ops: a call they checked once goes straight to its kernels."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest
import torch
from replays import ones

from rooftile import ops
from rooftile.ops import _repeat
from rooftile.ops._repeat import repeats
from rooftile.ops._replay import Launch, recorder


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


@pytest.mark.parametrize("before", [1, 2], ids=["once", "known to the guard"])
def test_a_value_of_another_type_is_checked(before, public):
    """True, 1 and 1.0 are equal and have one hash, but where one is right another is refused."""
    for _ in range(before):
        public.public(ones(), 1.0)
    for checked, scale in ((2, 1), (3, True)):
        public.public(ones(), scale)
        assert public.checked == checked


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
