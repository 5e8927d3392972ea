"""An exported program (.pt2) to a Graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from rooftile.capture.module import (
    Mode,
    Progress,
    capture_module,
    no_progress,
    user_errors,
)
from rooftile.errors import FileFormatError, InputError, TargetError
from rooftile.records.graph import Graph


def capture_exported(
    path: str,
    *,
    mode: Mode = "infer",
    dtype: str | None = None,
    optimizer: str = "none",
    progress: Progress = no_progress,
) -> Graph:
    """Record one step of a program saved by ``torch.export.save``, on its own example inputs.

    Args:
        path: The ``.pt2`` file.
        mode: ``"train"`` needs a program whose output is a scalar loss.
        dtype: As in ``capture_module``.
        optimizer: As in ``capture_module``.
        progress: Told each stage in a word.

    Raises:
        InputError: No such file.
        FileFormatError: The file is truncated, or no exported program.
        TargetError: The program has no example inputs, or fails.
    """
    if not Path(path).is_file():
        raise InputError(f"target {path!r}: no such file")
    progress("loading the program")
    try:
        program = torch.export.load(path)
    except Exception as error:  # torch raises as many kinds as there are ways to be broken
        raise FileFormatError(
            f"target {path!r} cannot be read as an exported program (.pt2): "
            f"{type(error).__name__}: {error}"
        ) from error
    if program.example_inputs is None:
        raise TargetError(f"target {path!r} holds no example inputs: export it with them")
    args, kwargs = program.example_inputs
    with user_errors(f"{path!r} cannot be unpacked"):
        module = program.module()
    _allow_modes(module)
    return capture_module(
        _Bound(module),
        {"args": args, "kwargs": kwargs},
        mode=mode,
        dtype=dtype,
        optimizer=optimizer,
        target_name=path,
        progress=progress,
    )


class _Bound(nn.Module):
    """An exported module with positional and keyword inputs in one mapping."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program

    def forward(self, args: Any, kwargs: Any) -> Any:
        return self.program(*args, **kwargs)


def _allow_modes(module: nn.Module) -> None:
    """An exported module refuses train() and eval(): what it does is fixed. Let the call pass."""
    module.train = lambda mode=True: module  # type: ignore[method-assign, assignment, misc]
