"""Compiling needs a cache of its own and no interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import cli
from compile import forked_server

__all__ = ["cli"]  # a fixture
KERNELS = str(Path(__file__).parent / "kernels.py")
SOFTMAX = "*bf16:16, *bf16:16, i64:16, i64:16, i32:16"
MATMUL = "*fp16:16, *fp16:16, *fp16:16, i32:16, i32:16, i32:16, i32:16"

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Whatever the user's cache holds, tests compile; whatever other tests set, nothing is run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def own_process() -> None:
    """For tests of the server as a process: it is started as one, for a second each time."""


@pytest.fixture(autouse=True)
def _forked_server(request, monkeypatch):
    """Ask a fork of this process, which need not load Triton again."""
    if "own_process" not in request.fixturenames:
        monkeypatch.setattr("rooftile.compile.run._answers", forked_server.answers)
