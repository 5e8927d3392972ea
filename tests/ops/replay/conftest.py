"""An op of one kernel on what passes for a GPU, so that calls made again are seen without one."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from replays import Compiled, ones

from rooftile.ops import _op, _replay
from rooftile.ops._op import Op
from rooftile.ops._repeat import repeats
from rooftile.ops._replay import Launch, empty, recorder


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
