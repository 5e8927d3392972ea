"""Lazy modules get their shapes from a run that is no part of the step."""

import pytest
import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from rooftile.capture.module import capture_module
from rooftile.capture.target import capture_target
from rooftile.cost.graph import price
from rooftile.errors import TargetError


def net():
    """Convolution 3 to 8, normalisation, 288 to 5."""
    return nn.Sequential(nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5))


def priced(graph):
    """Names and matrix FLOP of the ops that are no views."""
    ops = [op for op in graph.ops if op.name != "view"]
    return [(op.name, price(op).matrix_flops) for op in ops]


def test_lazy_is_as_its_shapes_were_given():
    """The same ops and FLOP as of the model with its shapes written out."""
    x = torch.zeros(2, 3, 8, 8)
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 5))
    options = {"mode": "train", "loss": lambda out: out.sum(), "optimizer": "adamw"}
    lazy = capture_module(net(), x, **options)
    assert priced(lazy) == priced(capture_module(plain, x, **options))
    assert any("lazy modules" in line for line in lazy.assumptions)


def test_the_user_s_model_stays_lazy():
    """Afterwards its weights have no shapes yet, and it takes another width."""
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    capture_module(model, torch.zeros(2, 8))
    assert isinstance(model[0].weight, UninitializedParameter)
    assert type(model[0]) is nn.LazyLinear
    assert model(torch.zeros(2, 6)).shape == (2, 4)


def test_a_target_may_be_lazy(tmp_path):
    """A model that is built from shapes, half of it lazy, in another dtype."""
    path = tmp_path / "lazy_target.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n    return nn.Sequential(nn.Linear(4, 8), nn.LazyLinear(3)), torch.ones(2, 4)"
    )
    graph = capture_target(f"{path}:make", dtype="bfloat16")
    second = [op for op in graph.ops if op.name == "addmm"][1]
    assert second.operand("mat2").shape == (8, 3)
    assert second.operand("mat2").dtype == "bfloat16"


def test_a_first_run_that_fails_says_so():
    """The error names the first run, and the model is lazy still."""
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(5, 5))
    with pytest.raises(TargetError, match="fails in its first run"):
        capture_module(model, torch.zeros(2, 8))
    assert isinstance(model[0].weight, UninitializedParameter)
