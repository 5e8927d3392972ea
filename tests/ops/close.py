"""How near a kernel must be to the truth, and how outputs and gradients are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# Inputs are drawn at unit scale, so this is a few float32 ulps of any sum inside a kernel.
FLOOR = 1e-6
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def assert_as_accurate(name: str, actual: Tensor, eager: Tensor, truth: Tensor) -> None:
    """The kernel's worst error is at most twice PyTorch's own, plus one ulp.

    Args:
        name: What is compared, for the message.
        actual: The kernel's result.
        eager: PyTorch's result in the same dtype: what its users accept today.
        truth: The reference's result in float64.
    """
    assert actual.shape == truth.shape, f"{name}: {list(actual.shape)} != {list(truth.shape)}"
    if actual.numel() == 0:
        return
    assert actual.isfinite().all(), f"{name}: not finite"
    ulp = (truth.abs().max() * torch.finfo(actual.dtype).eps).item()
    err = (actual.double() - truth).abs().max().item()
    eager_err = (eager.double() - truth).abs().max().item()
    bound = 2 * eager_err + ulp + FLOOR
    assert err <= bound, f"{name}: {err=:.3e} > {bound=:.3e} ({eager_err=:.3e}, {ulp=:.3e})"


def outputs_and_gradients(
    fn: Callable[..., Tensor | tuple[Tensor, ...]],
    inputs: Sequence[Tensor],
    gradients: Sequence[Tensor],
) -> list[Tensor]:
    """Every output of fn and, under the given upstream gradients, the gradient of every input."""
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    result = fn(*leaves)
    outputs = result if isinstance(result, tuple) else (result,)
    upstream = [g.to(o.dtype) for g, o in zip(gradients, outputs, strict=True)]
    return [*outputs, *torch.autograd.grad(outputs, leaves, upstream)]


def assert_matches(
    fn: Callable[..., Tensor | tuple[Tensor, ...]],
    eager: Callable[..., Tensor | tuple[Tensor, ...]],
    reference: Callable[..., Tensor | tuple[Tensor, ...]],
    inputs: Sequence[Tensor],
    gradients: Sequence[Tensor],
) -> None:
    """fn is as accurate as eager, both against the reference in float64: outputs and gradients."""
    actual = outputs_and_gradients(fn, inputs, gradients)
    same = outputs_and_gradients(eager, inputs, gradients)
    truth = outputs_and_gradients(
        reference, [t.double() for t in inputs], [g.double() for g in gradients]
    )
    n_outputs = len(gradients)
    for i, (a, e, t) in enumerate(zip(actual, same, truth, strict=True)):
        name = f"output {i}" if i < n_outputs else f"gradient of input {i - n_outputs}"
        assert_as_accurate(name, a, e, t)
