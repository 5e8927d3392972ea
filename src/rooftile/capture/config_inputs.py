"""Example inputs of a transformers model, by what its forward takes and its config says."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rooftile.errors import InputError

# a common training length; shorter where the model has fewer positions
_DEFAULT_SEQ = 2048
# 10 s of speech at the 16 kHz of the models that take a waveform
_DEFAULT_SAMPLES = 160_000
# what the processors scale images to where the config does not say
_DEFAULT_SIDE = 224
_CHOICES = 4
_POSITIONS = (
    "max_target_positions", "max_position_embeddings", "n_positions", "max_seq_len", "n_ctx",
)  # fmt: skip
_PARTS = ("text_config", "decoder", "encoder", "text_encoder", "generator")
_VISION_PARTS = ("vision_config", "encoder", "backbone_config", "image_encoder")
# with these the vision tower cuts its input by values, which a capture has not
_CUT_BY_VALUES = ("image_grid_thw", "image_sizes", "pixel_attention_mask")


@dataclass(slots=True)
class Example:
    """One call of a model.

    Attributes:
        inputs: Keyword to tensor.
        batch: Sequences, images or recordings.
        tokens: Shape of the text, of the decoder's where there is one; empty where there is none.
        assumptions: What was taken for granted, in words.
    """

    inputs: dict[str, Any] = field(default_factory=dict)
    batch: int = 1
    tokens: tuple[int, ...] = ()
    assumptions: list[str] = field(default_factory=list)


def example(
    model: Any, config: Any, *, batch: int | None, seq: int | None, dtype: torch.dtype | None
) -> Example:
    """Inputs of the sizes asked for. Call it where tensors are fake.

    Args:
        model: A transformers model.
        config: Its configuration.
        batch: Sequences, images or recordings; None is 1.
        seq: Tokens a sequence, or samples of a waveform; None takes a common length.
        dtype: Of floating-point inputs.

    Raises:
        InputError: A size is out of range or has no meaning for the model, or the model takes
            what no config.json describes.
    """
    for name, value in (("batch", batch), ("seq", seq)):
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    takes = inspect.signature(model.forward).parameters
    made = Example(batch=batch or 1)
    made.assumptions.append(f"batch {made.batch}")
    try:
        _text(made, model, config, seq, takes)
        if "pixel_values" in takes:
            _images(made, config, dtype, takes)
        _audio(made, config, None if made.tokens else seq, dtype, takes)
    except (RuntimeError, OverflowError) as error:  # of torch, about sizes beyond int64
        raise InputError(f"batch {batch} and seq {seq} make no tensor: {error}") from error
    if seq is not None and not made.tokens and "input_values" not in made.inputs:
        raise InputError(f"seq: {type(model).__name__} takes images, not tokens, got {seq}")
    _check_complete(made, model, takes)
    return made


def _text(made: Example, model: Any, config: Any, seq: int | None, takes: Any) -> None:
    """Tokens, and those of the decoder."""
    wanted = [name for name in ("input_ids", "decoder_input_ids") if name in takes]
    if not getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in wanted:
        wanted.remove("decoder_input_ids")
    if not wanted:
        return
    positions = min(_positions(model, config), default=None)
    chosen = seq or min(_DEFAULT_SEQ, positions or _DEFAULT_SEQ)
    shape: tuple[int, ...] = (made.batch, chosen)
    made.assumptions[0] += f", {chosen} tokens a sequence"
    if positions and chosen > positions:
        made.assumptions.append(
            f"{chosen} tokens are beyond the {positions} positions of the config"
        )
    if type(model).__name__.endswith("ForMultipleChoice"):
        shape = (made.batch, _CHOICES, chosen)
        made.assumptions[0] += f", {_CHOICES} choices"
    made.tokens = shape
    books = _codebooks(model, config)
    for name in wanted:
        # of several codebooks each has a row of its own
        rows = shape if name != wanted[-1] else (shape[0] * books, *shape[1:])
        made.inputs[name] = torch.empty(rows, dtype=torch.int64)
    if books > 1:
        made.assumptions[0] += f" in each of {books} codebooks"


def _codebooks(model: Any, config: Any) -> int:
    """Rows of tokens a sequence of a model of music has; 1 of all others."""
    if not type(model).__name__.startswith("Musicgen"):
        return 1
    return _first((config, getattr(config, "decoder", None)), "num_codebooks") or 1


def _positions(model: Any, config: Any) -> Iterator[int]:
    """Every limit to the number of tokens."""
    for part in (config, *(getattr(config, name, None) for name in _PARTS)):
        found = (getattr(part, name, None) for name in _POSITIONS)
        # some configs have -1 or nothing where there is no limit
        first = next((n for n in found if isinstance(n, int) and n > 0), None)
        if first is not None:
            yield first
    for name, module in model.named_modules():
        padded = isinstance(module, nn.Embedding) and module.padding_idx is not None
        if padded and name.endswith("position_embeddings"):
            # the places up to that of padding are no token's
            yield module.num_embeddings - module.padding_idx - 1


def _images(made: Example, config: Any, dtype: torch.dtype | None, takes: Any) -> None:
    """One image an example, or the frames of one video."""
    cut = [name for name in _CUT_BY_VALUES if name in takes]
    tower = getattr(config, "vision_config", None)
    if config.model_type == "llava" and getattr(tower, "model_type", "") != "pixtral":
        cut = []  # it takes their sizes for the sake of that tower alone
    if cut and "input_ids" in made.inputs:
        made.assumptions.append(
            f"text alone, no images: the vision tower cuts them by the values of {cut[0]}"
        )
        return
    parts = (config, *(getattr(config, name, None) for name in _VISION_PARTS))
    side = _first(parts, "image_size")
    channels = _first(parts, "num_channels") or _first(parts, "in_channels") or 3
    if side is None:
        side = _DEFAULT_SIDE
        made.assumptions.append(
            f"images of {side} x {side}: the config does not say, processors usually scale to that"
        )
    if isinstance(side, dict):
        side = (side.get("height"), side.get("width"))
    sides = tuple(side) if isinstance(side, (tuple, list)) else (side, side)
    frames = _first(parts, "num_frames")
    film = (frames,) if frames and "input_ids" not in made.inputs else ()
    shape = (made.batch, *film, channels, *sides)
    made.inputs["pixel_values"] = torch.empty(shape, dtype=dtype)
    if made.tokens:
        within = _first((config,), "image_token_id") or _first((config,), "image_token_index")
        among = ", its tokens among those of the sequence" if within else ""
        made.assumptions.append(f"one image an example{among}")


def _audio(
    made: Example, config: Any, seq: int | None, dtype: torch.dtype | None, takes: Any
) -> None:
    """A recording: a waveform, or a spectrogram where the config says its shape."""
    if "input_values" in takes and {"input_ids", "decoder_input_ids"} <= made.inputs.keys():
        return  # the text is encoded; the audio would stand in for the decoder's tokens
    if "input_values" in takes:
        bins = getattr(config, "num_mel_bins", None)
        frames = getattr(config, "max_length", None)
        if bins and frames and getattr(config, "time_stride", None):
            shape: tuple[int, ...] = (made.batch, frames, bins)
        else:
            samples = seq or _DEFAULT_SAMPLES
            channels = getattr(config, "audio_channels", None)
            shape = (made.batch, *((channels,) if channels else ()), samples)
            made.assumptions[0] += f", {samples} samples of audio (16,000 are a second)"
        made.inputs["input_values"] = torch.empty(shape, dtype=dtype)
    elif "input_features" in takes:
        features = _features(made.batch, config)
        if features is None and "input_ids" in made.inputs:
            made.assumptions.append("text alone: the config does not say what its audio looks like")
        elif features is not None:
            made.inputs["input_features"] = torch.empty(features, dtype=dtype)
            if "input_ids" in made.inputs and "decoder_input_ids" in made.inputs:
                del made.inputs["input_ids"]  # either the text or the speech is encoded


def _features(batch: int, config: Any) -> tuple[int, ...] | None:
    """Shape of a spectrogram; None where the config does not say it."""
    frames = getattr(config, "max_source_positions", None)
    bins = getattr(config, "num_mel_bins", None)
    if frames and bins:
        # two mel frames a position: the encoder's second convolution has stride 2
        return batch, bins, 2 * frames
    filters = getattr(config, "input_feat_per_channel", None)
    if frames and filters:
        return batch, frames, filters * getattr(config, "input_channels", 1)
    return None


def _check_complete(made: Example, model: Any, takes: Any) -> None:
    """Refuse a model whose forward needs what is not there."""
    missing = [
        name
        for name, parameter in takes.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in made.inputs
    ]
    if not made.inputs:
        missing = missing or [str(model.main_input_name)]
    if missing:
        raise InputError(
            f"{type(model).__name__} takes {', '.join(missing)}, of which a config.json says "
            "nothing: a target file.py:callable can return the model and its inputs"
        )


def _first(parts: tuple[Any, ...], name: str) -> Any:
    """The first part's that has it; a part may be a plain mapping."""
    for part in parts:
        value = part.get(name) if isinstance(part, dict) else getattr(part, name, None)
        if value is not None:
            return value
    return None


def shapes_of(inputs: dict[str, Any]) -> str:
    """``"input_ids [1, 2048] and labels [1, 2048]"``."""
    return " and ".join(
        f"{name} {list(value.shape)}" if isinstance(value, Tensor) else name
        for name, value in inputs.items()
    )
