"""Calls that ``tune_rows.py`` times, each with a check against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rooftile.ops import (
    add_layer_norm,
    add_rms_norm,
    bias_gelu_dropout_residual,
    cross_entropy,
    geglu,
    layer_norm,
    log_softmax,
    rms_norm,
    rotary_embedding,
    softmax,
    swiglu,
)

CHECK_ROWS = 640  # more than the programs of a persistent grid, and a multiple of 64


@dataclass
class Case:
    """One call to time: what it runs, what it should give, bytes moved, its launch family."""

    run: Callable[[], Any]
    check: Callable[[], None]
    n_bytes: int
    family: str


def close(name: str, actual: Tensor, expected: Tensor) -> None:
    """Fail on a wrong result: 2 % of the largest value, for bfloat16 against bfloat16."""
    scale = expected.float().abs().max().item()
    worst = (actual.float() - expected.float()).abs().max().item()
    if not worst <= 0.02 * scale:
        raise ValueError(f"{name} is wrong by {worst:.3g} of {scale:.3g}")


def _all(results: Any) -> tuple[Tensor, ...]:
    """An op's results, where it has one too."""
    return results if isinstance(results, tuple) else (results,)


def _gradients(run: Callable[..., Any], leaves: list[Tensor]) -> Callable[[], Any]:
    """Only the gradients of a recorded call; x is the first leaf."""
    y = _all(run(*leaves))
    dy = [torch.randn_like(t) for t in y]
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


