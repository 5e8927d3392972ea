"""The examples, how each is audited, and sums over their ops."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from examples.expected import Step
from torch._subclasses.fake_tensor import FakeTensorMode

import rooftile
from examples import expected
from rooftile.records.estimate import Estimate, OpEstimate
from rooftile.records.graph import Op

EXAMPLES = Path(__file__).parents[2] / "examples"
MATMULS = {"mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "grouped_mm"}
CONVOLUTIONS = {"convolution", "convolution_backward"}
ATTENTIONS = {"attention", "attention_backward"}
SCANS = {"selective_scan", "selective_scan_backward"}
CAUSAL_CONVOLUTIONS = {"causal_conv1d", "causal_conv1d_backward"}


@dataclass(frozen=True)
class Example:
    """An example and how it is audited.

    Attributes:
        target: Below ``examples/``.
        step: Expected counts, by batch and sequence length.
        parameters: As published.
        source: The file its lines must come from.
        batch: Sequences or images.
        seq: Tokens; None where the target takes none.
        attention: Modules that attend, in order.
    """

    target: str
    step: Callable[[int, int], Step]
    parameters: int
    source: str
    batch: int = 2
    seq: int | None = 256
    attention: tuple[str, ...] = ()

    @property
    def expected(self) -> Step:
        """Counts at its batch and sequence length."""
        return self.step(self.batch, self.seq or 0)


def layers(count: int, *paths: str) -> tuple[str, ...]:
    """Module paths of all layers, ``{}`` standing for a layer's number."""
    return tuple(path.format(layer) for layer in range(count) for path in paths)


BY_NAME = {
    "llama-3-8b": Example(
        "llama-3-8b/config.json",
        expected.llama_3_8b,
        8_030_261_248,
        "modeling_llama.py",
        batch=1,
        seq=2048,
        attention=layers(32, "model.layers.{}.self_attn"),
    ),
    "mixtral-8x7b": Example(
        "mixtral-8x7b/config.json",
        expected.mixtral_8x7b,
        46_702_792_704,
        "modeling_mixtral.py",
        attention=layers(32, "model.layers.{}.self_attn"),
    ),
    "bert-base": Example(
        "bert-base/config.json",
        expected.bert_base,
        109_514_298,
        "modeling_bert.py",
        attention=layers(12, "bert.encoder.layer.{}.attention.self"),
    ),
    "vit-l-16": Example(
        "vit-l-16/config.json",
        expected.vit_l_16,
        304_326_632,
        "modeling_vit.py",
        seq=None,
        attention=layers(24, "vit.layers.{}.attention"),
    ),
    "mamba-130m": Example(
        "mamba-130m/config.json", expected.mamba_130m, 129_135_360, "modeling_mamba.py"
    ),
    "whisper-small": Example(
        "whisper-small/config.json",
        expected.whisper_small,
        241_734_912,
        "modeling_whisper.py",
        attention=layers(12, "model.encoder.layers.{}.self_attn")
        + layers(12, "model.decoder.layers.{}.self_attn", "model.decoder.layers.{}.encoder_attn"),
    ),
    "t5-small": Example(
        "t5-small/config.json",
        expected.t5_small,
        60_506_624,
        "modeling_t5.py",
        attention=layers(6, "encoder.block.{}.layer.0.SelfAttention")
        + layers(
            6, "decoder.block.{}.layer.0.SelfAttention", "decoder.block.{}.layer.1.EncDecAttention"
        ),
    ),
    "gpt2-small": Example(
        "gpt.py:gpt2_small",
        expected.gpt2_small,
        124_439_808,
        "gpt.py",
        attention=layers(12, "blocks.{}.attention"),
    ),
    "resnet50": Example(
        "resnet50.py:resnet50", expected.resnet50, 25_557_032, "resnet50.py", seq=None
    ),
}
ALL = pytest.mark.parametrize("name", BY_NAME)
MODES = pytest.mark.parametrize("mode", ["infer", "train"])


@cache
def audited(name: str, mode: str, dtype: str | None = None) -> Estimate:
    """The example's step, captured once a process."""
    example = BY_NAME[name]
    return rooftile.audit(
        str(EXAMPLES / example.target),
        gpu="h100-sxm",
        mode=mode,
        dtype=dtype,
        batch=example.batch,
        seq=example.seq,
    )


def matrix_flops(ops: Iterable[OpEstimate], names: set[str]) -> int:
    """Needed matrix FLOP of the ops of these names."""
    return sum(op.cost.matrix_flops for op in ops if op.name in names)


def dense_flops(ops: Iterable[OpEstimate], names: set[str]) -> int:
    """Matrix FLOP of the ops of these names without the savings of a mask."""
    return sum(op.cost.dense_matrix_flops for op in ops if op.name in names)


def attentions(estimate: Estimate) -> list[Op]:
    """The forward attention ops of the graph, in order."""
    return [op for op in estimate.graph.ops if op.name == "attention"]


def build(example: Example) -> torch.nn.Module:
    """The example's model without weights, built as its readers would build it."""
    path, _, name = str(EXAMPLES / example.target).partition(":")
    if not name:
        config = transformers.AutoConfig.from_pretrained(path)
        model_class = getattr(transformers, config.architectures[0])
        with FakeTensorMode(), transformers.initialization.no_init_weights():
            model: torch.nn.Module = model_class._from_config(config)
            model.tie_weights()
        return model
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(importlib.import_module("sys").modules, spec.name, module)
        spec.loader.exec_module(module)
        with FakeTensorMode():
            return getattr(module, name)(batch=1)[0]
