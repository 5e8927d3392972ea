"""Every example, captured and priced, against counts worked out by hand."""

from __future__ import annotations

import json
import re

import pytest
import transformers
from examples.audited import (
    ALL,
    ATTENTIONS,
    BY_NAME,
    CAUSAL_CONVOLUTIONS,
    CONVOLUTIONS,
    EXAMPLES,
    MATMULS,
    MODES,
    SCANS,
    attentions,
    audited,
    build,
    dense_flops,
    layers,
    matrix_flops,
)

from examples import expected


def test_llama_reach_by_hand() -> None:
    """The hand-made counts of Llama-3-8B at 1 × 2048 tokens are the published ones."""
    step = expected.llama_3_8b(1, 2048)
    assert step.matmul == 30_739_080_937_472
    assert step.matmul_training == 92_217_242_812_416
    assert step.attention_dense == 2_199_023_255_552
    assert step.attention == 1_100_048_498_688


@ALL
def test_parameters(name: str) -> None:
    """The example has the parameters of the published model, and the hand count agrees."""
    example = BY_NAME[name]
    assert sum(p.numel() for p in build(example).parameters()) == example.parameters
    assert example.expected.parameters == example.parameters


@ALL
@MODES
def test_forward_flops(name: str, mode: str) -> None:
    """The forward's matrix work is exactly what the architecture says, family by family."""
    step = BY_NAME[name].expected
    forward = [op for op in audited(name, mode).ops if op.phase == "forward"]
    assert matrix_flops(forward, MATMULS) == step.matmul
    assert matrix_flops(forward, ATTENTIONS) == step.attention
    assert dense_flops(forward, ATTENTIONS) == step.attention_dense
    assert matrix_flops(forward, CONVOLUTIONS) == step.convolution


@ALL
def test_training_flops(name: str) -> None:
    """The whole training step's matrix work is exactly what the architecture says."""
    step = BY_NAME[name].expected
    ops = audited(name, "train").ops
    assert matrix_flops(ops, MATMULS) == step.matmul_training
    assert matrix_flops(ops, ATTENTIONS) == step.attention + step.attention_backward
    dense = step.attention_dense + step.attention_backward_dense
    assert dense_flops(ops, ATTENTIONS) == dense
    assert matrix_flops(ops, CONVOLUTIONS) == step.convolution_training


@ALL
@MODES
def test_no_matrix_work_elsewhere(name: str, mode: str) -> None:
    """Only matmuls, attention and convolutions do matrix work, so no count hides in a total."""
    estimate = audited(name, mode)
    families = MATMULS | ATTENTIONS | CONVOLUTIONS | SCANS | CAUSAL_CONVOLUTIONS
    assert {op.name for op in estimate.ops if op.cost.matrix_flops} <= families
    assert estimate.totals.matrix_flops == sum(op.cost.matrix_flops for op in estimate.ops)


@ALL
@MODES
def test_everything_priced(name: str, mode: str) -> None:
    """Every op that launches a kernel has a formula."""
    estimate = audited(name, mode)
    assert sorted({op.aten for op in estimate.ops if op.bound == "unpriced"}) == []
    assert estimate.totals.unpriced_ops == 0
    assert estimate.totals.unpriced_bytes == 0


@ALL
def test_forward_ops_have_lines(name: str) -> None:
    """Every forward op with a kernel names a line of the model's own file."""
    example = BY_NAME[name]
    line = re.compile(rf"(.*/)?{re.escape(example.source)}:\d+")
    rows = [op for op in audited(name, "train").ops if op.phase == "forward" and op.cost.kernels]
    # the loss of a transformers model, its rotary tables and masks stand in the library's files
    outside = re.compile(r"transformers/(loss/\w+|modeling_\w+|masking_utils|cache_utils)\.py:\d+")
    library = example.target.endswith(".json")
    wrong = [
        (op.aten, op.module, op.line)
        for op in rows
        if not (line.fullmatch(op.line) or (library and outside.fullmatch(op.line)))
    ]
    assert len(rows) > 100
    assert wrong == []