def _added(norm: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """A norm of x + residual, and the sum."""
    return lambda x, r, *parameters: (norm(x + r, *parameters), x + r)


def _rope(n: int, rows: int, device: str) -> tuple[Tensor, Tensor]:
    angle = torch.rand(rows, 64, device=device) * 6
    return angle.cos().bfloat16(), angle.sin().bfloat16()


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.view(1, x.shape[0], -1, 128).float().chunk(2, -1)
    cos, sin = cos.float().unsqueeze(-2), sin.float().unsqueeze(-2)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def forms(op: str, n: int, device: str) -> tuple[Callable[..., Any], Callable[..., Any], int, str]:
    """Ours, torch's, tensors that a forward moves, the launch family's first part."""
    table: dict[str, tuple[Callable[..., Any], Callable[..., Any], int, str]] = {
        "softmax": (lambda x: softmax(x, 1), lambda x: torch.softmax(x, 1), 2, "softmax"),
        "log_softmax": (
            lambda x: log_softmax(x, 1), lambda x: torch.log_softmax(x, 1), 2, "softmax",
        ),
        "rms_norm": (
            lambda x, w: rms_norm(x, (n,), w, 1e-6), lambda x, w: torch.rms_norm(x, (n,), w, 1e-6),
            2, "norm",
        ),
        "layer_norm": (
            lambda x, w, b: layer_norm(x, (n,), w, b),
            lambda x, w, b: torch.layer_norm(x, (n,), w, b), 2, "norm",
        ),
        "add_rms_norm": (
            lambda x, r, w: add_rms_norm(x, r, (n,), w, 1e-6),
            _added(lambda h, w: torch.rms_norm(h, (n,), w, 1e-6)), 4, "norm",
        ),
        "add_layer_norm": (
            lambda x, r, w, b: add_layer_norm(x, r, (n,), w, b),
            _added(lambda h, w, b: torch.layer_norm(h, (n,), w, b)), 4, "norm",
        ),
        "swiglu": (swiglu, lambda x, u: F.silu(x) * u, 3, "flat"),
        "geglu": (geglu, lambda x, u: F.gelu(x) * u, 3, "flat"),
        "bgr_erf": (
            lambda x, b, r: bias_gelu_dropout_residual(x, b, r, 0.0),
            lambda x, b, r: F.gelu(x + b) + r, 3, "column_blocks",
        ),
        "bgdr_erf": (
            lambda x, b, r: bias_gelu_dropout_residual(x, b, r, 0.1), None, 3, "column_blocks",
        ),
        "bgdr_tanh": (
            lambda x, b, r: bias_gelu_dropout_residual(x, b, r, 0.1, approximate="tanh"),
            None, 3, "column_blocks",
        ),
        "rotary": (
            lambda x, c, s: rotary_embedding(x.view(1, x.shape[0], -1, 128), c, s), _turned, 2,
            "rotary",
        ),
    }  # fmt: skip
    return table[op]


def leaves_of(op: str, x: Tensor) -> list[Tensor]:
    """What an op takes."""
    n = x.shape[1]
    w, b = (torch.randn(n, device=x.device, dtype=x.dtype) for _ in range(2))
    if op.endswith("softmax"):
        return [x]
    if op == "rms_norm":
        return [x, w]
    if op == "layer_norm":
        return [x, w, b]
    if op == "add_rms_norm":
        return [x, torch.randn_like(x), w]
    if op == "add_layer_norm":
        return [x, torch.randn_like(x), w, b]
    if op == "rotary":
        return [x, *_rope(n, x.shape[0], x.device.type)]
    return [x, torch.randn_like(x)] if "glu" in op else [x, b, torch.randn_like(x)]


def build(name: str, x: Tensor) -> Case:
    """The case of one op and direction on x."""
    if name.startswith("cross_entropy"):
        return _cross_entropy(name, x)
    op, _, direction = name.rpartition("_")
    ours, theirs, moved, family = forms(op, x.shape[1], x.device.type)
    size = x.numel() * x.element_size()
    if family in ("softmax", "norm"):
        family = f"{family}_{direction}"
    if op.startswith("add"):
        family = f"add_{family}"
    if op == "layer_norm" and direction == "fwd":
        family = "layer_norm_fwd"
    leaves = leaves_of(op, x)
    n_diff = {"rotary": 1}.get(op, len(leaves))
    near = leaves_of(op, x[:CHECK_ROWS].detach().clone())

    def check() -> None:
        if theirs is None:
            ours(*near)
            return
        if direction == "fwd":
            for a, b in zip(_all(ours(*near)), _all(theirs(*near)), strict=True):
                close(name, a, b)
            return
        diff = [t.detach().requires_grad_() for t in near[:n_diff]]
        y, e = _all(ours(*diff, *near[n_diff:])), _all(theirs(*diff, *near[n_diff:]))
        dy = [torch.randn_like(t) for t in y]
        for a, b in zip(
            torch.autograd.grad(y, diff, dy),
            torch.autograd.grad(e, diff, [d.view(t.shape) for d, t in zip(dy, e, strict=True)]),
            strict=True,
        ):
            close(name, a, b)

    if direction == "fwd":
        return Case(lambda: ours(*leaves), check, moved * size, family)
    bwd_moved = {"softmax": 3, "log_softmax": 3, "rms_norm": 3, "layer_norm": 3, "swiglu": 5,
                 "add_rms_norm": 4, "add_layer_norm": 4,
                 "geglu": 5, "rotary": 2}.get(op, 3)  # fmt: skip
    diff = [t.requires_grad_() for t in leaves[:n_diff]]
    fixed = leaves[n_diff:]
    run = _gradients(lambda *d: ours(*d, *fixed), diff)
    return Case(run, check, bwd_moved * size, family)


def _cross_entropy(name: str, x: Tensor) -> Case:
    """Loss alone, or loss and gradient."""
    target = torch.randint(0, x.shape[1], (x.shape[0],), device=x.device)
    size = x.numel() * x.element_size()

    def check() -> None:
        near = x[:CHECK_ROWS].detach().clone().requires_grad_()
        ours = cross_entropy(near, target[:CHECK_ROWS])
        theirs = F.cross_entropy(near.float(), target[:CHECK_ROWS])
        close(name, ours, theirs)
        (a,), (e,) = torch.autograd.grad(ours, near), torch.autograd.grad(theirs, near)
        close(name, a, e)

    if name == "cross_entropy_fwd":
        return Case(lambda: cross_entropy(x, target), check, size, name)
    x.requires_grad_()

    def both() -> None:
        torch.autograd.grad(cross_entropy(x, target), x)

    return Case(both, check, 3 * size, "cross_entropy_bwd")
