"""A transformers ``config.json`` to a Graph: the architecture without its weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from rooftile.capture.module import (
    Mode,
    Progress,
    capture_module,
    fake_mode,
    no_progress,
    torch_dtype,
    user_errors,
)
from rooftile.errors import FileFormatError, InputError, MissingDependencyError
from rooftile.records.graph import Graph

# a common training length; shorter where the model has fewer positions
_DEFAULT_SEQ = 2048
_UNCACHED = "no key-value cache, no padding"
_LANGUAGE_HEADS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration")
_CLASS_HEADS = ("ForImageClassification", "ForSequenceClassification")


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
            has positions for. A vision model takes none.
        optimizer: As in ``capture_module``.
        progress: Told each stage in a word.

    Raises:
        InputError: An argument is out of range, or the architecture is unknown.
        FileFormatError: The file is no JSON object.
        MissingDependencyError: transformers is not installed.
        TargetError: The model cannot be built or run.
    """
    settings = _read(path)
    transformers = _transformers()
    model_class = _model_class(transformers, settings, path)
    wanted = dtype or settings.get("dtype") or settings.get("torch_dtype") or "float32"
    from transformers.initialization import no_init_weights

    progress("building the model")
    with user_errors(f"{model_class.__name__} cannot be built from {path}"), _quiet(transformers):
        config = model_class.config_class.from_dict(settings)
        cached = hasattr(config, "use_cache")
        if cached:
            config.use_cache = False
        with fake_mode() as fake, no_init_weights():
            model = model_class._from_config(config, dtype=torch_dtype(wanted))
            model.tie_weights()  # building without initialisation leaves this out
    sizes = _sizes(model, config, batch, seq)
    with fake:
        inputs = _inputs(model, config, sizes, torch_dtype(wanted), train=mode == "train")
    notes = [_UNCACHED] if cached else []
    with _one_sequence_a_row(), _quiet(transformers):
        return capture_module(
            model,
            inputs,
            mode=mode,
            optimizer=optimizer,
            target_name=path,
            assumptions=(
                *sizes.assumptions,
                f"weights in {wanted}",
                *notes,
            ),
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


def _model_class(transformers: Any, settings: dict[str, Any], path: str) -> Any:
    names = settings.get("architectures") or []
    name = names[0] if names else _default_class(settings.get("model_type"), path)
    model_class = getattr(transformers, name, None) if isinstance(name, str) else None
    if model_class is None or not hasattr(model_class, "_from_config"):
        near = get_close_matches(str(name), dir(transformers), n=3)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise InputError(
            f"target {path!r}: architecture {name!r} is not one of transformers "
            f"{transformers.__version__}{hint}"
        )
    return model_class


def _default_class(model_type: Any, path: str) -> str:
    """A config without ``architectures``: the language model of its type, else the bare model."""
    from transformers.models.auto import modeling_auto as auto

    for table in (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_MAPPING_NAMES):
        if model_type in table:
            name = table[model_type]
            return str(name if isinstance(name, str) else name[0])
    raise InputError(
        f"target {path!r}: it needs 'architectures', or a 'model_type' that transformers knows, "
        f"got {model_type!r}"
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    batch: int
    seq: int
    assumptions: tuple[str, ...]


def _sizes(model: Any, config: Any, batch: int | None, seq: int | None) -> _Sizes:
    for name, value in (("batch", batch), ("seq", seq)):
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    batch = batch or 1
    if model.main_input_name == "pixel_values":
        if seq is not None:
            raise InputError(f"seq: {type(model).__name__} takes images, not tokens, got {seq}")
        return _Sizes(batch, 0, (f"batch {batch}",))
    known = ("max_target_positions", "max_position_embeddings", "n_positions")
    positions = next((getattr(config, k) for k in known if getattr(config, k, None)), None)
    chosen = seq or min(_DEFAULT_SEQ, positions or _DEFAULT_SEQ)
    notes = [f"batch {batch}, {chosen} tokens a sequence"]
    if positions and chosen > positions:
        notes.append(f"{chosen} tokens are beyond the {positions} positions of the config")
    return _Sizes(batch, chosen, tuple(notes))


def _inputs(
    model: Any, config: Any, sizes: _Sizes, dtype: torch.dtype | None, *, train: bool
) -> dict[str, Any]:
    """Example inputs by the model's main input; in training with the labels its head takes."""
    tokens = (sizes.batch, sizes.seq)
    inputs: dict[str, Any]
    if model.main_input_name == "pixel_values":
        side = config.image_size
        sides = tuple(side) if isinstance(side, (tuple, list)) else (side, side)
        images = (sizes.batch, config.num_channels, *sides)
        inputs = {"pixel_values": torch.empty(images, dtype=dtype)}
    elif model.main_input_name == "input_features":
        # two mel frames a position: the encoder's second convolution has stride 2
        frames = 2 * config.max_source_positions
        shape = (sizes.batch, config.num_mel_bins, frames)
        inputs = {"input_features": torch.empty(shape, dtype=dtype)}
    else:
        inputs = {"input_ids": torch.empty(tokens, dtype=torch.int64)}
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = torch.empty(tokens, dtype=torch.int64)
    name = type(model).__name__
    if train and name.endswith(_LANGUAGE_HEADS):
        inputs["labels"] = torch.empty(tokens, dtype=torch.int64)
    elif train and name.endswith(_CLASS_HEADS):
        inputs["labels"] = torch.empty(sizes.batch, dtype=torch.int64)
    return inputs


@contextmanager
def _one_sequence_a_row() -> Iterator[None]:
    """Spare the library a look at the position ids for packed sequences: there are none.

    Without this it builds a full mask under fake tensors and repeats the key-value heads, and the
    attention that a GPU runs (causal, no mask, grouped heads) would not be the one recorded.
    """
    from transformers import masking_utils

    original = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = original


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Hold back the library's advice about kernels that are not installed on this machine."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
