"""Running the command line, within this process and as one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import estimates
import pytest
from commands import Result, cli

__all__ = ["cli"]  # a fixture
SRC = Path(__file__).parents[2] / "src"


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Start a command as a process of its own, which finds this checkout."""

    def call(*args: object, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "rooftile", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SRC)},
            # a shell's background jobs ignore Ctrl-C, and their children inherit that
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **options,
        )

    return call


@pytest.fixture
def process(start) -> Callable[..., Result]:
    """Run a command as a process of its own to its end."""

    def call(*args: object, **options: object) -> Result:
        started = start(*args, **options)
        out, err = started.communicate(timeout=120)
        return Result(started.returncode, out, err)

    return call


@pytest.fixture
def priced(monkeypatch) -> list[dict[str, object]]:
    """An audit that captures nothing and gives a ready estimate; what it was asked for."""
    asked: list[dict[str, object]] = []

    def audit(target: str, **options: object):
        asked.append({"target": target, **options})
        return estimates.estimate()

    monkeypatch.setattr("rooftile.api.audit.audit", audit)
    return asked
