"""The ops that can be exported: how each is called, and what its result must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rooftile import ops
from rooftile.errors import InputError
from rooftile.ops.attention import attention_ref
from rooftile.ops.geglu import geglu_ref
from rooftile.ops.layer_norm import layer_norm_ref
from rooftile.ops.log_softmax import log_softmax_ref
from rooftile.ops.rms_norm import rms_norm_ref
from rooftile.ops.softmax import softmax_ref
from rooftile.ops.swiglu import swiglu_ref

Tensors = Mapping[str, Tensor]
Results = Tensor | tuple[Tensor, ...]
Shape = tuple[str, ...]

DTYPES = {
    "float32": (torch.float32, "fp32"),
    "float16": (torch.float16, "fp16"),
    "bfloat16": (torch.bfloat16, "bf16"),
}
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
_KEYS: Shape = ("batch", "kv_heads", "keys", "head_dim")
# Weights are rounded to the dtype before they meet the values: 2^-9 of a mean of values.
_ABSOLUTE_ATTENTION = {"float32": 1e-5, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclass(frozen=True)
class Tuned:
    """The size that decides about the kernel.

    Attributes:
        size: Its name.
        letter: What stands before its value in a symbol.
        default: Its value where none is asked for.
        farthest: Where the search for the kernel's limits ends; past it the op raises, or the
            limits are those of the parameters' types.
    """

    size: str = "cols"
    letter: str = "n"
    default: int = 4096
    farthest: int = 1 << 22


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

    def sizes(self) -> list[str]:
        """Names of all sizes, outermost first."""
        shapes = (*self.inputs.values(), *self.outputs.values())
        extents = (name for shape in shapes for extent in shape for name in extent.split(" * "))
        return list(dict.fromkeys(extents))


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
    "cross_entropy": "it is a training loss, of several kernels with PyTorch between them",
    "linear_cross_entropy": "it is a training loss that multiplies matrices with PyTorch",
    "bias_gelu_dropout_residual": "its mask is drawn from PyTorch's random numbers",
    "rotary_embedding": "its angles' layout is the caller's; export your own call of its kernel",
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
    ),
    "attention": _attention(causal=False),
    "attention_causal": _attention(causal=True),
}
