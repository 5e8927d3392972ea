"""What the head of a transformers model is trained on."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from rooftile.capture.config_inputs import Example
from rooftile.errors import InputError

# the end of a class's name -> what its labels are, one a ...
_TOKEN = (
    "ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "ForPreTraining",
    "ForTokenClassification", "EncoderDecoderModel", "ForSpeechSeq2Seq",
)  # fmt: skip
_EXAMPLE = (
    "ForImageClassification", "ForSequenceClassification", "ForAudioClassification",
    "ForVideoClassification", "ForMultipleChoice", "ForNextSentencePrediction",
)  # fmt: skip
_SPAN = ("ForQuestionAnswering", "ForQuestionAnsweringSimple")
_PIXEL = "ForSemanticSegmentation"
_KNOWN = (*_TOKEN, *_EXAMPLE, *_SPAN)
_CALLABLE = "a target file.py:callable can return the model, its inputs and its loss"


def add_labels(made: Example, model: Any, config: Any, dtype: torch.dtype | None) -> None:
    """Give a model the labels that its head takes. Call it where tensors are fake.

    Raises:
        InputError: The model has no loss, or labels that no config.json describes.
    """
    name = type(model).__name__
    takes = inspect.signature(model.forward).parameters
    if name.endswith(_SPAN) and "start_positions" in takes:
        for end in ("start_positions", "end_positions"):
            made.inputs[end] = torch.empty(made.batch, dtype=torch.int64)
    elif "labels" in takes and name.endswith(_TOKEN) and made.tokens:
        rows = list(made.inputs.values())[-1].shape[0] // made.tokens[0]
        books = (rows,) if rows > 1 else ()  # of several codebooks a label each
        made.inputs["labels"] = torch.empty((*made.tokens, *books), dtype=torch.int64)
        for second in ("next_sentence_label", "sentence_order_label"):
            if second in takes:
                made.inputs[second] = torch.empty(made.batch, dtype=torch.int64)
    elif "labels" in takes and name.endswith(_EXAMPLE):
        made.inputs["labels"] = _classes(made.batch, name, config, dtype)
    elif "labels" in takes and name.endswith(_PIXEL) and "pixel_values" in made.inputs:
        sides = made.inputs["pixel_values"].shape[-2:]
        made.inputs["labels"] = torch.empty((made.batch, *sides), dtype=torch.int64)
    elif "return_loss" in takes:
        made.inputs["return_loss"] = True
    elif "labels" in takes:
        raise InputError(f"the labels of {name} are not known from its config.json: {_CALLABLE}")
    else:
        raise InputError(f"{name} has no loss to train on: {_advice(config, name)}")


def _classes(batch: int, name: str, config: Any, dtype: torch.dtype | None) -> torch.Tensor:
    """One class an example, or one number, or one number a class."""
    if not name.endswith("ForMultipleChoice"):
        if getattr(config, "problem_type", None) == "multi_label_classification":
            return torch.empty((batch, config.num_labels), dtype=dtype)
        if getattr(config, "num_labels", 2) == 1:
            return torch.empty(batch, dtype=dtype)
    return torch.empty(batch, dtype=torch.int64)


def _advice(config: Any, name: str) -> str:
    """Which classes of the same type have a loss."""
    from transformers.models.auto import modeling_auto as auto

    heads: list[str] = []
    for table, names in vars(auto).items():
        if table.endswith("_MAPPING_NAMES") and config.model_type in names:
            found = names[config.model_type]
            heads += [found] if isinstance(found, str) else list(found)
    known = [h for h in dict.fromkeys(heads) if h.endswith((*_KNOWN, _PIXEL)) and h != name]
    if not known:
        return _CALLABLE
    return f"set 'architectures' in the config to {' or '.join(known[:3])}"
