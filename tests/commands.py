"""Running the command line within this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rooftile.cli import run


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys) -> Callable[..., Result]:
    """Run a command within this process."""

    def call(*args: object) -> Result:
        code = run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call
