"""Faults found by trying to break a capture, each with what is right."""

import pytest
import torch
from torch import nn

from rooftile.capture.module import capture_module
from rooftile.capture.target import capture_target
from rooftile.cost.graph import price
from rooftile.errors import InputError, TargetError


@pytest.mark.parametrize(
    "call",
    ['to("cpu")', "cuda()", "bfloat16()", "half()", 'to("cuda", torch.float16)', "double()"],
)
@pytest.mark.parametrize("layer", ["nn.Linear(4, 4)", "nn.LSTM(4, 4)"])
def test_a_target_may_convert_its_model(tmp_path, layer, call):
    """`.to()` and its kind work on a model that is built from shapes."""
    path = tmp_path / "target.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        f"def make():\n    model = {layer}.{call}\n"
        "    return model, torch.zeros(2, 4, dtype=next(model.parameters()).dtype)\n"
    )
    graph = capture_target(f"{path}:make")
    assert {"addmm", "rnn"} & {op.name for op in graph.ops}


def test_tied_weights_stay_tied_when_converted(tmp_path):
    """One weight in two places is one weight after `.bfloat16()`."""
    path = tmp_path / "target.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n"
        "    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))\n"
        "    model[1].weight = model[0].weight\n"
        "    return model.bfloat16(), torch.zeros(2, 4, dtype=torch.bfloat16)\n"
    )
    graph = capture_target(f"{path}:make")
    first, second = [op.operand("mat2") for op in graph.ops if op.name == "addmm"]
    assert first.storage == second.storage


def test_what_a_forward_makes_does_not_stay():
    """A cache, a buffer and a submodule that the forward creates are gone afterwards."""

    class Caching(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = None

        def forward(self, x):
            self.cache = torch.ones(4)
            self.register_buffer("late", torch.ones(4))
            self.child = nn.ReLU()
            return x + self.cache

    model = Caching()
    capture_module(model, torch.zeros(3, 4))
    assert model.cache is None
    assert not dict(model.named_buffers())
    assert not dict(model.named_children())


def test_a_recurrent_layer_is_as_before():
    """Its second list of weights is the real one again, and no gradient is on it."""
    model = nn.LSTM(4, 4)
    capture_module(
        model, torch.zeros(2, 1, 4), mode="train", loss=lambda out: out[0].sum(), optimizer="sgd"
    )
    assert all(a is b for a, b in zip(model._flat_weights, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())
    assert type(model(torch.zeros(2, 1, 4))[0]) is torch.Tensor


def test_torchscript_is_refused_whole():
    """A scripted module is refused with what to do, and works afterwards."""
    model = torch.jit.script(nn.Linear(4, 4))
    with pytest.raises(InputError, match="must be a Python module, got TorchScript"):
        capture_module(model, torch.zeros(2, 4))
    assert model(torch.zeros(2, 4)).shape == (2, 4)


@pytest.mark.parametrize(("dtype", "expected"), [(torch.bfloat16, "bfloat16"), (None, "float16")])
def test_autocast_of_a_gpu(dtype, expected):
    """`autocast("cuda")` lowers the matmul to the dtype a GPU would take."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            with torch.autocast("cuda", dtype=dtype):
                return self.linear(x)

    before = torch.autocast.__init__
    graph = capture_module(Model(), torch.zeros(2, 8))
    (op,) = [op for op in graph.ops if op.name == "addmm"]
    assert op.outputs[0].dtype == expected
    assert torch.autocast.__init__ is before


def test_adamw_in_its_steady_state():
    """Making the optimizer's state is no part of a step."""
    graph = capture_module(
        nn.Linear(4, 4), torch.zeros(2, 4), mode="train", loss=lambda out: out.sum(),
        optimizer="adamw",
    )  # fmt: skip
    names = [op.name for op in graph.ops if op.phase == "optimizer"]
    assert "fill" not in names
    assert names.count("adamw_step") == 1


def test_sys_exit_in_the_users_code():
    """A model that ends the process is an error that says so."""

    class Model(nn.Module):
        def forward(self, x):
            raise SystemExit(0)

    with pytest.raises(TargetError, match=r"sys\.exit\(0\)"):
        capture_module(Model(), torch.zeros(2))


class TwoResults(nn.Module):
    """Logits and an auxiliary scalar, as a mixture of experts returns them."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        y = self.linear(x)
        return y, y.exp().mean()


def test_the_users_loss_wins():
    """A scalar beside the logits is no loss where the user says which one is."""
    graph = capture_module(
        TwoResults(), torch.zeros(2, 4), mode="train", loss=lambda out: out[0].sin().sum()
    )
    backward = {op.name for op in graph.ops if op.phase == "backward"}
    assert "cos" in backward
    without = capture_module(TwoResults(), torch.zeros(2, 4), mode="train")
    assert "cos" not in {op.name for op in without.ops}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda t: {"loss": t},
        lambda t: {"loss": t, "aux": t * 2},
        lambda t: {"total": t},
        lambda t: t.reshape(1),
        lambda t: (t.reshape(1), torch.zeros(3)),
        lambda t: [t],
    ],
    ids=["mapping", "two of a mapping", "only one of a mapping", "[1]", "[1] of two", "list"],
)
def test_where_a_loss_may_be(wrap):
    """In a mapping, under any name if it is alone, and with one dimension of one."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return wrap(self.linear(x).sum())

    graph = capture_module(Model(), torch.zeros(2, 4), mode="train")
    assert "backward" in {op.phase for op in graph.ops}


def test_sgd_in_its_steady_state():
    """16 weights: weight, gradient and momentum in, weight and momentum out, 4 FLOP each."""
    graph = capture_module(
        nn.Linear(4, 4, bias=False), torch.zeros(2, 4), mode="train", loss=lambda out: out.sum(),
        optimizer="sgd",
    )  # fmt: skip
    (cost,) = [price(op) for op in graph.ops if op.phase == "optimizer"]
    assert (cost.read_bytes, cost.write_bytes, cost.vector_flops) == (192, 128, 64)
