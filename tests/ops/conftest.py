"""Kernels run on a GPU where there is one, else in Triton's interpreter with its two guards."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU and "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    raise pytest.UsageError("run tests/ops alone: triton was loaded before it could interpret")
if not HAS_GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")
import triton  # noqa: E402  after the environment is set
from triton.runtime import interpreter as triton_interpreter  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

INTERPRETED = bool(triton.knobs.runtime.interpret)
DEVICE = "cpu" if INTERPRETED else "cuda"
if INTERPRETED:
    from interpreter import bf16, guard, patch_once

    bf16.install()
    guard.install()
    patch_once.install()


@pytest.fixture
def device() -> str:
    """Where kernels run."""
    return DEVICE


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch fails the test: what is refused is refused before."""

    def launched(*args: Any, **options: Any) -> None:
        raise AssertionError("a kernel was launched")

    monkeypatch.setattr(triton_interpreter.GridExecutor, "__call__", launched)
    monkeypatch.setattr(JITFunction, "run", launched)


@pytest.fixture(autouse=True)
def _poison_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.empty and torch.empty_like give NaN, so a kernel that leaves a gap fails."""

    def poisoned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def made(*args: Any, **kwargs: Any) -> torch.Tensor:
            t = make(*args, **kwargs)
            real = type(t) is torch.Tensor and not t.is_meta
            if real and t.is_floating_point():
                t.detach().fill_(float("nan"))
            return t

        return made

    monkeypatch.setattr(torch, "empty", poisoned(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poisoned(torch.empty_like))
