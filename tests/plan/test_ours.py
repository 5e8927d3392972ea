"""Which Rooftile op does an op's work: the join between verdicts and ``rooftile.ops``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from tapes import Tape
from torch import Tensor, nn

import rooftile
from rooftile.plan.match import Name
from rooftile.records.io import from_json, to_json
from rooftile.records.plan import Plan

pytest.importorskip("triton")

ROWS, COLS = 256, 512
# Public functions of rooftile.ops that compute nothing.
PLANNERS = {"attention_plan"}


def x(*shape: int, dtype=torch.bfloat16) -> Tensor:
    """Numbers of a shape, a matrix where none is given."""
    return torch.randn(shape or (ROWS, COLS)).to(dtype)


def targets() -> Tensor:
    """A class for each row."""
    return torch.randint(COLS, (ROWS,))


class Step(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        """The function's result."""
        return self.function(*inputs)


def planned(function, *inputs, **how) -> Plan:
    """The plan of a function."""
    return rooftile.advise(rooftile.audit(Step(function), inputs, gpu="h100-sxm", **how))


def rms(h, w=None, dim=-1, mean=torch.mean):
    """An RMS norm as Llama's code spells it."""
    wide = h.float()
    y = (wide * torch.rsqrt(mean(wide.pow(2), dim, keepdim=True) + 1e-5)).to(h.dtype)
    return y if w is None else w * y


def layer(h, w, b):
    """A layer norm written out."""
    d = h - h.mean(-1, keepdim=True)
    return d / torch.sqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5) * w + b


def rope(q, cos, sin, halves=lambda a, b: (-b, a)):
    """A rotary embedding as Llama's code spells it."""
    half = q.shape[-1] // 2
    turned = torch.cat(halves(q[..., :half], q[..., half:]), -1)
    return q * cos + turned * sin


def capped(q, k, v):
    """Attention with a soft cap on its scores."""
    s = torch.bmm(q, k.transpose(1, 2)) * 0.125
    return torch.bmm(torch.softmax(torch.tanh(s / 30.0) * 30.0, -1), v)


HEADS = (2, 4, 64, 64)
FOUND: dict[str, list] = {
    "softmax": [
        (lambda a: torch.softmax(a, -1), x()),
        (lambda a: torch.softmax(a.float(), -1).to(a.dtype), x()),
        (lambda a: (e := (a - a.amax(-1, keepdim=True)).exp()) / e.sum(-1, keepdim=True), x()),
    ],
    "log_softmax": [(lambda a: torch.log_softmax(a, 0), x())],
    "rms_norm": [
        (lambda a: F.rms_norm(a, (COLS,)), x()),
        (rms, x(), x(COLS)),
        (lambda a: a / (a.square().mean(-1, keepdim=True) + 1e-6).sqrt(), x()),
    ],
    "layer_norm": [
        (lambda a: F.layer_norm(a, (COLS,)), x()),
        (layer, x(), x(COLS), x(COLS)),
        (
            lambda a: (a - a.mean(-1, keepdim=True))
            / (a.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt(),
            x(),
        ),
    ],
    "add_rms_norm": [
        (lambda a, b, w: ((h := a + b), rms(h, w)), x(), x(), x(COLS)),
        (lambda a, b: ((h := a + b), F.rms_norm(h, (COLS,))), x(), x()),
    ],
    "add_layer_norm": [
        (lambda a, b, w: ((h := a + b), F.layer_norm(h, (COLS,), w)), x(), x(), x(COLS)),
        (lambda a, b, w, c: layer(a + b, w, c), x(), x(), x(COLS), x(COLS)),
    ],
    "bias_gelu_dropout_residual": [
        (lambda a, b: F.gelu(a + b), x(), x(COLS)),
        (lambda a, b, r: F.dropout(F.gelu(a + b), 0.1) + r, x(), x(COLS), x()),
        (lambda a, r: F.dropout(a, 0.1) + r, x(), x()),
    ],
    "swiglu": [
        (lambda g, u: F.silu(g) * u, x(), x()),
        (lambda gu: F.silu(gu[:, :256]) * gu[:, 256:], x()),
    ],
    "geglu": [(lambda g, u: u * F.gelu(g, approximate="tanh"), x(), x())],
    "rotary_embedding": [(rope, x(*HEADS), x(64, 64), x(64, 64))],
    "cross_entropy": [
        (F.cross_entropy, x(), targets()),
        (lambda a, t: F.cross_entropy(a.float(), t), x(), targets()),
    ],
    "linear_cross_entropy": [
        (lambda a, w, t: F.cross_entropy(F.linear(a, w).float(), t), x(ROWS, 64), x(COLS, 64),
         targets()),
        (lambda a, w, b, t: F.cross_entropy(F.linear(a, w, b), t), x(ROWS, 64), x(COLS, 64),
         x(COLS), targets()),
    ],
    "scaled_dot_product_attention": [
        (F.scaled_dot_product_attention, x(*HEADS), x(*HEADS), x(*HEADS)),
        (
            lambda q, k, v: torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 8, -1), v),
            x(8, 256, 64), x(8, 256, 64), x(8, 256, 64),
        ),
    ],
    "attention": [(capped, x(8, 256, 64), x(8, 256, 64), x(8, 256, 64))],
}  # fmt: skip
CASES = [(name, number) for name, graphs in FOUND.items() for number in range(len(graphs))]


def test_a_verdict_names_only_what_there_is_and_all_of_it():
    """Every function of rooftile.ops can be handed out, and nothing else."""
    from rooftile import ops

    functions = {name for name in ops.__all__ if name.islower()} - PLANNERS
    assert all(callable(getattr(ops, name)) for name in functions)
    assert set(get_args(Name)) == functions
    assert set(FOUND) == functions


