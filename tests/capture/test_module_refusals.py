"""What a captured module does with optimizers, losses and arguments that cannot be taken."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rooftile.capture.module import capture_module
from rooftile.errors import InputError, TargetError


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_optimizer_updates_every_parameter(optimizer):
    """One fused update over all parameters, in its own phase; gradients are only read."""

    def loss(out):
        return out.sum()

    graph = capture_module(
        nn.Linear(4, 4), torch.zeros(2, 4), mode="train", loss=loss, optimizer=optimizer
    )
    (op,) = [op for op in graph.ops if op.aten.startswith(f"aten._fused_{optimizer}_")]
    assert op.phase == "optimizer"
    assert [o.writes for o in op.inputs if o.role.startswith("self")] == [True, True]
    assert not any(o.writes for o in op.inputs if o.role.startswith("grads"))
    assert any("update" in note for note in graph.assumptions)


class Loss(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.linear = nn.Linear(4, 1)

    def forward(self, x):
        out = self.linear(x)
        if self.kind == "scalar":
            return out.sum()
        if self.kind == "tuple":
            return out, out.sum()
        if self.kind == "object":
            return type("Output", (dict,), {"loss": out.sum()})(logits=out)
        return out


@pytest.mark.parametrize("kind", ["scalar", "tuple", "object"])
def test_loss_is_found_in_the_output(kind):
    """A scalar output, one scalar in a tuple, or an attribute .loss."""
    graph = capture_module(Loss(kind), torch.zeros(2, 4), mode="train")
    assert any(op.phase == "backward" for op in graph.ops)


def test_no_loss_says_what_is_accepted():
    """Without a loss the error names all three ways to give one."""
    with pytest.raises(TargetError, match=r"scalar tensor or have a \.loss, or .* callable"):
        capture_module(Loss("none"), torch.zeros(2, 4), mode="train")


def test_looking_at_values_is_explained():
    """`.item()` cannot work on shapes: the error says so and shows the user's line, not ours."""

    class Model(nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    with pytest.raises(TargetError, match="looks at a tensor's values") as caught:
        capture_module(Model(), torch.zeros(2))
    assert "x.sum().item()" in caught.value.traceback
    assert "rooftile/capture" not in caught.value.traceback
    assert "fake_tensor.py" not in caught.value.traceback


def test_a_failing_forward_keeps_the_users_traceback():
    """The model's own error, with its line."""

    class Model(nn.Module):
        def forward(self, x):
            raise KeyError("missing")

    with pytest.raises(TargetError, match="KeyError: 'missing'") as caught:
        capture_module(Model(), torch.zeros(2))
    assert 'raise KeyError("missing")' in caught.value.traceback


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "evaluate"}, "mode must be one of infer, train, got 'evaluate'"),
        ({"optimizer": "lion"}, "optimizer must be one of none, sgd, adamw, got 'lion'"),
        ({"optimizer": "sgd"}, "optimizer 'sgd' needs mode 'train', got 'infer'"),
        ({"dtype": "int8"}, "dtype must be a floating-point dtype of torch, got 'int8'"),
    ],
)
def test_bad_arguments(arguments, message):
    """Each is named, with what was wanted and what came."""
    with pytest.raises(InputError, match=message):
        capture_module(nn.Linear(4, 4), torch.zeros(2, 4), **arguments)


def test_attention_refuses_shapes_that_torch_refuses():
    """The op that stands in for torch's checks shapes as torch does."""

    class Model(nn.Module):
        def forward(self, q, k):
            return F.scaled_dot_product_attention(q, k, k)

    with pytest.raises(TargetError, match="must match the size"):
        capture_module(Model(), (torch.zeros(1, 8, 4, 4), torch.zeros(1, 3, 4, 4)))
