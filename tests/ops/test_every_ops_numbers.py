"""Numbers, switches and words of every op: a wrong kind is named, a right one is a plain number."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from rooftile import ops
from rooftile.errors import InputError

N = 8
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
X = torch.randn(3, N, device=DEVICE)
TURNED, ANGLES = torch.randn(3, 2, N, device=DEVICE), torch.randn(3, 4, device=DEVICE)
TARGET = torch.tensor([0, 1, 2], device=DEVICE)
# name -> a right call on which options are put
CALLS = {
    "softmax": lambda dim=-1: ops.softmax(X, dim),
    "log_softmax": lambda dim=-1: ops.log_softmax(X, dim),
    "rms_norm": lambda **options: ops.rms_norm(X, (N,), **options),
    "layer_norm": lambda **options: ops.layer_norm(X, (N,), **options),
    "add_rms_norm": lambda **options: ops.add_rms_norm(X, X, (N,), **options)[0],
    "add_layer_norm": lambda **options: ops.add_layer_norm(X, X, (N,), **options)[0],
    "bias_gelu_dropout_residual": lambda **options: ops.bias_gelu_dropout_residual(X, **options),
    "geglu": lambda **options: ops.geglu(X, X, **options),
    "cross_entropy": lambda **options: ops.cross_entropy(X, TARGET, **options),
    "linear_cross_entropy": lambda **options: ops.linear_cross_entropy(X, X, TARGET, **options),
    "rotary_embedding": lambda **options: ops.rotary_embedding(TURNED, ANGLES, ANGLES, **options),
}
NORMS = ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")
LOSSES = ("cross_entropy", "linear_cross_entropy")
DROPOUT = "bias_gelu_dropout_residual"
NUMBERS = [
    *[(op, "eps") for op in NORMS],
    *[(op, "weight_offset") for op in ("rms_norm", "add_rms_norm")],
    *[(op, name) for op in LOSSES for name in ("label_smoothing", "z_loss", "softcap")],
    (DROPOUT, "p"),
]
WHOLE = [
    *[(op, "dim") for op in ("softmax", "log_softmax")],
    *[(op, "ignore_index") for op in LOSSES],
]
SWITCHES = [
    *[(op, "cast_before_weight") for op in ("rms_norm", "add_rms_norm")],
    *[("rotary_embedding", name) for name in ("interleaved", "inplace")],
    *[(DROPOUT, name) for name in ("gelu", "training")],
]
WORDS = [
    *[(op, "reduction") for op in LOSSES],
    *[(op, "approximate") for op in (DROPOUT, "geglu")],
]
NO_NUMBERS = {
    "true": True,
    "text": "1",
    "bytes": b"1",
    "complex": 1j,
    "list": [1.0],
    "tensor": torch.tensor(0.5),
    "tensors": torch.tensor([0.5, 1.0]),
    "type": float,
}


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("wrong", [*NO_NUMBERS.values(), None], ids=[*NO_NUMBERS, "none"])
@pytest.mark.parametrize(("op", "name"), NUMBERS)
def test_what_is_no_number(op, name, wrong):
    """A tensor is none: to know its value the host would wait for the GPU."""
    if name == "eps" and wrong is None and "rms" in op:
        pytest.skip("None is torch's default")
    with pytest.raises(InputError, match=rf"^{name} must be a number, got "):
        CALLS[op](**{name: wrong})


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e39, 10**400], ids=str)
@pytest.mark.parametrize(("op", "name"), NUMBERS)
def test_a_number_that_float32_does_not_hold(op, name, wrong):
    """Kernels compute in it: there 1e39 is infinite."""
    with pytest.raises(InputError, match=rf"^{name} must be (finite|in \[0, 1\])"):
        CALLS[op](**{name: wrong})


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("op", LOSSES)
def test_a_softcap_that_float32_does_not_hold(op):
    """1e-46 is 0 there, by which a logit would be divided; what is below 2^-126 has few digits."""
    for softcap in (1e-46, 1e-38):
        with pytest.raises(InputError, match=r"^softcap must be 0 or at least 1.17549"):
            CALLS[op](softcap=softcap)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize(
    "wrong", [*NO_NUMBERS.values(), None, 1.0, math.nan], ids=[*NO_NUMBERS, "none", "float", "nan"]
)
@pytest.mark.parametrize(("op", "name"), WHOLE)
def test_what_is_no_integer(op, name, wrong):
    """1.0 is none either, as in torch, and True is a switch's."""
    with pytest.raises(InputError, match=rf"^{name} must be an integer, got "):
        CALLS[op](**{name: wrong})


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("wrong", [2**63, -(2**63) - 1, 10**5000], ids=["most", "least", "long"])
@pytest.mark.parametrize(("op", "name"), WHOLE)
def test_an_integer_of_more_than_64_bits(op, name, wrong):
    """Named even where Python refuses to write it out."""
    with pytest.raises(InputError, match=rf"^{name} must be an integer of 64 bits, got "):
        CALLS[op](**{name: wrong})


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("wrong", [None, 0, 1, 1.0, "no", [], torch.tensor([1, 2])], ids=str)
@pytest.mark.parametrize(("op", "name"), SWITCHES)
def test_what_is_no_switch(op, name, wrong):
    """As in torch: 0.1 for ``training`` would be a p that came one place too late."""
    with pytest.raises(InputError, match=f"^{name} must be True or False, got "):
        CALLS[op](**{name: wrong})


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("wrong", [None, 1, "mena", np.array(["none", "x"])], ids=str)
@pytest.mark.parametrize(("op", "name"), WORDS)
def test_what_is_no_word(op, name, wrong):
    """The words are listed."""
    with pytest.raises(InputError, match=f"^{name} must be none"):
        CALLS[op](**{name: wrong})


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("wrong", [8.0, True, "8", None, torch.tensor(8)], ids=str)
@pytest.mark.parametrize("op", NORMS)
def test_a_size_that_is_no_integer(op, wrong):
    """8.0 is equal to 8 and is none."""
    x = torch.randn(3, 1 if wrong is True else N)
    operands = [x, x] if op.startswith("add") else [x]
    with pytest.raises(InputError, match=r"^normalized_shape must be an integer, got "):
        getattr(ops, op)(*operands, (wrong,))


