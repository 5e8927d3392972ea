"""Audit: what every op of a model's step costs on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from rooftile.api.dependencies import require_torch
from rooftile.errors import InputError

if TYPE_CHECKING:
    from rooftile.records.device import Device
    from rooftile.records.estimate import Estimate
    from rooftile.records.graph import Graph

Mode = Literal["infer", "train"]
Optimizer = Literal["none", "sgd", "adamw"]
MODES = ("infer", "train")
OPTIMIZERS = ("none", "sgd", "adamw")
_PLAIN = ("bfloat16", "float16", "float32", "float64")
DEFAULT_GPU = "h100-sxm"


def audit(
    model: Any,
    inputs: Any = None,
    *,
    gpu: str | Device | None = None,
    mode: Mode = "infer",
    dtype: str | None = None,
    batch: int | None = None,
    seq: int | None = None,
    optimizer: Optimizer = "none",
    loss: Callable[[Any], Any] | None = None,
    peak_tflops: float | None = None,
    bandwidth_gbs: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Estimate:
    """Price every op of a model's step on a GPU: FLOP, HBM bytes, bound and least time.

    Nothing runs and no weight is in memory: the step is captured under fake tensors, and no GPU is
    needed.

    Args:
        model: A ``torch.nn.Module``, or a target: ``"file.py:callable"`` or
            ``"package.module:callable"`` (which returns model and example inputs), a ``.pt2``
            exported program, a transformers ``config.json``.
        inputs: Example inputs of a module: a tensor, a tuple (positional) or a mapping (keywords).
        gpu: A GPU's name, a JSON file of one's own, or a record. None: ``"h100-sxm"``, unless
            ``peak_tflops`` and ``bandwidth_gbs`` are both given.
        mode: ``"infer"``: a forward. ``"train"``: forward, loss, backward and the update.
        dtype: Floating-point parameters and inputs are taken as of this dtype; None keeps theirs.
        batch: Batch size of a ``config.json``, or for a callable that has this parameter.
        seq: Tokens in a sequence, likewise.
        optimizer: Whose update ends a training step: ``"none"``, ``"sgd"`` or ``"adamw"``.
        loss: Callable of a module's output, where the module returns no loss itself.
        peak_tflops: Dense peak [TFLOP/s] instead of the GPU's own, of ``dtype`` where ``gpu`` is
            given, else of all work.
        bandwidth_gbs: Memory bandwidth [GB/s, decimal] instead of the GPU's own.
        progress: Told each stage in words.

    Returns:
        One row an op in the order of the step, and totals.

    Raises:
        InputError: An argument is out of range, the GPU is unknown or has no peak for ``dtype``.
        TargetError: The model cannot be found, imported, built or run; has the user's traceback.
        MissingDependencyError: torch is not installed, or transformers for a ``config.json``.
    """
    from rooftile.api.device import choose_device

    _check(model, inputs, loss, mode=mode, optimizer=optimizer, batch=batch, seq=seq)
    figures = {"peak_tflops": peak_tflops, "bandwidth_gbs": bandwidth_gbs}
    device = choose_device(gpu, **figures, dtype=dtype, default=DEFAULT_GPU)
    dtype = None if dtype is None else _torch_name(dtype)
    tell = progress or _say_nothing
    graph = _capture(model, inputs, loss, mode, dtype, batch, seq, optimizer, tell)
    tell("pricing the ops")
    from rooftile.cost.graph import estimate

    return estimate(graph, device)


def _capture(
    model: Any,
    inputs: Any,
    loss: Callable[[Any], Any] | None,
    mode: Mode,
    dtype: str | None,
    batch: int | None,
    seq: int | None,
    optimizer: Optimizer,
    tell: Callable[[str], None],
) -> Graph:
    """The graph of one step."""
    if isinstance(model, str):
        from rooftile.capture.hints import refuse_missing

        refuse_missing(model)  # before torch is loaded, which takes seconds
    tell("importing torch")
    require_torch("capturing a model needs torch")
    if isinstance(model, str):
        return _capture_target(model, mode, dtype, batch, seq, optimizer, tell)
    return _capture_module(model, inputs, mode, dtype, optimizer, loss, tell)


def _capture_target(
    target: str,
    mode: Mode,
    dtype: str | None,
    batch: int | None,
    seq: int | None,
    optimizer: Optimizer,
    tell: Callable[[str], None],
) -> Graph:
    """The graph of a target in words."""
    from rooftile.capture.target import capture_target

    return capture_target(
        target,
        mode=mode,
        dtype=dtype,
        batch=batch,
        seq=seq,
        optimizer=optimizer,
        progress=tell,
    )


def _capture_module(
    model: Any,
    inputs: Any,
    mode: Mode,
    dtype: str | None,
    optimizer: Optimizer,
    loss: Callable[[Any], Any] | None,
    tell: Callable[[str], None],
) -> Graph:
    """The graph of a live module."""
    import torch

    from rooftile.capture.module import capture_module

    if not isinstance(model, torch.nn.Module):
        raise InputError(
            f"model must be a torch.nn.Module or a target such as 'file.py:callable', "
            f"got {type(model).__name__}"
        )
    return capture_module(
        model,
        inputs,
        mode=mode,
        dtype=dtype,
        optimizer=optimizer,
        loss=loss,
        target_name=type(model).__name__,
        progress=tell,
    )


def _check(
    model: Any,
    inputs: Any,
    loss: Any,
    *,
    mode: str,
    optimizer: str,
    batch: int | None,
    seq: int | None,
) -> None:
    """Refuse what is wrong before torch is loaded."""
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if optimizer not in OPTIMIZERS:
        raise InputError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {optimizer!r}")
    if optimizer != "none" and mode != "train":
        raise InputError(f"optimizer {optimizer!r} needs mode 'train', got mode {mode!r}")
    for name, size in (("batch", batch), ("seq", seq)):
        if size is not None and size < 1:
            raise InputError(f"{name} must be at least 1, got {size}")
        if size is not None and size >= 2**31:
            raise InputError(f"{name} must be at most {2**31 - 1}, got {size}")
    if isinstance(model, str):
        if inputs is not None or loss is not None:
            name = "loss" if inputs is None else "inputs"
            raise InputError(f"{name} belongs to a module; the target {model!r} brings its own")
    elif inputs is None:
        raise InputError("inputs must be the module's example inputs, got None")
    elif batch is not None or seq is not None:
        raise InputError("batch and seq belong to a target; a module's inputs have their shapes")


def _torch_name(dtype: str) -> str:
    """Torch's name of a dtype that the user may abbreviate: ``bf16`` is ``bfloat16``."""
    from rooftile.spec.dtypes import dtype as known
    from rooftile.spec.dtypes import math_key

    if math_key(dtype) == "tf32":
        raise InputError(
            "dtype 'tf32' is no dtype of tensors but a way to multiply float32 ones: leave it out "
            "and call torch.set_float32_matmul_precision('high') in the target's file"
        )
    found = known(dtype)
    if found.name not in _PLAIN:
        raise InputError(
            f"dtype must be one that a whole model runs in ({', '.join(_PLAIN)}), got {dtype!r}: a "
            "model that quantises its products must do so itself"
        )
    return found.name


def _say_nothing(stage: str) -> None:
    """No progress is asked for."""
