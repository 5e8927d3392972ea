"""The norms' backward of long rows, compiled without a GPU: what its loop over rows holds."""

from __future__ import annotations

import pytest
import torch

from rooftile.compile.build import compile_and_read, plan_build
from rooftile.compile.elf import sections
from rooftile.compile.launch import record_launches
from rooftile.compile.sass import read_sass
from rooftile.compile.targets import target_of
from rooftile.ops._launch import Planned, planned_for
from rooftile.ops.rows import norm_backward
from rooftile.ops.rows.norm import Norm, Statistics
from rooftile.ops.rows.norm_backward import Wanted

BYTES = 16  # of an instruction
LOCAL_LOAD, LOCAL_STORE, BARRIER, SEND = 0x983, 0x387, 0xB1D, 0xDBD
REGISTERS = 65_536  # of an SM


@pytest.fixture(autouse=True)
def _on_hopper(monkeypatch):
    """Clusters may stay on the SMs of a GPU that is not there."""
    monkeypatch.setattr(norm_backward, "may_stay", lambda device: True)
    monkeypatch.setattr(
        norm_backward, "clusters_at_once", lambda cluster, device, per_sm: 120 * per_sm // cluster
    )


def backward(n_cols, mean, dtype=torch.bfloat16):
    """Launches the backward of layer norm, or of RMS norm."""
    x, w, stats = torch.empty(64, n_cols, dtype=dtype), torch.empty(n_cols), torch.empty(64)
    statistics = Statistics(stats if mean else None, stats)
    wanted = Wanted(x, w, w if mean else None)
    return lambda: norm_backward.norm_backward(
        x, None, x, w.to(dtype), statistics, Norm(1, 1e-6, mean), wanted
    )


def compiled(function):
    """Plan, resources and code of the one cluster kernel that a function launches."""
    sm_90 = target_of("sm_90")
    with planned_for(Planned("sm_90", 132)):
        _, launches = record_launches(function, sm_90)
    (launched,) = [one for one in launches if one.kernel.is_gluon()]
    build = plan_build(launched.kernel, sm_90, launched.call, {})
    kernel, resources = compile_and_read(build)
    parts = sections(kernel.asm["cubin"])
    return resources, next(part for name, part in parts.items() if name.startswith(".text."))


def row_loop(code):
    """Operations of the innermost loop that sends."""
    operations = [
        int.from_bytes(code[at : at + 8], "little") & 0xFFF for at in range(0, len(code), BYTES)
    ]
    jumps = [(a // BYTES, b // BYTES) for a, b in read_sass(code, 90).jumps]
    loops = [operations[b : a + 1] for a, b in jumps if b < a and SEND in operations[b : a + 1]]
    return min(loops, key=len)


@pytest.mark.parametrize("mean", [True, False], ids=["layer_norm", "rms_norm"])
@pytest.mark.parametrize(
    ("n_cols", "programs_per_sm", "instructions"),
    [(16384, 4, 16 * 25), (12345, 4, 16 * 29), (65536, 2, 32 * 20)],
)
def test_rows_stay_in_registers(n_cols, programs_per_sm, instructions, mean):
    """Nothing is spilled, no warp waits at a barrier of its program, few instructions a column.

    An SM issues 44 of them an element in the time that a copy takes for one read and written.
    """
    resources, code = compiled(backward(n_cols, mean))
    assert resources.registers * resources.threads * programs_per_sm <= REGISTERS
    loop = row_loop(code)
    assert not {LOCAL_LOAD, LOCAL_STORE, BARRIER} & set(loop)
    assert len(loop) <= instructions
