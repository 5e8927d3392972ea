"""Results whose shape is in the values: bounded from above and said, or refused with the line."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rooftile.capture.module import capture_module
from rooftile.cost.graph import price
from rooftile.errors import TargetError


class Computed(nn.Module):
    """A function of what a layer computes: its values are nobody's to know."""

    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.function = function

    def forward(self, x):
        return self.function(self.linear(x))


def captured(function, mode="infer"):
    """On 4 rows of 8."""
    return capture_module(Computed(function), torch.zeros(4, 8), mode=mode)


LARGEST = {
    "nonzero": (lambda y: (y > 0).nonzero(), (32, 2)),
    "masked_select": (lambda y: torch.masked_select(y, y > 0), (32,)),
    "index": (lambda y: y[y > 0], (32,)),
    "index of rows": (lambda y: y[y.sum(-1) > 0], (4, 8)),
    "where": (lambda y: torch.where(y > 0)[1] + 1, (32,)),
    "unique": (torch.unique, (32,)),
    "unique_dim": (lambda y: torch.unique(y, dim=1), (4, 8)),
    "unique_consecutive": (torch.unique_consecutive, (32,)),
}


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_result_is_counted(name):
    """As many as there are, priced, and the user is told which line and how many."""
    function, shape = LARGEST[name]
    graph = captured(function)
    assert graph.ops[-1].outputs[0].shape == shape
    assert all(price(op) is not None for op in graph.ops)
    (note,) = [a for a in graph.assumptions if "counted from above" in a]
    assert "test_unknown_shapes.py:" in note


def test_counts_and_places_of_unique_values():
    """All that torch returns has its largest shape."""
    graph = captured(lambda y: torch.unique(y, return_inverse=True, return_counts=True))
    (op,) = [op for op in graph.ops if op.name == "unique"]
    assert [t.shape for t in op.outputs] == [(32,), (4, 8), (32,)]


def test_a_selection_trains():
    """The gradient of a selection goes back to where it was taken."""
    graph = captured(lambda y: y[y > 0].exp().sum(), "train")
    assert "index_put" in {op.name for op in graph.ops if op.phase == "backward"}


@pytest.mark.parametrize(
    "function",
    [
        lambda y: y.sum().item(),
        lambda y: y if y.sum() > 0 else -y,
        lambda y: torch.bincount(y.long().flatten()),
        lambda y: torch.repeat_interleave(y, y.long()[:, 0], 0),
        lambda y: F.one_hot(y.long()),
    ],
    ids=["item", "if", "bincount", "repeat_interleave", "one_hot"],
)
def test_what_has_no_bound_is_refused_with_its_line(function):
    """Nothing limits these: an error that names the user's line."""
    with pytest.raises(TargetError, match=r"step at .*test_unknown_shapes\.py:\d+: it looks at"):
        captured(function)


def test_one_hot_is_a_fill_and_a_scatter():
    """As a GPU runs it: zeros of 4 x 8 x 10 int64, then one written for each of 32 indices."""

    class OneHot(nn.Module):
        def forward(self, x):
            return F.one_hot(x, 10)

    ops = capture_module(OneHot(), torch.zeros(4, 8, dtype=torch.int64)).ops
    fill, scatter = [op for op in ops if op.name != "view"]
    assert (fill.name, scatter.name) == ("fill", "scatter")
    assert price(fill).write_bytes == 4 * 8 * 10 * 8
    assert (price(scatter).read_bytes, price(scatter).write_bytes) == (256, 256)


class Ctc(nn.Module):
    """A CTC loss over 5 classes."""

    def forward(self, x, targets, input_lengths, target_lengths):
        return F.ctc_loss(x.log_softmax(-1), targets, input_lengths, target_lengths)


@pytest.mark.parametrize(
    ("targets", "lengths", "longest"),
    [
        (torch.zeros(3, 7, dtype=torch.int64), torch.tensor([7, 5, 2]), 7),
        (torch.zeros(14, dtype=torch.int64), torch.tensor([7, 5, 2]), 7),
        (torch.zeros(14, dtype=torch.int64), (7, 5, 2), 7),
    ],
    ids=["padded", "one behind the other", "as numbers"],
)
def test_ctc_loss(targets, lengths, longest):
    """13 FLOP a step and state, 2 * longest + 1 states, of 20 steps in 3 sequences."""
    x = torch.zeros(20, 3, 5, requires_grad=True)
    steps = torch.full((3,), 20) if isinstance(lengths, torch.Tensor) else (20, 20, 20)
    graph = capture_module(Ctc(), (x, targets, steps, lengths), mode="train")
    states = 3 * 20 * (2 * longest + 1)
    (forward,) = [op for op in graph.ops if op.name == "ctc_loss"]
    (backward,) = [op for op in graph.ops if op.name == "ctc_loss_backward"]
    assert price(forward).vector_flops == 13 * states
    assert price(backward).vector_flops == (13 + 9) * states + 6 * x.numel()


def test_meshgrid_of_one():
    """One tensor alone makes a grid of itself: a view."""

    class Grid(nn.Module):
        def forward(self, x):
            return torch.meshgrid(x, indexing="ij")[0] + 1

    assert [op.name for op in capture_module(Grid(), torch.zeros(8)).ops][-1] == "add"
