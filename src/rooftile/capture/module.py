"""A live model to a Graph: one step under fake tensors, recorded."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from rooftile.capture.attention import causal_biases
from rooftile.capture.control import control_flow
from rooftile.capture.devices import gpu_as_cpu
from rooftile.capture.fake import Faker, Fakes, fake_weights
from rooftile.capture.fused import fused_ops
from rooftile.capture.lazy import copied, is_lazy, materialising
from rooftile.capture.lazy_dynamo import uncompiled
from rooftile.capture.lines import LineFinder
from rooftile.capture.masks import readable_masks
from rooftile.capture.modules import ModuleStack
from rooftile.capture.notes import noting
from rooftile.capture.recorder import Recorder
from rooftile.capture.scan import fused_scans
from rooftile.capture.skip_init import skip_init
from rooftile.capture.step import Loss, check_optimizer, run_inference, run_training, tensors
from rooftile.errors import InputError, RooftileError, TargetError
from rooftile.records.graph import Graph

Mode = Literal["infer", "train"]
Progress = Callable[[str], None]
MODES = ("infer", "train")

_ROOFTILE = str(Path(__file__).parents[1]) + os.sep
_FAKE_TENSORS = f"{os.sep}torch{os.sep}_subclasses{os.sep}"


def no_progress(stage: str) -> None:
    """Say nothing."""


def capture_module(
    model: nn.Module,
    inputs: Any,
    *,
    mode: Mode = "infer",
    dtype: str | None = None,
    optimizer: str = "none",
    loss: Loss | None = None,
    target_name: str = "",
    assumptions: tuple[str, ...] = (),
    fakes: Fakes | None = None,
    progress: Progress = no_progress,
) -> Graph:
    """Record one step of a model without running it.

    Args:
        model: Any module, on any device, with real or fake parameters. It is left as it was.
        inputs: A tensor, a tuple (positional) or a mapping (keywords), real or fake.
        mode: ``"infer"``: one forward, in eval mode, without gradients. ``"train"``: forward, loss,
            backward and the optimiser's update, in train mode.
        dtype: Floating-point parameters and inputs are taken as of this dtype; None keeps theirs.
        optimizer: ``"none"``, ``"sgd"`` (momentum) or ``"adamw"``, torch's fused ones.
        loss: Callable of the model's output, for a model that returns no loss itself.
        target_name: What the user calls it.
        assumptions: What the caller took for granted, kept with the graph.
        fakes: What the model was built under, if without memory.
        progress: Told each stage in a word.

    Returns:
        The graph, as a GPU would run it.

    Raises:
        InputError: An argument is out of range.
        TargetError: The model fails, or training finds no loss. Carries the user's traceback.
    """
    check_mode(mode)
    check_optimizer(optimizer, mode)
    wanted = torch_dtype(dtype)
    model, notes = _unwrapped(model)
    lazy = is_lazy(model)
    model = copied(model) if lazy else model
    fakes = fakes or Fakes()
    faker = Faker(fakes, wanted)
    modules = ModuleStack()
    recorder = Recorder(modules, fakes.values)
    with noting() as noted, ExitStack() as stack:
        stack.enter_context(fake_weights(model, faker))
        inputs = faker.tree(inputs)
        model.train(mode == "train")
        for context in (
            fakes.mode,
            uncompiled(),
            fused_ops(),
            fused_scans(),
            causal_biases(),
            readable_masks(fakes.values),
        ):
            stack.enter_context(context)
        if lazy:
            progress("initialising lazy modules")
            _run_once(recorder, model, inputs, wanted)
        parameters = {
            recorder.storage_of(t): name
            for named in (model.named_buffers(), model.named_parameters())
            for name, t in named
        }
        given = tuple(recorder.storage_of(t) for t in tensors(inputs))
        stack.enter_context(modules.watch(model))
        stack.enter_context(user_errors("the model fails in its step"))
        stack.enter_context(gpu_as_cpu())
        stack.enter_context(control_flow(recorder))
        stack.enter_context(recorder)
        progress("running the step")
        if mode == "train":
            results = run_training(recorder, model, inputs, loss, optimizer)
        else:
            results = run_inference(model, inputs)
        wanted_after = tuple(dict.fromkeys(recorder.storage_of(t) for t in results))
    return Graph(
        target=target_name or type(model).__name__,
        mode=mode,
        ops=tuple(recorder.ops),
        inputs=given,
        parameters=parameters,
        results=wanted_after,
        assumptions=(*assumptions, *notes, *noted, *_assumed(mode, optimizer, wanted)),
        versions={"torch": str(torch.__version__)},
    )


def _run_once(recorder: Recorder, model: nn.Module, inputs: Any, dtype: torch.dtype | None) -> None:
    """A run that nobody records, for lazy modules."""
    recorder.paused = True
    with (
        user_errors("the model fails in its first run"),
        materialising(model, dtype),
        skip_init(),
        gpu_as_cpu(),
        control_flow(recorder),
        recorder,
    ):
        run_inference(model, inputs)
    recorder.paused = False


def check_mode(mode: str) -> None:
    """Refuse a mode that is neither ``infer`` nor ``train``."""
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")


def torch_dtype(name: str | None) -> torch.dtype | None:
    """A floating-point dtype by torch's name for it."""
    if name is None:
        return None
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise InputError(f"dtype must be a floating-point dtype of torch, got {name!r}")
    return dtype