@pytest.mark.parametrize("number", [np.float32(0.5), Fraction(1, 2), np.float64(0.5)], ids=type)
@pytest.mark.parametrize(("op", "name"), NUMBERS)
def test_numbers_of_other_types(op, name, number):
    """NumPy's and rational numbers mean the float that they are equal to."""
    options = {"seed": torch.tensor([3], device=DEVICE)} if name == "p" else {}
    expected = CALLS[op](**{name: 0.5}, **options)
    assert torch.equal(CALLS[op](**{name: number}, **options), expected)


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_a_seed_that_is_none(p):
    """Refused where it is used and where nothing is dropped: one int64 in a tensor."""
    for seed in (3, -1, 2**64, True, "3"):
        with pytest.raises(InputError, match=r"^seed must be a tensor, got "):
            ops.bias_gelu_dropout_residual(X, p=p, seed=seed)
    for value in ([1, 2], [1.0], [True]):
        seed = torch.tensor(value, device=DEVICE)
        with pytest.raises(InputError, match=r"^seed must be one int64, got "):
            ops.bias_gelu_dropout_residual(X, p=p, seed=seed)


def test_no_argument_is_left_out():
    """Every argument that is no tensor and no shape is tried above."""
    tried = {*NUMBERS, *WHOLE, *SWITCHES, *WORDS}
    for op in CALLS:
        for name, parameter in inspect.signature(getattr(ops, op)).parameters.items():
            kind = str(parameter.annotation)
            if "Tensor" not in kind and name not in ("normalized_shape", "dtype"):
                assert (op, name) in tried
