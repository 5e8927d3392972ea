"""Guards: which calls are recognized without a key, and which torch must see."""

from __future__ import annotations

import pytest
import torch
from replays import ones

from rooftile.ops import _replay
from rooftile.plan.launch import override


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
