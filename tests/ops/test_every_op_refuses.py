"""Bad input, the same for every op: named in an InputError before anything is launched."""

from __future__ import annotations

import math

import pytest
import torch
from ops.calls import CALLS, TARGET, N, shaped

from rooftile import ops
from rooftile.errors import InputError

pytestmark = pytest.mark.usefixtures("no_launch")  # their operands are never looked at
WRONG = {
    "int32": torch.ones(3, N, dtype=torch.int32),
    "bool": torch.ones(3, N, dtype=torch.bool),
    "float64": torch.ones(3, N, dtype=torch.float64),
    "complex": torch.ones(3, N, dtype=torch.complex64),
    "float8": torch.ones(3, N).to(torch.float8_e4m3fn),
    "sparse": torch.ones(3, N).to_sparse(),
    "nested": torch.nested.nested_tensor([torch.ones(1, N), torch.ones(2, N)]),
    "none": None,
    "number": 3.0,
    "list": [1.0, 2.0],
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("op", CALLS)
def test_an_operand_that_is_none(op, wrong):
    """Another dtype, no tensor, or one without strides."""
    x = WRONG[wrong]
    if isinstance(x, torch.Tensor) and x.layout == torch.strided and not x.is_nested:
        x = shaped(op, x)
    with pytest.raises(InputError, match=r" must (be|have) "):
        CALLS[op](x)


def test_a_launch_would_be_seen(device):
    """Meta-test: a right call is stopped at its kernel."""
    with pytest.raises(AssertionError, match="a kernel was launched"):
        ops.softmax(torch.randn(3, N, device=device), -1)


def test_every_op_is_in_the_table():
    """A new op that is not here would not be tried."""
    functions = {name for name in ops.__all__ if name.islower()}
    assert functions - set(CALLS) == {"attention_plan"}


@pytest.mark.parametrize("eps", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"])
def test_an_eps_that_makes_garbage(op, eps):
    """Below 0 the root is of a negative number; NaN and infinity leave nothing of the row."""
    x = torch.randn(3, N)
    with pytest.raises(InputError, match="eps must be finite and at least 0, got"):
        getattr(ops, op)(*([x, x] if op.startswith("add") else [x]), (N,), eps=eps)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["z_loss", "softcap"])
def test_a_factor_of_a_loss_that_makes_garbage(name, value):
    """``inf * tanh(x / inf)`` is NaN: no soft-cap is 0, not infinity."""
    x = torch.randn(3, N)
    for call in (
        lambda **options: ops.cross_entropy(x, TARGET, **options),
        lambda **options: ops.linear_cross_entropy(x, torch.randn(5, N), TARGET, **options),
        lambda **options: ops.CrossEntropyLoss(**options),
    ):
        with pytest.raises(InputError, match=f"{name} must be finite and at least 0, got"):
            call(**{name: value})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.softmax(x, 1.0), "dim must be an integer, got 1.0"),
        (lambda x: ops.log_softmax(x, None), "dim must be an integer, got None"),
        (lambda x: ops.softmax(x, (0, 1)), r"dim must be an integer, got \(0, 1\)"),
        (lambda x: ops.softmax(x, -1, torch.int32), "dtype must be float32, .*got torch.int32"),
        (lambda x: ops.softmax(x, -1, "float32"), "dtype must be float32, .*got 'float32'"),
        (lambda x: ops.softmax(x, -1, x), r"dtype must .*got a tensor of shape \[3, 8\]"),
        (lambda x: ops.rms_norm(x, N), "normalized_shape must be a tuple or a list .*got 8"),
        (lambda x: ops.layer_norm(x, None), "normalized_shape must be a tuple .*got None"),
        (lambda x: ops.layer_norm(x, (N,), 3.0), "weight must be a tensor, got float"),
        (lambda x: ops.layer_norm(x, (N,), None, 3.0), "bias must be a tensor, got float"),
        (lambda x: ops.add_rms_norm(x, None, (N,)), "residual must be a tensor, got NoneType"),
        (lambda x: ops.swiglu(x, None), "up must be a tensor, got NoneType"),
        (lambda x: ops.bias_gelu_dropout_residual(x, None, 3.0), "residual must be a tensor"),
        (lambda x: ops.bias_gelu_dropout_residual(x, p=0.5, seed=3), "seed must be a tensor"),
        (lambda x: ops.cross_entropy(x, [0, 1, 2]), "target must be a tensor, got list"),
        (lambda x: ops.cross_entropy(x, x.softmax(-1)), "target must be int64 or int32, got t"),
        (lambda x: ops.linear_cross_entropy(x, None, TARGET), "linear_weight must be a tensor"),
        (lambda x: ops.rotary_embedding(x[:, None], None, x), "cos must be a tensor"),
        (lambda x: ops.attention(x, x, None), "value must be a tensor, got NoneType"),
        (lambda x: ops.attention(*[x[None, None]] * 3, attn_mask=1.0), "attn_mask must be a"),
        (lambda x: ops.attention(*[x[None, None]] * 3, sinks=1.0), "sinks must be a tensor"),
        (lambda x: ops.attention(*[x[None, None]] * 3, alibi_slopes=1.0), "alibi_slopes must be a"),
        (lambda x: ops.attention(*[x[None, None]] * 3, window_size=3), "window_size must be two"),
    ],
)  # fmt: skip
def test_another_argument_that_is_none(call, message):
    """Named, with what was wanted and what came."""
    with pytest.raises(InputError, match=message):
        call(torch.randn(3, N))


def test_rows_that_lie_over_each_other_are_not_turned_in_place():
    """An expanded tensor would be turned as often as it is seen."""
    x = torch.randn(1, 3, 2, N).expand(4, -1, -1, -1)
    with pytest.raises(InputError, match="x must not be expanded when inplace is set"):
        ops.rotary_embedding(x, torch.randn(3, 4), torch.randn(3, 4), inplace=True)


@pytest.mark.parametrize("op", CALLS)
def test_a_tensor_without_memory(op):
    """On the meta device an op says what it would give, as torch's do."""
    x = shaped(op, torch.empty(3, N, device="meta"))
    expected = () if "entropy" in op else x.shape
    result = CALLS[op](x)
    for t in result if isinstance(result, tuple) else (result,):
        assert t.is_meta
        assert t.shape == expected


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize(
    ("bias", "message"),
    [(3.0, "must be a tensor, got float"), (torch.ones(5, dtype=torch.int32), "must be float32")],
)
def test_a_bias_that_autocast_would_cast(bias, message, enabled):
    """Looked at before: a float has no ``to``, and integers would come out as floats."""
    x, weight = torch.randn(3, N), torch.randn(5, N)
    cast = torch.autocast("cpu", torch.bfloat16, enabled=enabled)
    with cast, pytest.raises(InputError, match=f"linear_bias {message}"):
        ops.linear_cross_entropy(x, weight, TARGET, linear_bias=bias)