def _unwrapped(model: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """The module inside a compiled one: what is counted is what the compiler was given."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if any(isinstance(m, torch.jit.ScriptModule) for m in model.modules()):
        raise InputError(
            f"model must be a Python module, got TorchScript ({type(model).__name__}): its source, "
            "or torch.export of it, can be captured"
        )
    inner = getattr(model, "_orig_mod", None)
    if isinstance(inner, nn.Module):
        return inner, ("the model is compiled: its uncompiled module was captured",)
    return model, ()


def _assumed(mode: Mode, optimizer: str, dtype: torch.dtype | None) -> Iterator[str]:
    if mode == "train":
        update = {
            "none": "no optimizer update",
            "sgd": "one fused SGD update with momentum",
            "adamw": "one fused AdamW update",
        }[optimizer]
        yield f"training step: forward, loss, backward, {update}; dropout as the model sets it"
    else:
        yield "inference: one forward in eval mode, no gradients kept"
    if dtype is not None:
        yield f"parameters and floating-point inputs taken as {str(dtype).removeprefix('torch.')}"
    precision = torch.get_float32_matmul_precision()
    if precision == "highest":
        yield "float32 matmul in full float32 (torch's default); float32 convolution in TF32"
    else:
        yield f"float32 matmul in TF32 (torch.set_float32_matmul_precision is {precision!r})"


@contextmanager
def user_errors(what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into a TargetError with the user's own traceback."""
    try:
        yield
    except RooftileError:
        raise
    except SystemExit as error:
        raise TargetError(f"{what}: it calls sys.exit({error.code!r})", "") from error
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        where = _line_of(error)
        raise TargetError(
            f"{what}{where}: it looks at a tensor's values ({error.func}), and a capture has "
            "shapes only",
            user_traceback(error),
        ) from error
    except Exception as error:
        message = f"{what}: {type(error).__name__}: {error}"
        raise TargetError(message, user_traceback(error)) from error


def _line_of(error: BaseException) -> str:
    """`` at file.py:12``, the user's line that an error came from; empty if there is none."""
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    line = LineFinder().nearest(reversed(frames))
    return f" at {line}" if line else ""


def user_traceback(error: BaseException) -> str:
    """The traceback of an error without the frames of Rooftile, of imports and of fake tensors."""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith((_ROOFTILE, "<frozen")) and _FAKE_TENSORS not in f.filename
    ]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return "".join(lines + traceback.format_exception_only(error))


def as_inputs(value: Any) -> Any:
    """Check that example inputs are a tensor, a tuple or list, or a mapping of names.

    Raises:
        InputError: They are something else.
    """
    if isinstance(value, (torch.Tensor, tuple, list)):
        return value
    if isinstance(value, Mapping) and all(isinstance(k, str) for k in value):
        return value
    raise InputError(
        "example inputs must be a tensor, a tuple of positional arguments or a mapping of keyword "
        f"arguments, got {type(value).__name__}"
    )
