"""``rooftile.audit``: what it hands to the capture, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rooftile
from rooftile.errors import InputError
from rooftile.records.estimate import Estimate
from rooftile.records.io import from_json, to_json

MODEL = nn.Linear(8, 4)
X = torch.zeros(3, 8)


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ((MODEL,), {}, "inputs must be the module's example inputs"),
        ((MODEL, X), {"batch": 2}, "batch and seq belong to a target"),
        ((MODEL, X), {"seq": 2}, "batch and seq belong to a target"),
        ((MODEL, X), {"mode": "eval"}, "mode must be one of infer, train, got 'eval'"),
        ((MODEL, X), {"optimizer": "sgd"}, "needs mode 'train'"),
        ((MODEL, X), {"optimizer": "lion", "mode": "train"}, "optimizer must be one of"),
        ((MODEL, X), {"gpu": "h300"}, "near names"),
        ((MODEL, X), {"dtype": "bf16", "gpu": "t4"}, "bf16"),
        ((3, X), {}, "model must be a torch.nn.Module or a target .* got int"),
        (("m.py:make", X), {}, "inputs belongs to a module"),
        (("m.py:make",), {"loss": sum}, "loss belongs to a module"),
        (("m.py:make",), {"batch": 0}, "batch must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_refused(args, options, words):
    """The message names the argument, what was wanted and what came."""
    with pytest.raises(InputError, match=words):
        rooftile.audit(*args, **options)


def test_a_live_module_is_priced():
    """3 rows of 8 by 8 x 4: 192 FLOP; the default GPU; each stage is told."""
    stages = []
    estimate = rooftile.audit(MODEL, X, progress=stages.append)
    assert estimate.device.id == "h100-sxm"
    assert (estimate.graph.target, estimate.graph.mode) == ("Linear", "infer")
    assert estimate.totals.matrix_flops == 2 * 3 * 8 * 4
    assert stages[0] == "importing torch"
    assert stages[-1] == "pricing the ops"


def test_a_training_step_takes_the_loss_it_is_given():
    """A first layer's backward has the weight's gradient alone: the step is twice its forward."""
    estimate = rooftile.audit(MODEL, X, mode="train", loss=torch.sum, optimizer="sgd")
    phases = {op.phase for op in estimate.ops}
    assert phases == {"forward", "backward", "optimizer"}
    assert estimate.totals.matrix_flops == 2 * (2 * 3 * 8 * 4)


def test_a_target_in_words_is_priced(tmp_path):
    """The same model from a file, by the same numbers."""
    path = tmp_path / "toy_model.py"
    path.write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(8, 4), torch.zeros(3, 8)\n"
    )
    estimate = rooftile.audit(f"{path}:make", gpu="a30", dtype="float16")
    assert estimate.device.id == "a30"
    assert estimate.totals.matrix_flops == 192
    # x, weight, bias read and the result written, 2 bytes an element
    assert estimate.totals.bytes == 2 * (24 + 32 + 4 + 12)


def test_a_real_estimate_has_a_json_form():
    """What the capture puts into a record is plain data: it reads back equal."""
    estimate = rooftile.audit(MODEL, X, mode="train", loss=torch.sum, optimizer="adamw")
    assert from_json(to_json(estimate), Estimate) == estimate
