"""Torch's layers and functions under the audit: what has no formula is named."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn
from torch_calls import Call, calls

import rooftile
from rooftile.cost.regions import region_bytes
from rooftile.records.estimate import Estimate, OpEstimate
from rooftile.records.graph import Op

# Iterated to convergence, or as often as data says: no count from shapes.
UNPRICED = {
    "_linalg_eigh",
    "_linalg_svd",
    "linalg_eig",
    "linalg_matrix_exp",
    "linalg_pinv",
    "multilabel_margin_loss_backward",
    "multilabel_margin_loss_forward",
    "special_hermite_polynomial_h",
}
# Their schema does not say that they update the running statistics.
SILENT_WRITERS = {"batch_norm"}


class Model(nn.Module):
    """A function as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def total(out):
    """A loss of whatever came out: every floating-point or complex tensor in it, added up."""
    if isinstance(out, torch.Tensor):
        real = out.abs() if out.is_complex() else out
        return real.sum() if real.is_floating_point() else 0
    return sum(total(member) for member in out)


def audit(call: Call) -> Estimate:
    """The call's step on a GPU."""
    model = call.function if isinstance(call.function, nn.Module) else Model(call.function)
    options = {"mode": "train", "loss": total} if call.train else {"mode": "infer"}
    return rooftile.audit(model, call.inputs, gpu="h100-sxm", **options)


@cache
def audited() -> tuple[tuple[str, Op, OpEstimate], ...]:
    """Every op of every call, captured and priced."""
    found = []
    for call in calls():
        estimate = audit(call)
        found += [
            (call.name, op, row) for op, row in zip(estimate.graph.ops, estimate.ops, strict=True)
        ]
    return tuple(found)


def unpriced(rows) -> set[str]:
    """Ops without a formula among those."""
    return {row.name for _, _, row in rows if row.bound == "unpriced"}


def test_what_has_no_formula_is_named():
    """Of some 340 layers and functions, forward and backward, a handful of ops is unpriced."""
    assert unpriced(audited()) == UNPRICED


def test_a_gap_would_show():
    """An op that nobody knows is found."""
    library = torch.library.Library("reach_test", "DEF")
    library.define("gap(Tensor x) -> Tensor")
    torch.library.register_fake("reach_test::gap", torch.empty_like, lib=library)
    call = Call("gap", lambda t: torch.ops.reach_test.gap(t), (torch.ones(8),), train=False)
    estimate = audit(call)
    rows = [("gap", op, row) for op, row in zip(estimate.graph.ops, estimate.ops, strict=True)]
    assert unpriced(rows) == {"reach_test::gap"}
    library._destroy()


def test_nothing_moves_more_than_its_operands():
    """An op reads no more than it is given, and writes no more than it fills."""
    for name, op, row in audited():
        where = f"{name}: {op.aten} {row.shapes}"
        assert 0 <= row.cost.read_bytes <= region_bytes(op.reads), where
        if op.name not in SILENT_WRITERS:
            assert 0 <= row.cost.write_bytes <= region_bytes(op.writes), where


def test_what_computes_has_a_roof():
    """Matrix work names its arithmetic, and no kernel is free of bytes and of FLOP at once."""
    for name, op, row in audited():
        where = f"{name}: {op.aten} {row.shapes}"
        assert bool(row.cost.matrix_flops) == bool(row.cost.math), where
        assert row.cost.kernels == 0 or row.cost.bytes > 0, where


@pytest.mark.parametrize("rows", [0, 3])
def test_gradients_of_layers_on_no_rows_read_no_weights(rows: int):
    """Without a batch no weight is read, forward or backward; with one each is."""
    layers = [
        (nn.Linear(8, 4), (8,)),
        (nn.Conv2d(3, 4, 3), (3, 8, 8)),
        (nn.LayerNorm(8), (8,)),
        (nn.GroupNorm(2, 4), (4, 8)),
        (nn.RMSNorm(8), (8,)),
        (nn.PReLU(), (8,)),
    ]
    for layer, shape in layers:
        x = torch.zeros(rows, *shape, requires_grad=True)
        estimate = rooftile.audit(layer, (x,), gpu="h100-sxm", mode="train", loss=total)
        weights = set(estimate.graph.parameters)
        for op, row in zip(estimate.graph.ops, estimate.ops, strict=True):
            given = region_bytes([t for t in op.reads if t.storage in weights])
            if given and row.cost.kernels:
                rest = region_bytes([t for t in op.reads if t.storage not in weights])
                assert (row.cost.read_bytes > rest) == bool(rows), f"{layer}: {op.aten}"
