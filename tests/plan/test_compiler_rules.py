"""The rules of what torch.compile fuses, against the kernels that Inductor makes.

Inductor decides for the GPU where there is one, else as for Triton on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rooftile
from rooftile.capture.inductor import inductor_kernels
from rooftile.plan.agreement import agreement

ROWS, COLS = 256, 512
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Step(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The function's result."""
        return self.function(*inputs)


def asked(function, *inputs):
    """The plan of a function's forward, Inductor's kernels, and how they compare."""
    plan = rooftile.advise(rooftile.audit(Step(function), inputs, gpu="h100-sxm"))
    kernels = inductor_kernels(plan.estimate.graph, "forward", DEVICE)
    return plan, kernels, agreement(plan, {"forward": kernels}, {}, DEVICE)


def x() -> torch.Tensor:
    """A matrix."""
    return torch.randn(ROWS, COLS)


def row() -> torch.Tensor:
    """A row for it."""
    return torch.randn(COLS)


FUSED = {
    "pointwise chain": (lambda a, b: (F.gelu(a + b) * 2 + a).relu(), x, row),
    "diamond": (lambda a: torch.relu(a) + a * 2, x),
    "in place": (lambda a: a.mul(2).add_(1).relu_(), x),
    "transposed": (lambda a: torch.relu(a).t() + a.t() * 2, x),
    "softmax in the middle": (lambda a: torch.softmax(a * a, -1) + 1, x),
    "layer norm, GELU": (lambda a: F.gelu(F.layer_norm(a, (COLS,))), x),
    "RMS norm written out": (lambda a: a * torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-5), x),
    "RMS norm": (lambda a: F.rms_norm(a, (COLS,)) * 2, x),
    "residual, norm, both wanted": (lambda a, b: (a + b, F.layer_norm(a + b, (COLS,))), x, row),
    "log-softmax, scaled": (lambda a: torch.log_softmax(a, -1) * 2, x),
    "row reduction": (lambda a: (a * 2).sum(-1), x),
    "column reduction": (lambda a: (a * 2).sum(0), x),
    "scan": (lambda a: a.relu().cumsum(-1) * 2, x),
    "scan of one row": (lambda a: a.relu().cumprod(0) * 2, row),
    "maximum so far": (lambda a: a.relu().cummax(-1)[0] * 2, x),
    "log-sum-exp so far": (lambda a: a.relu().logcumsumexp(-1) * 2, x),
    "softmax, scan": (lambda a: torch.softmax(a, -1).cumsum(-1), x),
    "scan, softmax": (lambda a: torch.softmax(a.cumsum(-1), -1), x),
    "two scans of one tensor": (lambda a: (a.cumsum(-1), a.cumprod(-1)), x),
    "norm and sum of one tensor": (lambda a: (F.layer_norm(a, (COLS,)), a.sum(-1)), x),
    "pointwise and sum of one tensor": (lambda a: (a.relu(), a.sum(-1)), x),
    "least and greatest": (lambda a: (a * 2).aminmax(dim=-1), x),
    "picked log-probabilities": (
        lambda a, i: torch.log_softmax(a, -1).gather(-1, i) * 2,
        x,
        lambda: torch.randint(COLS, (ROWS, 1)),
    ),
    "gather": (
        lambda a, i: a.relu().gather(1, i) * 2,
        x,
        lambda: torch.randint(COLS, (ROWS, COLS)),
    ),
    "repeat": (lambda a: a.relu().repeat(2, 1) * 2, x),
    "flipped, then softmax": (lambda a: torch.softmax(a.relu().flip(0), -1), x),
    "embedding, norm": (
        lambda i, w: F.layer_norm(F.embedding(i, w), (COLS,)),
        lambda: torch.randint(ROWS, (64,)),
        x,
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_what_the_rules_say_it_fuses_it_fuses(name):
    """Every group is one kernel of Inductor's, and there is such a group."""
    function, *inputs = FUSED[name]
    _, _, found = asked(function, *(make() for make in inputs))
    assert found.groups >= 1
    assert (found.agreed, found.disagreements) == (found.groups, ())


APART = {
    "two axes": (lambda a: (a.relu().sum(0), a.relu().sum(1)), x),
    "softmax, then columns": (lambda a: torch.softmax(a, -1).sum(0), x),
    "behind a column reduction": (lambda a: a - a.mean(0), x),
    "behind a column scan": (lambda a: a.relu().cumsum(0) * 2, x),
    "scans along both axes": (lambda a: a.cumsum(-1).cumsum(0), x),
    "beside a column reduction": (lambda a: (a.relu(), a.sum(0)), x),
    "scan, flipped": (lambda a: a.cumsum(-1).flip(-1) * 2, x),
    "softmax, flipped": (lambda a: torch.softmax(a, -1).flip(-1) * 2, x),
    "sums, picked": (lambda a, i: a.relu().sum(-1)[i] * 2, x, lambda: torch.randint(ROWS, (ROWS,))),
    "linear, GELU": (
        lambda a, w, b: F.gelu(F.linear(a, w, b)),
        x,
        lambda: torch.randn(COLS, COLS),
        row,
    ),
    "prologue": (lambda a, w: torch.relu(a) @ w, x, lambda: torch.randn(COLS, COLS)),
    "sort": (lambda a: (a * 2).sort(1)[0].relu(), x),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_the_rules_keep_apart_it_keeps_apart(name):
    """No group that holds a product or crosses an axis is said to be the compiler's."""
    function, *inputs = APART[name]
    plan, kernels, found = asked(function, *(make() for make in inputs))
    assert found.agreed == found.groups
    for group in plan.groups:
        if not group.compiler:
            assert sum(bool(kernel & set(group.ops)) for kernel in kernels) > 1


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU's Inductor joins the mean of so few rows")
def test_a_difference_is_told_with_the_ops():
    """The loss's mean is a second kernel of Inductor's, small as it is."""
    targets = torch.randint(COLS, (ROWS,))
    _, _, found = asked(lambda a: F.cross_entropy(a, targets), x())
    (difference,) = [item for item in found.disagreements if "nll_loss" in item.names]
    assert difference.detail == "2 kernels, not one"


def test_a_kernel_of_ops_that_the_plan_leaves_alone_is_told():
    """Inductor makes one kernel around random numbers; the plan does not."""
    _, _, found = asked(lambda a: (a + torch.rand_like(a)).relu(), x())
    (difference,) = found.disagreements
    assert difference.names == ("random", "add", "relu")
    assert "that the plan keeps apart" in difference.detail


def test_backward_is_asked_too():
    """A training step has two passes."""
    model = nn.Sequential(nn.Linear(COLS, COLS), nn.GELU(), nn.LayerNorm(COLS))
    plan = rooftile.advise(
        rooftile.audit(model, x(), gpu="h100-sxm", mode="train", loss=lambda out: out.sum())
    )
    found = rooftile.check_compiler(plan)
    assert found.passes == ("forward", "backward")
    assert found.versions == {"torch": str(torch.__version__)}
