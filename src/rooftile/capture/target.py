"""A target as the user names it, to a Graph."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from rooftile.capture.config import capture_config
from rooftile.capture.conversion import convertible
from rooftile.capture.devices import gpu_as_cpu
from rooftile.capture.fake import Fakes
from rooftile.capture.hints import FORMS, refuse_missing
from rooftile.capture.module import (
    Mode,
    Progress,
    as_inputs,
    capture_module,
    check_mode,
    no_progress,
    torch_dtype,
    user_errors,
)
from rooftile.capture.skip_init import skip_init
from rooftile.capture.step import check_optimizer
from rooftile.errors import InputError, TargetError
from rooftile.records.graph import Graph
from rooftile.user_file import free_name, importable


def capture_target(
    target: str,
    *,
    mode: Mode = "infer",
    dtype: str | None = None,
    batch: int | None = None,
    seq: int | None = None,
    optimizer: str = "none",
    progress: Progress = no_progress,
) -> Graph:
    """Record one step of a target.

    Args:
        target: ``file.py:callable`` or ``package.module:callable``, which returns a model and its
            example inputs and, if it likes, a loss of the output; a ``.pt2``; a ``config.json``.
        mode: ``"infer"`` or ``"train"``.
        dtype: Floating-point parameters and inputs are taken as of this dtype; None keeps theirs.
        batch: Handed to a callable that has such a parameter; the batch of a config.json.
        seq: Likewise, tokens a sequence.
        optimizer: ``"none"``, ``"sgd"`` or ``"adamw"``.
        progress: Told each stage in a word.

    Raises:
        InputError: An argument is out of range, or the target is not of one of these forms.
        TargetError: The target cannot be imported, built or run. Carries the user's traceback.
    """
    check_mode(mode)
    check_optimizer(optimizer, mode)
    torch_dtype(dtype)
    for name, value in (("batch", batch), ("seq", seq)):
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
        if value is not None and value >= 2**31:
            raise InputError(f"{name} must be at most {2**31 - 1}, got {value}")
    refuse_missing(target)
    if target.endswith(".json") or Path(target).is_dir():
        return capture_config(
            target, mode=mode, dtype=dtype, batch=batch, seq=seq, optimizer=optimizer,
            progress=progress,
        )  # fmt: skip
    if target.endswith(".pt2"):
        # torch.export takes 0.2 s to import, and no other kind of target needs it
        from rooftile.capture.exported import capture_exported

        _refuse_sizes(target, "an exported program has its own sizes", batch=batch, seq=seq)
        return capture_exported(
            target, mode=mode, dtype=dtype, optimizer=optimizer, progress=progress
        )
    progress("building the model")
    fakes = Fakes()
    with _importable(target):
        with fakes.building(), gpu_as_cpu(), skip_init(), convertible():
            model, inputs, loss = _call(_load(target), target, batch, seq)
        return capture_module(
            model, inputs, mode=mode, dtype=dtype, optimizer=optimizer, loss=loss,
            target_name=target, fakes=fakes, progress=progress,
        )  # fmt: skip


@contextmanager
def _importable(target: str) -> Iterator[None]:
    """Let a file's neighbours be imported while it is loaded and run.

    A target by its module's name is imported from where the user stands, and stays.
    """
    source = target.rpartition(":")[0]
    if source.endswith(".py"):
        with importable([source]):
            yield
        return
    path, folder = list(sys.path), str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path[:] = path


def _load(target: str) -> Callable[..., Any]:
    source, _, name = target.rpartition(":")
    module = _import_file(source) if source.endswith(".py") else _import_module(source, target)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise InputError(f"target {target!r}: {source} has no {name!r}")
    if not callable(found):
        raise InputError(f"target {target!r}: {name!r} must be callable, got {found!r}")
    return found  # type: ignore[no-any-return]


def _import_file(source: str) -> Any:
    path = Path(source).resolve()
    name = free_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"target file {source!r} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with user_errors(f"target file {source!r} does not import"):
        spec.loader.exec_module(module)
    return module


def _import_module(source: str, target: str) -> Any:
    try:
        found = importlib.util.find_spec(source) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise InputError(f"target {target!r}: no module {source!r}; a target is {FORMS}")
    with user_errors(f"module {source!r} does not import"):
        return importlib.import_module(source)


def _call(
    function: Callable[..., Any], target: str, batch: int | None, seq: int | None
) -> tuple[nn.Module, Any, Any]:
    """Call the user's callable and check what it returns."""
    given = {k: v for k, v in (("batch", batch), ("seq", seq)) if v is not None}
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        known = {}  # type: ignore[assignment]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in known.values())
    for name, value in given.items():
        if name not in known and not takes_all:
            _refuse_sizes(target, f"it has no parameter {name!r}", **{name: value})
    with user_errors(f"target {target!r} fails"):
        result = function(**given)
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        what = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
        raise TargetError(
            f"target {target!r} must return (model, inputs) or (model, inputs, loss), got {what}"
        )
    model, inputs, loss = (*result, None)[:3]
    if not isinstance(model, nn.Module):
        raise TargetError(
            f"target {target!r} must return a torch.nn.Module first, got {type(model).__name__}"
        )
    if loss is not None and not callable(loss):
        raise TargetError(
            f"target {target!r} must return a callable as its loss, got {type(loss).__name__}"
        )
    return model, as_inputs(inputs), loss


def _refuse_sizes(target: str, why: str, **sizes: int | None) -> None:
    for name, value in sizes.items():
        if value is not None:
            raise InputError(f"{name} {value} cannot be set for target {target!r}: {why}")
