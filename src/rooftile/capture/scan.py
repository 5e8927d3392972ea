"""The scans of state-space models and of RWKV, and a causal convolution, one op each.

On a GPU such a layer runs a fused scan kernel; without one, model libraries fall back to a Python
loop over the sequence, thousands of ops that no GPU would see. While a capture runs, the functions
of the library that choose between the two are replaced by ops of ours.

Source: Gu and Dao 2023, https://arxiv.org/abs/2312.00752 (shapes and saved state as in mamba_ssm);
Peng et al. 2023, https://arxiv.org/abs/2305.13048 (the WKV operator).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rooftile.capture.define import OPS, autograd, define

# the reference kernel keeps one state for each chunk of this many steps
_CHUNK = 2048


def _scan_fake(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    batch, channels, steps = u.shape
    chunks = -(-steps // _CHUNK)
    states = u.new_empty(batch, channels, chunks, 2 * A.shape[-1], dtype=torch.float32)
    return torch.empty_like(u), states


def _scan_backward_fake(
    grad_out: Tensor,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    states: Tensor,
) -> list[Tensor]:
    return [torch.empty_like(t) for t in (u, delta, A, B, C, D, z, delta_bias) if t is not None]


def _scan_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # no zeros for what nobody differentiates
    *operands, _ = inputs
    ctx.save_for_backward(*operands, output[1])


def _scan_backward(ctx: Any, grad_out: Tensor, grad_states: Tensor) -> tuple[Any, ...]:
    *operands, states = ctx.saved_tensors
    grads = iter(OPS.selective_scan_backward(grad_out, *operands, states))
    return (*(None if t is None else next(grads) for t in operands), None)


def _conv_fake(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    return torch.empty_like(x)


def _conv_backward_fake(
    grad_out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
) -> list[Tensor]:
    return [torch.empty_like(t) for t in (x, weight, bias) if t is not None]


def _conv_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.activation = inputs
    ctx.save_for_backward(x, weight, bias)


def _conv_backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
    x, weight, bias = ctx.saved_tensors
    grads = OPS.causal_conv1d_backward(grad_out, x, weight, bias, ctx.activation)
    return grads[0], grads[1], grads[2] if bias is not None else None, None


def _wkv_fake(
    time_decay: Tensor, time_first: Tensor, key: Tensor, value: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    batch, _, channels = key.shape
    kept = (batch, channels, 3) if rest[-1] else (0,)
    return torch.empty_like(key), key.new_empty(kept, dtype=torch.float32)


def _wkv_backward_fake(
    grad_out: Tensor, time_decay: Tensor, time_first: Tensor, key: Tensor, *rest: Tensor
) -> list[Tensor]:
    return [torch.empty_like(t) for t in (time_decay, time_first, key, rest[0])]


def _wkv_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # no zeros for what nobody differentiates
    ctx.save_for_backward(*inputs[:4], output[0])
    ctx.states = len(inputs[4])


def _wkv_backward(ctx: Any, grad_out: Tensor, grad_state: Tensor) -> tuple[Any, ...]:
    grads = OPS.wkv_backward(grad_out, *ctx.saved_tensors)
    return (*grads, [None] * ctx.states, None)


define(
    "selective_scan(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, "
    "Tensor? delta_bias, bool delta_softplus) -> (Tensor, Tensor)",
    _scan_fake,
)
define(
    "selective_scan_backward(Tensor grad_out, Tensor u, Tensor delta, Tensor A, Tensor B, "
    "Tensor C, Tensor? D, Tensor? z, Tensor? delta_bias, Tensor states) -> Tensor[]",
    _scan_backward_fake,
)
define("causal_conv1d(Tensor x, Tensor weight, Tensor? bias, str activation) -> Tensor", _conv_fake)
define(
    "causal_conv1d_backward(Tensor grad_out, Tensor x, Tensor weight, Tensor? bias, "
    "str activation) -> Tensor[]",
    _conv_backward_fake,
)
define(
    "wkv(Tensor time_decay, Tensor time_first, Tensor key, Tensor value, Tensor[] state, "
    "bool return_state) -> (Tensor, Tensor)",
    _wkv_fake,
)
define(
    "wkv_backward(Tensor grad_out, Tensor time_decay, Tensor time_first, Tensor key, "
    "Tensor value, Tensor out) -> Tensor[]",
    _wkv_backward_fake,
)
autograd("wkv", _wkv_backward, _wkv_setup)
autograd("selective_scan", _scan_backward, _scan_setup)
autograd("causal_conv1d", _conv_backward, _conv_setup)


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **options: Any,
) -> Any:
    """Stands in for the library's scan, with its signature."""
    u, delta, B, C = (_dense(t) for t in (u, delta, B, C))
    z = None if z is None else _dense(z)
    out, states = OPS.selective_scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus)
    return (out, states[:, :, -1, A.shape[-1] :]) if return_last_state else out


def _dense(t: Tensor) -> Tensor:
    """The kernel wants neighbours along the sequence next to each other, and copies else."""
    return t if t.stride(-1) == 1 else t.contiguous()


def no_inner_kernel(*args: Any, **options: Any) -> None:
    """Stands in for the kernel that joins a whole mixer: its scan and its matmuls stay apart."""


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **options: Any,
) -> Tensor:
    """Stands in for the library's depthwise causal convolution, with its signature."""
    out: Tensor = OPS.causal_conv1d(x, weight, bias, activation or "")
    return out


def wkv(
    time_decay: Tensor,
    time_first: Tensor,
    key: Tensor,
    value: Tensor,
    state: list[Tensor] | None = None,
    return_state: bool = False,
) -> tuple[Tensor, list[Tensor] | None]:
    """Stands in for RWKV's linear attention, which a GPU runs as one kernel."""
    wanted = return_state or state is not None
    out, states = OPS.wkv(time_decay, time_first, key, value, state or [], wanted)
    return out, list(states.unbind(-1)) if wanted else None


_STAND_INS: dict[str, Callable[..., Any]] = {
    "mamba_selective_scan": selective_scan,
    "selective_scan_fn": selective_scan,
    "causal_conv1d_fn": causal_conv1d,
    "mamba_inner_fn": no_inner_kernel,
    "rwkv_linear_attention": wkv,
}
# Model files that look those functions up in their own namespace.
_HOSTS = tuple(f"transformers.models.{m}." for m in ("mamba", "falcon_mamba", "jamba", "rwkv"))


@contextmanager
def fused_scans() -> Iterator[None]:
    """Replace the scan functions of the model libraries that are loaded, while it lasts."""
    replaced: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.startswith(_HOSTS):
            replaced += [(module, f, vars(module)[f]) for f in _STAND_INS if f in vars(module)]
    try:
        for module, function, _ in replaced:
            setattr(module, function, _STAND_INS[function])
        yield
    finally:
        for module, function, original in replaced:
            setattr(module, function, original)
