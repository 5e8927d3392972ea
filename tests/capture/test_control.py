"""torch.cond, while_loop, map and scan are run as an uncompiled program runs them."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.while_loop import while_loop

from rooftile.capture.module import capture_module
from rooftile.capture.target import capture_target
from rooftile.cost.graph import price


class Wrapped(nn.Module):
    """A function of a linear layer and the inputs."""

    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.function = function

    def forward(self, *args):
        return self.function(self.linear, *args)


def names(graph, phase="forward"):
    """Ops that are no views."""
    return [op.name for op in graph.ops if op.phase == phase and op.name not in ("view", "empty")]


def choose(linear, x):
    """The layer, or a sine."""
    return torch.cond(x.sum() > 0, linear, lambda x: x.sin(), (x,)).sum()


@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_branches_the_heavier_counts(swapped):
    """The branch with the product is counted, first or second, and the user is told where."""

    def function(linear, x):
        branches = (lambda x: x.sin(), linear) if swapped else (linear, lambda x: x.sin())
        return torch.cond(x.sum() > 0, *branches, (x,))

    graph = capture_module(Wrapped(function), torch.zeros(4, 8))
    assert names(graph) == ["sum", "gt", "addmm"]
    assert [op.index for op in graph.ops] == list(range(len(graph.ops)))
    (note,) = [a for a in graph.assumptions if "torch.cond" in a]
    assert "test_control.py:" in note


def test_a_branch_trains():
    """The branch's weight, which no operand names, gets its gradient."""
    graph = capture_module(Wrapped(choose), torch.zeros(4, 8), mode="train")
    assert "mm" in names(graph, "backward")
    assert "cos" not in names(graph, "backward")


def test_a_known_condition_runs_its_branch():
    """A flag that is given decides by itself."""
    function = lambda linear, x, on: torch.cond(on, linear, lambda x: x.sin(), (x,))  # noqa: E731
    graph = capture_module(Wrapped(function), (torch.zeros(4, 8), torch.tensor(False)))
    assert names(graph) == ["sin"]
    assert not any("torch.cond" in a for a in graph.assumptions)


def test_a_counted_loop_runs_as_often():
    """Three steps of a loop over a counter: three products, four comparisons."""

    def function(linear, x):
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, linear(x)), (torch.tensor(0), x))

    ran = names(capture_module(Wrapped(function), torch.zeros(4, 8)))
    assert (ran.count("addmm"), ran.count("lt")) == (3, 4)


def test_a_loop_over_values_is_counted_once():
    """How often it runs is not known: its body once, said with its line."""

    def function(linear, x):
        return while_loop(lambda x: x.sum() < 3, lambda x: (linear(x),), (x,))

    graph = capture_module(Wrapped(function), torch.zeros(4, 8))
    assert names(graph).count("addmm") == 1
    assert any("torch.while_loop at" in a and "once" in a for a in graph.assumptions)


def test_a_map_is_its_slices():
    """Four slices of three rows: four products of 3 x 8 by 8 x 8, and a stack."""
    graph = capture_module(Wrapped(map_over), torch.zeros(4, 3, 8))
    assert names(graph) == ["addmm"] * 4 + ["cat"]
    assert sum(price(op).matrix_flops for op in graph.ops) == 4 * 2 * 3 * 8 * 8


def test_a_scan_is_its_steps_and_trains():
    """Four steps of a product and a sum; the backward passes all four."""

    def function(linear, x):
        carry, made = scan(lambda c, x: (c + linear(x), c * x), torch.zeros(3, 8), x)
        return (carry + made.sum(0)).sum()

    graph = capture_module(Wrapped(function), torch.zeros(4, 3, 8), mode="train")
    assert names(graph).count("addmm") == 4
    assert names(graph, "backward").count("mm") == 4


def test_an_exported_branch(tmp_path):
    """A program that was exported with torch.cond is captured alike."""

    class Choosing(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return torch.cond(x.sum() > 0, self.linear, lambda x: x.sin(), (x,))

    path = tmp_path / "cond.pt2"
    torch.export.save(torch.export.export(Choosing(), (torch.zeros(4, 8),)), path)
    ran = names(capture_target(str(path)))
    assert {"linear", "addmm"} & set(ran)
    assert "sin" not in ran


def test_torch_s_own_are_back():
    """After a capture torch.cond is torch's."""
    capture_module(Wrapped(choose), torch.zeros(4, 8))
    assert torch.cond(torch.tensor(True), torch.sin, torch.cos, (torch.zeros(2),)).sum() == 0
