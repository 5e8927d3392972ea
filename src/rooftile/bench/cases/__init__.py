"""One file per op, each with a tuple CASES."""

from __future__ import annotations

from importlib import import_module

from rooftile.bench.case import Case
from rooftile.errors import InputError

OPS = (
    "softmax",
    "log_softmax",
    "rms_norm",
    "layer_norm",
    "add_rms_norm",
    "add_layer_norm",
    "cross_entropy",
    "bias_gelu_dropout_residual",
    "swiglu",
    "geglu",
    "rotary_embedding",
    "linear_cross_entropy",
    "attention",
)


def cases_of(op: str) -> tuple[Case, ...]:
    """The cases of one of Rooftile's ops.

    Raises:
        InputError: There is no such op; the message lists them.
    """
    if op not in OPS:
        raise InputError(f"op must be one of {', '.join(OPS)} or file.py:CASE, got {op!r}")
    found: tuple[Case, ...] = import_module(f"rooftile.bench.cases.{op}").CASES
    return found
