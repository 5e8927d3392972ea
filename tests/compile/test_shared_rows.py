"""Softmax and norms of rows shared by warps and clusters, compiled for Hopper: what they hold."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from rooftile.compile.build import compile_and_read, plan_build
from rooftile.compile.elf import sections
from rooftile.compile.launch import record_launches
from rooftile.compile.sass import read_sass
from rooftile.compile.targets import target_of
from rooftile.ops._launch import Planned, planned_for
from rooftile.ops.rows import norm, softmax, staying
from rooftile.ops.rows.resident import launchable

BYTES = 16  # of an instruction
LOCAL_LOAD, LOCAL_STORE = 0x983, 0x387
SHARED = 233_472  # of an SM: CUDA programming guide, 9.0


@pytest.fixture
def h200(monkeypatch):
    """Launches are planned as for an H200, clusters that stay included."""
    monkeypatch.setattr(norm, "may_stay", lambda device: True)
    monkeypatch.setattr(staying, "may_stay", lambda device: True)
    monkeypatch.setattr(staying, "clusters_at_once", lambda cluster, device, per_sm: 120 // cluster)
    with planned_for(Planned("sm_90", 132)):
        yield


def layer_norm(n_cols, dtype=torch.bfloat16):
    """Launches layer norm with weight and bias, for a training step."""
    x, w, stats = torch.empty(300, n_cols, dtype=dtype), torch.empty(n_cols, dtype=dtype), None
    stats = norm.Statistics(torch.empty(300), torch.empty(300))
    return lambda: norm.norm_forward(x, None, w, w, norm.Norm(1, 1e-5, True), None, x, stats)


def add_rms_norm(n_cols, dtype=torch.bfloat16):
    """Launches RMS norm of a sum."""
    x, w = torch.empty(300, n_cols, dtype=dtype), torch.empty(n_cols, dtype=dtype)
    stats = norm.Statistics(None, None)
    return lambda: norm.norm_forward(x, x, w, None, norm.Norm(1, 1e-6, False), x, x, stats)


def softmax_forward(n_cols, dtype=torch.bfloat16):
    """Launches softmax."""
    x = torch.empty(300, n_cols, dtype=dtype)
    return lambda: softmax._softmax_fwd(x, 1, False, None)


def softmax_backward(n_cols, dtype=torch.bfloat16):
    """Launches softmax's backward."""
    x = torch.empty(300, n_cols, dtype=dtype)
    return lambda: softmax._softmax_bwd(x, x, 1, False, None)


def compiled(function):
    """The kernel of Gluon that a function launches: its launch, resources, code and spills."""
    sm_90 = target_of("sm_90")
    _, launches = record_launches(function, sm_90)
    (launched,) = (one for one in launches if one.kernel.is_gluon())
    kernel, resources = compile_and_read(plan_build(launched.kernel, sm_90, launched.call, {}))
    parts = sections(kernel.asm["cubin"])
    code = next(part for name, part in parts.items() if name.startswith(".text."))
    words = [int.from_bytes(code[at : at + 8], "little") for at in range(0, len(code), BYTES)]
    spills = sum(word & 0xFFF in (LOCAL_LOAD, LOCAL_STORE) for word in words)
    return launched, resources, read_sass(code, 90), spills


def widths(code):
    """Accesses to device memory by kind and bytes of a thread."""
    return Counter((touch.kind, touch.width_bytes) for touch in code.touches)


@pytest.mark.parametrize("n_cols", [65536, 50257])
@pytest.mark.parametrize(("make", "tensors"), [(softmax_forward, 1), (softmax_backward, 2)])
def test_no_warp_waits_at_a_barrier(make, tensors, n_cols, h200):
    """Warps wait for numbers alone; rows that start anywhere move in 16-byte accesses too."""
    launched, _, code, spills = compiled(make(n_cols))
    rounds = launched.values["ROUNDS"]
    assert not code.barriers
    assert spills == 0
    found = widths(code)
    assert found["load", 16] == tensors * rounds
    assert found["store", 16] == rounds
    edges = int(n_cols % 8 != 0)
    assert found["load", 2] == tensors * edges
    assert found["store", 2] == edges


@pytest.mark.parametrize(
    ("make", "n_cols", "tensors"),
    [(layer_norm, 32768, 1), (layer_norm, 50257, 1), (add_rms_norm, 262144, 2)],
)
def test_weights_stay_in_registers(make, n_cols, tensors, h200):
    """Between rows nothing is read but rows ahead; the programs of a grid fit the SMs at a time."""
    launched, resources, code, spills = compiled(make(n_cols))
    values = launched.values
    assert spills == 0
    loop = min(code.loops(), key=lambda loop: loop.size)
    inside = Counter((t.kind, t.width_bytes) for t in code.touches if loop.holds(t.at))
    ahead, other = ("copy to shared", "load") if values["STAGES"] else ("load", "copy to shared")
    assert inside[ahead, 16] == tensors * values["ROUNDS"]
    assert inside[other, 16] == 0
    assert inside["store", 16] == tensors * values["ROUNDS"]
    assert inside["load", 2] == tensors * int(n_cols % 8 != 0)
    assert resources.dynamic_shared_bytes + resources.static_shared_bytes <= SHARED - 1024


@pytest.mark.parametrize(
    ("stages", "other", "expected"), [(5, 0, 5), (6, 0, 5), (7, 0, 7), (4, 16384, 3)]
)
def test_static_memory_counts_for_a_launch(stages, other, expected):
    """6 rows of 8 KiB and 544 bytes of inline PTX failed with an invalid argument on an H200."""
    assert launchable(stages, 8192, other, 544) == expected
