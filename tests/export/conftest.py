"""A bundle that the tests share: compiled once, for no GPU that is here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import cli

from rooftile.records.io import from_json
from rooftile.records.manifest import ExportedKernel, Manifest

pytest.importorskip("torch")
pytest.importorskip("triton")

__all__ = ["cli"]  # a fixture
KERNELS = str(Path(__file__).parent / "kernels.py")


@pytest.fixture(autouse=True)
def _no_interpreter(monkeypatch):
    """Whatever other tests set, kernels are compiled here."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory) -> Path:
    """Softmax and RMS norm, bfloat16, 4096 columns, for two NVIDIA GPUs and one of AMD."""
    import rooftile

    out = tmp_path_factory.mktemp("export") / "bundle"
    rooftile.export_bundle("softmax", "rms_norm", arch=["sm_80", "sm_90", "gfx942"], out=out)
    return out


@pytest.fixture(scope="session")
def manifest(bundle) -> Manifest:
    """Its manifest."""
    return from_json((bundle / "manifest.json").read_bytes(), Manifest)


@pytest.fixture(scope="session")
def kernel(manifest) -> Callable[[str], ExportedKernel]:
    """A kernel of the bundle by its symbol."""
    return {k.symbol: k for k in manifest.kernels}.__getitem__
