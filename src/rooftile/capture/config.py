"""A transformers ``config.json`` to a Graph: the architecture without its weights."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from rooftile.capture.config_inputs import Example, example, shapes_of
from rooftile.capture.config_labels import add_labels
from rooftile.capture.fake import Fakes
from rooftile.capture.module import (
    Mode,
    Progress,
    capture_module,
    no_progress,
    torch_dtype,
    user_errors,
)
from rooftile.errors import FileFormatError, InputError, MissingDependencyError, TargetError
from rooftile.records.graph import Graph

_UNCACHED = "no key-value cache, no padding"


def capture_config(
    path: str,
    *,
    mode: Mode = "infer",
    dtype: str | None = None,
    batch: int | None = None,
    seq: int | None = None,
    optimizer: str = "none",
    progress: Progress = no_progress,
) -> Graph:
    """Record one step of the architecture that a config.json describes.

    Args:
        path: The file, or the folder that holds it. Its ``architectures`` names the class.
        mode: ``"infer"`` or ``"train"``.
        dtype: Of the weights; None takes the config's own, else float32.
        batch: Sequences or images; None is 1.
        seq: Tokens a sequence (of the decoder, where there is one); None is 2048 or what the model
            has positions for. Samples of a waveform; None is 160,000. A vision model takes none.
        optimizer: As in ``capture_module``.
        progress: Told each stage in a word.

    Raises:
        InputError: An argument is out of range, the architecture is unknown, quantised without a
            dtype to take instead, has no loss to train on, or takes what no config.json describes.
        FileFormatError: The file is no JSON object.
        MissingDependencyError: transformers is not installed.
        TargetError: The model cannot be built or run.
    """
    settings = _read(path)
    fakes = Fakes()  # before the library: it loads what waits for nobody then
    transformers = _transformers()
    model_class = _model_class(transformers, settings, path)
    wanted, notes = _weights_dtype(settings, dtype, path)
    progress("building the model")
    where = f"{model_class.__name__} cannot be built from {path}"
    with _in_one_line(), user_errors(where), _quiet(transformers):
        model, config, more = _build(model_class, settings, wanted)
    with fakes.mode:
        made = example(model, config, batch=batch, seq=seq, dtype=wanted)
        if mode == "train":
            add_labels(made, model, config, wanted)
    weights = str(wanted).removeprefix("torch.")
    with _unchecked(), _quiet(transformers), _shown(made):
        return capture_module(
            model,
            made.inputs,
            mode=mode,
            optimizer=optimizer,
            target_name=path,
            assumptions=(*made.assumptions, f"weights in {weights}", *notes, *more),
            fakes=fakes,
            progress=progress,
        )


def _read(path: str) -> dict[str, Any]:
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    if not file.is_file():
        raise InputError(f"target {path!r}: no such file")
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise FileFormatError(f"target {path!r} is not valid JSON: {error}") from error
    if not isinstance(settings, dict):
        raise FileFormatError(
            f"target {path!r} must hold a JSON object, got a {type(settings).__name__}"
        )
    return settings


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingDependencyError(
            "a config.json target needs transformers: pip install 'rooftile[hf]'"
        ) from error
    return transformers


def _weights_dtype(
    settings: dict[str, Any], given: str | None, path: str
) -> tuple[torch.dtype, list[str]]:
    """The dtype of the weights, and what was left out for it.

    Raises:
        InputError: The weights are quantised and the user named no dtype to take them in: what
            such products move is not what a capture of the plain model says.
    """
    text = settings.get("text_config") or {}
    own = settings.get("dtype") or settings.get("torch_dtype") or text.get("dtype")
    own = own or text.get("torch_dtype") or "float32"
    if isinstance(own, dict):  # one for each part: the first is that of the whole
        own = next(iter(own.values()), "float32")
    name = given or ("float32" if own == "auto" else str(own).removeprefix("torch."))
    wanted = torch_dtype(name)
    assert wanted is not None
    quantised = settings.get("quantization_config") or text.get("quantization_config")
    if not quantised:
        return wanted, []
    method = quantised.get("quant_method") if isinstance(quantised, dict) else None
    what = f"quantization_config ({method or 'of no named method'})"
    if given is None:
        raise InputError(
            f"target {path!r}: its {what} cannot be captured; --dtype bfloat16 (or another) prices "
            "the model with plain weights of that dtype"
        )
    return wanted, [f"its {what} is left out: weights and products are plain {name}"]


def _model_class(transformers: Any, settings: dict[str, Any], path: str) -> Any:
    names = settings.get("architectures") or []
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"target {path!r}: 'architectures' must be a list of class names, got {names!r}"
        )
    name = names[0] if names else _default_class(settings, path)
    model_class = getattr(transformers, name, None)
    if model_class is None or not hasattr(model_class, "_from_config"):
        near = get_close_matches(name, dir(transformers), n=3)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise InputError(
            f"target {path!r}: architecture {name!r} is not one of transformers "
            f"{transformers.__version__}{hint}"
        )
    return model_class


def _build(
    model_class: Any, settings: dict[str, Any], dtype: torch.dtype
) -> tuple[Any, Any, list[str]]:
    """The model without memory for its weights, its configuration, and what was switched off.

    On the meta device, as transformers itself builds a model before it loads weights: under fake
    tensors some could not be, whose layers compute a schedule in numbers.
    """
    from transformers import initialization as init

    config = _configuration(model_class, settings)
    notes = []
    if hasattr(config, "use_cache"):
        config.use_cache = False
        notes.append(_UNCACHED)
    if getattr(config, "apply_spec_augment", False):
        config.apply_spec_augment = False  # it draws its masks with numpy
        notes.append("no SpecAugment")
    # newer than the oldest version that is supported
    numbers = getattr(init, "meta_device_safe_creation_ops", nullcontext)
    with torch.device("meta"), init.no_init_weights(), numbers():
        model = model_class._from_config(config, dtype=dtype)
        model.tie_weights()  # building without initialisation leaves this out
    return model, config, notes


def _configuration(model_class: Any, settings: dict[str, Any]) -> Any:
    """The settings as the class wants them: a language model of a larger one has a part of them."""
    from transformers import CONFIG_MAPPING

    wanted, whole = model_class.config_class, model_class.config_class
    kind = str(settings.get("model_type"))
    if kind in CONFIG_MAPPING:  # its get() finds no class that it has not loaded yet
        whole = CONFIG_MAPPING[kind]
    if not issubclass(whole, wanted):
        part = whole.from_dict(settings).get_text_config(decoder=True)
        return part if isinstance(part, wanted) else wanted.from_dict(settings)
    config = whole.from_dict(settings)
    if whole is not wanted and model_class.__name__.endswith("ForCausalLM"):
        return config.get_text_config(decoder=True)  # a class that leaves its settings' kind open
    return config


def _default_class(settings: dict[str, Any], path: str) -> str:
    """A config without ``architectures``: the language model of its type, else the bare model."""
    from transformers.models.auto import modeling_auto as auto

    pairs = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
    first = ("CAUSAL_LM",) if not settings.get("is_encoder_decoder") else (*pairs, "CAUSAL_LM")
    model_type = settings.get("model_type")
    names = [f"MODEL_FOR_{task}_MAPPING_NAMES" for task in first]
    names += ["MODEL_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"]
    for table in (getattr(auto, name, {}) for name in names):
        if model_type in table:
            name = table[model_type]
            return str(name if isinstance(name, str) else name[0])
    raise InputError(
        f"target {path!r}: it needs 'architectures', or a 'model_type' that transformers knows, "
        f"got {model_type!r}"
    )


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Hold back the library's advice about kernels that are not installed on this machine."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """The library asks for a missing package in a paragraph."""
    try:
        yield
    except TargetError as error:
        raise TargetError(" ".join(str(error).split()), error.traceback) from error


@contextmanager
def _unchecked() -> Iterator[None]:
    """Switch off the library's checks of values: an image's tokens counted in the text, and such.

    It reads this variable each time; a capture has no values.
    """
    name = "TRANSFORMERS_DISABLE_TORCH_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _shown(made: Example) -> Iterator[None]:
    """Say with an error of the model which inputs it was given."""
    try:
        yield
    except TargetError as error:
        raise TargetError(
            f"{error}; it was given {shapes_of(made.inputs)}, and a target file.py:callable can "
            "return other inputs",
            error.traceback,
        ) from error