@ALL
def test_matmul_backward_lines(name: str) -> None:
    """Backward matrix work carries the module and the line of a forward op."""
    rows = [op for op in audited(name, "train").ops if op.cost.matrix_flops]
    forward = {(op.module, op.line) for op in rows if op.phase == "forward"}
    backward = {(op.module, op.line) for op in rows if op.phase == "backward"}
    assert backward == forward


@ALL
def test_modules_are_named(name: str) -> None:
    """Attention, forward and backward, runs in the modules that attend, in their order."""
    example = BY_NAME[name]
    rows = audited(name, "train").ops
    assert tuple(op.module for op in rows if op.name == "attention") == example.attention
    backward = [op.module for op in rows if op.name == "attention_backward"]
    assert sorted(backward) == sorted(example.attention)
    modules = {module for module, _ in build(example).named_modules()}
    matmuls = {op.module for op in rows if op.name in MATMULS}
    assert matmuls
    assert matmuls <= modules


def test_llama_attention_is_causal() -> None:
    """Llama's attention arrives causal, without a mask, with 8 key-value heads."""
    ops = attentions(audited("llama-3-8b", "train"))
    assert len(ops) == 32
    for op in ops:
        query, key, value = (op.operand(role) for role in ("query", "key", "value"))
        assert op.attrs["is_causal"] is True
        assert op.operand("attn_bias") is None
        assert query is not None
        assert query.shape == (1, 32, 2048, 128)
        assert key is not None
        assert value is not None
        assert key.shape == value.shape == (1, 8, 2048, 128)


def test_llama_attention_bytes() -> None:
    """Attention moves q, k, v, the output and a float32 log-sum-exp a row, each once."""
    rows = [op for op in audited("llama-3-8b", "train").ops if op.name == "attention"]
    wide, narrow = 2048 * 32 * 128 * 2, 2048 * 8 * 128 * 2
    for row in rows:
        assert row.cost.read_bytes == wide + 2 * narrow
        assert row.cost.write_bytes == wide + 2048 * 32 * 4


def test_whisper_attention_kinds() -> None:
    """Whisper's decoder is causal over its tokens; the encoder and the cross attention are not."""
    flags = {
        op.module: op.attrs["is_causal"] for op in attentions(audited("whisper-small", "train"))
    }
    assert len(flags) == 36
    for module, causal in flags.items():
        assert causal is (".decoder." in module and module.endswith(".self_attn"))


def test_t5_bias_has_a_gradient() -> None:
    """T5's position bias is an operand of attention, and the 12 self-attentions train it."""
    estimate = audited("t5-small", "train")
    biases = [op.operand("attn_bias") for op in attentions(estimate)]
    assert [b.shape for b in biases if b is not None] == [(1, 8, 256, 256)] * 18
    backward = [op for op in estimate.graph.ops if op.name == "attention_backward"]
    assert sum(op.attrs["bias_grad"] is True for op in backward) == 12


@MODES
def test_mamba_scan_is_one_op(mode: str) -> None:
    """The selective scan is one op a layer, and so is the causal convolution before it."""
    rows = audited("mamba-130m", mode).ops
    mixers = list(layers(24, "backbone.layers.{}.mixer"))
    for name in ("selective_scan", "causal_conv1d"):
        assert [op.module for op in rows if op.name == name] == mixers
        backward = [op.module for op in rows if op.name == f"{name}_backward"]
        assert backward == (mixers[::-1] if mode == "train" else [])


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_mixtral_in_other_dtypes(dtype: str) -> None:
    """Mixtral's experts run as grouped matmuls of the same size in every dtype."""
    step = BY_NAME["mixtral-8x7b"].expected
    ops = audited("mixtral-8x7b", "infer", dtype).ops
    assert matrix_flops(ops, MATMULS) == step.matmul
    assert sum(op.name == "grouped_mm" for op in ops) == 2 * 32


def test_gpt_weight_is_tied() -> None:
    """GPT-2's head and embedding share one weight: 148 parameters, 12 a layer and 4 around."""
    assert len(audited("gpt2-small", "train").graph.parameters) == 12 * 12 + 4


def test_configs_name_a_class_with_a_head() -> None:
    """Every config.json says which transformers class it is for."""
    for path in sorted(EXAMPLES.glob("*/config.json")):
        (name,) = json.loads(path.read_text(encoding="utf-8"))["architectures"]
        assert "For" in name
        assert hasattr(transformers, name)
