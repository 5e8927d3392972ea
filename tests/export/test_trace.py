"""What an op launches is recorded on a machine without a GPU, whatever torch is installed."""

from __future__ import annotations

import pytest

from rooftile.compile.targets import target_of
from rooftile.export.ops import SPECS
from rooftile.export.trace import trace
from rooftile.ops import _replay


def _no_driver() -> int:
    raise RuntimeError("Found no NVIDIA driver on your system.")


@pytest.mark.parametrize("op", ["softmax", "rms_norm", "layer_norm", "swiglu"])
def test_a_torch_with_cuda_and_no_driver_exports(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default torch on Linux is built for CUDA: asked for the current GPU it fails there."""
    monkeypatch.setattr(_replay, "current_device", _no_driver)
    spec = SPECS[op]
    sizes = dict.fromkeys(spec.sizes(), 64) | {spec.tuned.size: spec.tuned.default}
    traced = trace(op, spec, "bfloat16", sizes, target_of("sm_90"), "aligned")
    assert traced.launch.grid[0] >= 1
    assert set(traced.tensors.values()) == {*spec.inputs, *spec.outputs}
