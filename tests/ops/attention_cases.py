"""How attention's tests hold it to its definition in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rooftile.ops.attention import attention, attention_ref
from rooftile.plan.launch_attention import override_attention

FAMILIES = ("attention_fwd", "attention_dkdv", "attention_dq", "attention_decode")
# Of the largest value: a few float32 ulps of sums; a few roundings of weights and of the output.
TOLERANCE = {torch.float32: 4e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@contextlib.contextmanager
def small_tiles(device: str, block_m: int = 16, block_n: int = 16) -> Iterator[None]:
    """Under the interpreter, tiles so small that little tensors have several."""
    with contextlib.ExitStack() as stack:
        if device == "cpu":
            for family in FAMILIES:
                stack.enter_context(override_attention(family, block_m=block_m, block_n=block_n))
        yield


def assert_near(
    name: str, actual: Tensor, truth: Tensor, operands: torch.dtype | None = None
) -> None:
    """Equal where infinite, near where finite; the dtype of the operands sets how near."""
    assert actual.shape == truth.shape, f"{name}: {list(actual.shape)} != {list(truth.shape)}"
    finite = truth.isfinite()
    assert torch.equal(actual.isfinite(), finite), f"{name}: other places are infinite"
    assert torch.equal(actual[~finite].double(), truth[~finite]), f"{name}: another infinity"
    if not finite.any():
        return
    error = (actual.double() - truth)[finite].abs().max().item()
    bound = TOLERANCE[operands or actual.dtype] * max(1.0, truth[finite].abs().max().item())
    assert error <= bound, f"{name}: {error=:.3e} > {bound=:.3e}"


def compare(q: Tensor, k: Tensor, v: Tensor, *, layout: str = "bhsd", **options: Any) -> None:
    """Output, log-sum-exp and every gradient against those of the definition in float64.

    Args:
        q: As ``layout`` says.
        k: Likewise.
        v: Likewise.
        layout: Of the three.
        **options: Of ``attention`` and its definition; ``num_splits`` of the first alone.
    """
    extra = {n: t for n, t in options.items() if is_float(t) and n != "alibi_slopes"}
    names = ["query", "key", "value", *extra]
    leaves = [t.detach().requires_grad_() for t in (q, k, v, *extra.values())]
    given = options | dict(zip(extra, leaves[3:], strict=True))
    o, lse = attention(*leaves[:3], layout=layout, return_lse=True, **given)
    truths = [t.detach().double().requires_grad_() for t in leaves]
    given |= dict(zip(extra, truths[3:], strict=True))
    given.pop("num_splits", None)
    swap = layout == "bshd"
    true_o, true_lse = attention_ref(
        *(t.transpose(1, 2) if swap else t for t in truths[:3]), **given
    )
    true_o = true_o.transpose(1, 2) if swap else true_o
    assert_near("output", o.detach(), true_o.detach())
    assert_near("log-sum-exp", lse.detach(), true_lse.detach())
    do, dlse = torch.randn_like(o), torch.randn_like(lse)
    seen = true_lse.isfinite()
    found = torch.autograd.grad([o, lse], leaves, [do, dlse.masked_fill(~seen, 0.0)])
    upstream = [do.double(), dlse.double()[seen]]
    right = torch.autograd.grad([true_o, true_lse[seen]], truths, upstream)
    for name, leaf, actual, truth in zip(names, leaves, found, right, strict=True):
        assert actual.dtype == leaf.dtype
        assert_near(f"gradient of {name}", actual, truth, q.dtype)


def is_float(value: Any) -> bool:
    """Whether a value is a tensor of numbers."""
    return isinstance(value, Tensor) and value.is_floating_point()


def draw(
    device: str, dtype: torch.dtype, batch: int, heads: int, kv_heads: int, q_len: int, k_len: int,
    head_dim: int, v_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Random queries, keys and values, heads first."""

    def one(h: int, s: int, d: int) -> Tensor:
        return torch.randn(batch, h, s, d, device=device).to(dtype)

    wide = head_dim if v_dim is None else v_dim
    return one(heads, q_len, head_dim), one(kv_heads, k_len, head_dim), one(kv_heads, k_len, wide)
