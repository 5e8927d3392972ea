"""An exported program (.pt2) to a Graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export import pt2_archive
from torch.export.pt2_archive.constants import WEIGHTS_DIR

from rooftile.capture.module import (
    Mode,
    Progress,
    capture_module,
    no_progress,
    user_errors,
)
from rooftile.capture.program import TracedModule
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
        with _empty_weights():
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
        _on_cpu(module)
    _allow_modes(module)
    return capture_module(
        TracedModule(module),
        {"args": args, "kwargs": kwargs},
        mode=mode,
        dtype=dtype,
        optimizer=optimizer,
        target_name=path,
        progress=progress,
    )


@contextmanager
def _empty_weights() -> Iterator[None]:
    """Load weights as memory that nobody fills, so that it costs none; constants keep their values.

    The names are torch's own, inside ``torch.export.load`` (2.11 to 2.13).
    """
    loader: Any = pt2_archive._package
    original = loader._build_file_map

    def build(reader: Any, config: Any, base_dir: str) -> dict[str, torch.Tensor]:
        if not base_dir.startswith(WEIGHTS_DIR):
            kept: dict[str, torch.Tensor] = original(reader, config, base_dir)
            return kept
        weights = {}
        for payload in config.config.values():
            if payload.tensor_meta is not None and not payload.use_pickle:
                dtype = loader.deserialize_scalar_type(payload.tensor_meta.dtype)
                record = base_dir + payload.path_name
                numel = reader.archive_file.get_record_size(record) // dtype.itemsize
                weights[payload.path_name] = torch.empty(numel, dtype=dtype)
        return weights

    loader._build_file_map = build
    try:
        yield
    finally:
        loader._build_file_map = original


def _on_cpu(module: Any) -> None:
    """A program exported on a GPU names that device in its calls."""
    if not isinstance(module, fx.GraphModule):
        return
    for node in module.graph.nodes:
        if isinstance(node.kwargs.get("device"), torch.device):
            node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
    module.recompile()


def _allow_modes(module: nn.Module) -> None:
    """An exported module refuses train() and eval(): what it does is fixed. Let the call pass."""
    module.train = lambda mode=True: module  # type: ignore[method-assign]