@pytest.mark.parametrize(("name", "number"), CASES)
def test_the_op_that_does_the_whole_function_is_named(name, number):
    """On every op of a graph that is this function and nothing else."""
    function, *inputs = FOUND[name][number]
    plan = planned(function, *inputs)
    assert {verdict.rooftile_op for verdict in plan.verdicts} == {f"rooftile.ops.{name}"}
    for group in plan.groups:
        assert (group.rooftile_ops, group.rooftile_whole) == ((f"rooftile.ops.{name}",), True)


@pytest.mark.parametrize("name", ["swiglu", "geglu", "rms_norm", "softmax", "rotary_embedding"])
def test_gradients_are_the_ops_own(name):
    """A backward belongs to the function of its line."""
    function, first, *rest = FOUND[name][-1]
    weight = nn.Parameter(torch.ones(first.shape[-1], dtype=first.dtype))

    class Model(nn.Module):
        """The function behind a weight, on a line of its own."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = weight
            self.inner = Step(function)

        def forward(self, *inputs: Tensor) -> Tensor:
            """The function of the weighted input."""
            return self.inner(inputs[0] * self.weight, *inputs[1:])

    estimate = rooftile.audit(
        Model(), (first, *rest), gpu="h100-sxm", mode="train", loss=lambda out: out.sum()
    )
    verdicts = {verdict.index: verdict for verdict in rooftile.advise(estimate).verdicts}
    backward = [op for op in estimate.ops if op.phase == "backward" and op.module == "inner"]
    named = [verdicts[op.index].rooftile_op for op in backward if op.bound != "free"]
    assert named
    assert set(named) == {f"rooftile.ops.{name}"}


APART: dict[str, tuple] = {
    "a gate over another shape": (lambda g, u: F.silu(g) * u, x(), x(COLS)),
    "an activation wanted elsewhere": (lambda g, u: ((s := F.silu(g)), s * u), x(), x()),
    "an RMS norm along columns": (lambda a: rms(a, dim=0), x()),
    "an unbiased variance": (
        lambda a: (a - a.mean(-1, keepdim=True)) / (a.var(-1, keepdim=True) + 1e-5).sqrt(), x(),
    ),
    "a rotation the other way": (
        lambda q, c, s: rope(q, c, s, lambda a, b: (b, -a)), x(*HEADS), x(64, 64), x(64, 64),
    ),
    "class weights": (
        lambda a, t, w: F.cross_entropy(a, t, w), x(dtype=torch.float32), targets(),
        x(COLS, dtype=torch.float32),
    ),
    "float64": (lambda a: F.layer_norm(a, (COLS,)), x(dtype=torch.float64)),
    "a head of 512": (F.scaled_dot_product_attention, *[x(2, 4, 64, 512)] * 3),
    "dropout alone": (lambda a: F.dropout(a, 0.1), x()),
    "GELU alone": (F.gelu, x()),
    "a norm in another dtype than its input": (lambda a: F.silu(a.float()) * a, x()),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_only_looks_alike_is_not_named(name):
    """Another function, or one that the kernel does not take."""
    function, *inputs = APART[name]
    names = {verdict.rooftile_op for verdict in planned(function, *inputs).verdicts}
    assert not names & {f"rooftile.ops.{op}" for op in get_args(Name) if op not in (
        "log_softmax", "softmax"
    )}  # fmt: skip


def test_a_kernel_to_write_by_hand_that_is_written_is_the_cover():
    """Attention with tanh on its scores: no library has it, Rooftile does."""
    tape = Tape()
    q, k, v = (tape.input(16, *shape) for shape in ((2048, 64), (64, 2048), (2048, 64)))
    p = tape.op("softmax", tape.op("tanh", tape.bmm(q, k)), dim=-1)
    plan = tape.plan(tape.bmm(p, v))
    assert {(v.action, v.cover) for v in plan.verdicts} == {
        ("HAND-WRITE", "rooftile.ops.attention")
    }


def test_why_not_by_hand_says_what_is_written():
    """The compiler fuses a rotary embedding, and the kernel stands ready."""
    plan = planned(rope, x(8, 32, 2048, 128), x(2048, 128), x(2048, 128))
    verdict = plan.verdicts[0]
    assert verdict.action == "AUTO-FUSE"
    words = "torch.compile writes the kernel; rooftile.ops.rotary_embedding is written"
    assert verdict.why_not["HAND-WRITE"] == words


def test_a_part_of_a_group_is_said_to_be_one():
    """SwiGLU behind the product of its gate: the op does two of three."""
    plan = planned(
        lambda a, g, u: F.silu(a @ g) * (a @ u), x(4096, 4096), x(4096, 16384), x(4096, 16384)
    )
    (group,) = plan.groups
    assert (group.rooftile_ops, group.rooftile_whole) == (("rooftile.ops.swiglu",), False)


def test_every_report_names_it(tmp_path, capsys):
    """Text, JSON, HTML and SARIF."""
    from rooftile.report.text import write_audit

    plan = planned(rope, x(8, 32, 2048, 128), x(2048, 128), x(2048, 128))
    name = "rooftile.ops.rotary_embedding"
    html, sarif = tmp_path / "r.html", tmp_path / "r.sarif"
    rooftile.write_report(plan, html=str(html), sarif=str(sarif))
    assert f'"{name}"' in html.read_text()
    results = json.loads(sarif.read_text())["runs"][0]["results"]
    assert f"torch.compile: pointwise chain; or {name}" in results[0]["message"]["text"]
    again = from_json(to_json(plan), Plan)
    assert again.groups[0].rooftile_ops == (name,)
    write_audit(plan.estimate, sys.stdout, plan=plan)
    assert name in capsys.readouterr().out
