"""The ops that can be exported: how each is called, and what its result must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rooftile import ops
from rooftile.errors import InputError
from rooftile.export.formula import names_in
from rooftile.ops.attention import attention_ref
from rooftile.ops.bias_gelu_dropout_residual import bias_gelu_dropout_residual_ref
from rooftile.ops.cross_entropy import cross_entropy_ref
from rooftile.ops.geglu import geglu_ref
from rooftile.ops.layer_norm import layer_norm_ref
from rooftile.ops.log_softmax import log_softmax_ref
from rooftile.ops.rms_norm import rms_norm_ref
from rooftile.ops.rotary_embedding import rotary_embedding_ref
from rooftile.ops.rows.cross_entropy import fwd_op as cross_entropy_op
from rooftile.ops.softmax import softmax_ref
from rooftile.ops.swiglu import swiglu_ref
from rooftile.records.manifest import Form

Tensors = Mapping[str, Tensor]
Results = Tensor | tuple[Tensor, ...]
Shape = tuple[str, ...]

DTYPES = {
    "float32": (torch.float32, "fp32"),
    "float16": (torch.float16, "fp16"),
    "bfloat16": (torch.bfloat16, "bf16"),
}
TENSOR_DTYPES = {**DTYPES, "int64": (torch.int64, "i64")}  # those of one tensor of an op
RMS_EPS, LAYER_EPS = 1e-6, 1e-5  # what the scalar is where a launch sets none

# One unit in the last place of a 16-bit result; what float32 sums of 10^5 elements may be off.
RELATIVE = {"float32": 1e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_ABSOLUTE = {"float32": 1e-6, "float16": 1e-6, "bfloat16": 1e-6}
# A norm with a mean takes differences of what it was given: its error follows the largest element.
_ABSOLUTE_MEAN = {"float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}

_MATRIX: Shape = ("rows", "cols")
_ROW: Shape = ("cols",)
_FLAT: Shape = ("elements",)
_QUERIES: Shape = ("batch", "kv_heads * group", "queries", "head_dim")
_HEADS: Shape = ("batch", "positions", "heads", "head_dim")
_ANGLES: Shape = ("positions", "ceil(head_dim / 2)")
_KEYS: Shape = ("batch", "kv_heads", "keys", "head_dim")
# Weights are rounded to the dtype before they meet the values: 2^-9 of a mean of values.
_ABSOLUTE_ATTENTION = {"float32": 1e-5, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# GELU's Phi is off by 1.5e-7 and is multiplied by up to 5 * 5; a pair of products that cancel, of
# up to 5 * 5 each, is off by 2^-24 of one.
_ABSOLUTE_PRODUCT = dict.fromkeys(DTYPES, 4e-6)
# A log-sum-exp of float32 less a logit: some units in the last place of 2^4.
_ABSOLUTE_LOSS = dict.fromkeys(DTYPES, 1e-5)


@dataclass(frozen=True)
class Tuned:
    """The size that decides about the kernel.

    Attributes:
        size: Its name.
        letter: What stands before its value in a symbol.
        default: Its value where none is asked for.
        farthest: Where the search for the kernel's limits ends; past it the op raises, or the
            limits are those of the parameters' types.
        step: The op takes its multiples alone.
    """

    size: str = "cols"
    letter: str = "n"
    default: int = 4096
    farthest: int = 1 << 22
    step: int = 1


@dataclass(frozen=True)
class OpSpec:
    """An op as it is exported.

    Attributes:
        symbol: What the names of its kernels begin with.
        inputs: Tensor to its shape.
        outputs: The same, in the order in which the op gives them.
        run: The public op.
        reference: Its definition; it computes in float64 where it gets float64.
        tuned: The size that decides about the kernel.
        golden: Values of the other sizes for which a result is written.
        absolute: Absolute tolerance by dtype.
        float32: Outputs in float32 whatever the dtype.
        whole: Sizes that in the aligned form are multiples of a number.
        probes: Three values of each size at which the op takes the kernel that is exported; primes
            where they are not given.
        below: Tensors of int64 to the size under which their values lie.
        fixed: Scalars that no launch may set: the kernel was compiled for their values.
    """

    symbol: str
    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]
    run: Callable[[Tensors], Results]
    reference: Callable[[Tensors], Results]
    tuned: Tuned = Tuned()
    golden: Mapping[str, int] = field(default_factory=lambda: {"rows": 3})
    absolute: Mapping[str, float] = field(default_factory=lambda: _ABSOLUTE)
    float32: frozenset[str] = frozenset()
    whole: Mapping[str, int] = field(default_factory=dict)
    probes: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    below: Mapping[str, str] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()

    def forms(self) -> tuple[Form, ...]:
        """The forms in which it is exported, the fastest first."""
        return ("aligned", "uneven", "any") if self.whole else ("aligned", "any")

    def sizes(self) -> list[str]:
        """Names of all sizes, outermost first."""
        shapes = (*self.inputs.values(), *self.outputs.values())
        extents = (name for shape in shapes for extent in shape for name in names_in(extent))
        return list(dict.fromkeys(extents))

    def dtype_of(self, tensor: str, dtype: str) -> str:
        """Dtype of a tensor where the op is exported for ``dtype``."""
        if tensor in self.below:
            return "int64"
        return "float32" if tensor in self.float32 else dtype


def op_spec(name: str) -> OpSpec:
    """An op that can be exported.

    Raises:
        InputError: There is none of that name, or it cannot be exported; the message says why.
    """
    if name in SPECS:
        return SPECS[name]
    known = ", ".join(SPECS)
    if name in REFUSED:
        raise InputError(f"op {name!r} cannot be exported: {REFUSED[name]}; these can: {known}")
    raise InputError(f"op must be one of {known}, or file.py:kernel, got {name!r}")


REFUSED = {
    "linear_cross_entropy": "it is a training loss that multiplies matrices with PyTorch",
}


def _width(t: Tensors) -> tuple[int]:
    return (t["x"].shape[-1],)


def _sum(t: Tensors) -> Tensor:
    """x + residual as the op writes it: rounded to their dtype before it is normalized."""
    dtype = t["x"].dtype
    return (t["x"].double() + t["residual"].double()).to(dtype).double()


def _wide(t: Tensors) -> dict[str, Tensor]:
    return {name: tensor.double() for name, tensor in t.items()}


def _attention(causal: bool) -> OpSpec:
    """Attention over contiguous tensors; keys in whole blocks, or any number of them."""
    return OpSpec(
        "attention_causal_fwd" if causal else "attention_fwd",
        {"q": _QUERIES, "k": _KEYS, "v": _KEYS},
        {"o": _QUERIES, "lse": _QUERIES[:3]},
        lambda t: ops.attention(t["q"], t["k"], t["v"], is_causal=causal, return_lse=True),
        lambda t: attention_ref(_wide(t)["q"], _wide(t)["k"], _wide(t)["v"], is_causal=causal),
        Tuned("head_dim", "d", 128, 256),
        {"batch": 1, "kv_heads": 1, "group": 2, "queries": 128, "keys": 128},
        _ABSOLUTE_ATTENTION,
        float32=frozenset({"lse"}),
        whole={"keys": 128},
        probes={"queries": (521, 1031, 769), "keys": (523, 1033, 773)},
    )


SPECS: dict[str, OpSpec] = {
    "softmax": OpSpec(
        "softmax_fwd",
        {"x": _MATRIX},
        {"y": _MATRIX},
        lambda t: ops.softmax(t["x"], -1),
        lambda t: softmax_ref(_wide(t)["x"]),
    ),
    "log_softmax": OpSpec(
        "log_softmax_fwd",
        {"x": _MATRIX},
        {"y": _MATRIX},
        lambda t: ops.log_softmax(t["x"], -1),
        lambda t: log_softmax_ref(_wide(t)["x"]),
    ),
    "rms_norm": OpSpec(
        "rms_norm_fwd",
        {"x": _MATRIX, "weight": _ROW},
        {"y": _MATRIX},
        lambda t: ops.rms_norm(t["x"], _width(t), t["weight"], RMS_EPS),
        lambda t: rms_norm_ref(_wide(t)["x"], _wide(t)["weight"], RMS_EPS),
    ),
    "layer_norm": OpSpec(
        "layer_norm_fwd",
        {"x": _MATRIX, "weight": _ROW, "bias": _ROW},
        {"y": _MATRIX},
        lambda t: ops.layer_norm(t["x"], _width(t), t["weight"], t["bias"], LAYER_EPS),
        lambda t: layer_norm_ref(_wide(t)["x"], _wide(t)["weight"], _wide(t)["bias"], LAYER_EPS),
        absolute=_ABSOLUTE_MEAN,
    ),
    "add_rms_norm": OpSpec(
        "add_rms_norm_fwd",
        {"x": _MATRIX, "residual": _MATRIX, "weight": _ROW},
        {"y": _MATRIX, "h": _MATRIX},
        lambda t: ops.add_rms_norm(t["x"], t["residual"], _width(t), t["weight"], RMS_EPS),
        lambda t: (rms_norm_ref(_sum(t), _wide(t)["weight"], RMS_EPS), _sum(t)),
    ),
    "add_layer_norm": OpSpec(
        "add_layer_norm_fwd",
        {"x": _MATRIX, "residual": _MATRIX, "weight": _ROW, "bias": _ROW},
        {"y": _MATRIX, "h": _MATRIX},
        lambda t: ops.add_layer_norm(
            t["x"], t["residual"], _width(t), t["weight"], t["bias"], LAYER_EPS
        ),
        lambda t: (
            layer_norm_ref(_sum(t), _wide(t)["weight"], _wide(t)["bias"], LAYER_EPS),
            _sum(t),
        ),
        absolute=_ABSOLUTE_MEAN,
    ),
    "swiglu": OpSpec(
        "swiglu_fwd",
        {"gate": _FLAT, "up": _FLAT},
        {"y": _FLAT},
        lambda t: ops.swiglu(t["gate"], t["up"]),
        lambda t: swiglu_ref(_wide(t)["gate"], _wide(t)["up"]),
        Tuned("elements", "e", 65536),
        {},
    ),
    "geglu": OpSpec(
        "geglu_fwd",
        {"gate": _FLAT, "up": _FLAT},
        {"y": _FLAT},
        lambda t: ops.geglu(t["gate"], t["up"]),
        lambda t: geglu_ref(_wide(t)["gate"], _wide(t)["up"]),
        Tuned("elements", "e", 65536),
        {},
        _ABSOLUTE_PRODUCT,
    ),
    "bias_gelu_dropout_residual": OpSpec(
        "bias_gelu_residual_fwd",
        {"x": _MATRIX, "bias": _ROW, "residual": _MATRIX},
        {"y": _MATRIX},
        lambda t: ops.bias_gelu_dropout_residual(t["x"], t["bias"], t["residual"]),
        lambda t: bias_gelu_dropout_residual_ref(
            _wide(t)["x"], _wide(t)["bias"], _wide(t)["residual"]
        ),
        absolute=_ABSOLUTE_PRODUCT,
        fixed=frozenset({"scale"}),
    ),
    "rotary_embedding": OpSpec(
        "rotary_embedding_fwd",
        {"x": _HEADS, "cos": _ANGLES, "sin": _ANGLES},
        {"y": _HEADS},
        lambda t: ops.rotary_embedding(t["x"], t["cos"], t["sin"]),
        lambda t: rotary_embedding_ref(_wide(t)["x"], _wide(t)["cos"], _wide(t)["sin"]),
        Tuned("head_dim", "d", 128, 1024, 2),
        {"batch": 2, "positions": 5, "heads": 3},
        _ABSOLUTE_PRODUCT,
    ),
    "cross_entropy": OpSpec(
        "cross_entropy_fwd",
        {"x": _MATRIX, "target": _MATRIX[:1]},
        {"loss": _MATRIX[:1], "lse": _MATRIX[:1]},
        lambda t: cross_entropy_op(t["x"], t["target"], "none", -100, 0.0, 0.0, 0.0)[::2],
        lambda t: (
            cross_entropy_ref(t["x"].double(), t["target"], reduction="none"),
            t["x"].double().logsumexp(-1),
        ),
        absolute=_ABSOLUTE_LOSS,
        float32=frozenset({"loss", "lse"}),
        below={"target": "cols"},
        fixed=frozenset({"smoothing", "softcap"}),
    ),
    "attention": _attention(causal=False),
    "attention_causal": _attention(causal=True),
}
