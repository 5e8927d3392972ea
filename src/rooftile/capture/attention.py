"""Attention as one op, forward and backward, whatever backend would be picked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from rooftile.capture.define import OPS, autograd, define
from rooftile.capture.notes import note

if TYPE_CHECKING:
    from torch.nn.attention.bias import CausalBias


def _attention_fake(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Output in the layout that the fused kernels write, [B, S, H, D] in memory: what follows

    (a transpose and a reshape, as a rule) is then a view here as it is on a GPU.
    """
    seq, keep = query.shape[-2], rest[-1]
    scored = _joined(query, key)
    *batch, heads = torch.broadcast_shapes(scored, _joined(query, value))
    out = query.new_empty(*batch, seq, heads, value.shape[-1]).transpose(-2, -3)
    lse = query.new_empty((*scored, seq) if keep else (0,), dtype=torch.float32)
    return out, lse


def _joined(query: Tensor, other: Tensor) -> tuple[int, ...]:
    """Batch and heads of queries with keys or values: the fewer heads are shared."""
    heads = max(query.shape[-3], other.shape[-3])
    return (*torch.broadcast_shapes(query.shape[:-3], other.shape[:-3]), heads)


def _attention_backward_fake(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float,
    causal_alignment: str,
    bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wanted = attn_bias is not None and bias_grad
    dbias = torch.empty_like(attn_bias) if wanted else query.new_empty(0)  # type: ignore[arg-type]
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), dbias


def _attention_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # no zeros for what nobody differentiates
    query, key, value, bias, *options, _ = inputs
    ctx.save_for_backward(query, key, value, bias, *output)
    ctx.options = (*options, bias is not None and bias.requires_grad)


def _attention_backward(ctx: Any, grad_out: Tensor, grad_lse: Tensor) -> tuple[Any, ...]:
    query, key, value, bias, out, lse = ctx.saved_tensors
    dq, dk, dv, dbias = OPS.attention_backward(
        grad_out, query, key, value, bias, out, lse, *ctx.options
    )
    return dq, dk, dv, dbias if ctx.options[-1] else None, None, None, None, None, None


define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias, float dropout_p, "
    "bool is_causal, float scale, str causal_alignment, bool keep) -> (Tensor, Tensor)",
    _attention_fake,
)
define(
    "attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, "
    "Tensor? attn_bias, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, "
    "float scale, str causal_alignment, bool bias_grad) -> (Tensor, Tensor, Tensor, Tensor)",
    _attention_backward_fake,
)
autograd("attention", _attention_backward, _attention_setup)


def _batched(rank: int, samples: int, tensors: tuple[Any, ...], dims: tuple[Any, ...]) -> list[Any]:
    """Tensors under vmap with their samples in front, before as many dimensions as the others."""
    moved = []
    for tensor, dim in zip(tensors, dims, strict=True):
        if isinstance(tensor, Tensor):
            whole = tensor.expand(samples, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            missing = max(rank + 1 - whole.dim(), 0) if whole.dim() > 1 else 0
            tensor = whole[(slice(None), *(None,) * missing)]
        moved.append(tensor)
    return moved


def _rank(tensor: Tensor, dim: int | None) -> int:
    """Dimensions of one sample."""
    return tensor.dim() - (dim is not None)


def _attention_vmap(info: Any, dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    operands = _batched(_rank(args[0], dims[0]), info.batch_size, args[:4], dims[:4])
    return OPS.attention(*operands, *args[4:]), (0, 0 if args[-1] else None)


def _attention_backward_vmap(info: Any, dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    operands = _batched(_rank(args[1], dims[1]), info.batch_size, args[:6], dims[:6])
    lse = args[6].expand(info.batch_size, *args[6].shape) if dims[6] is None else args[6]
    lse = lse.movedim(dims[6] or 0, 0)
    grads = OPS.attention_backward(*operands, lse, *args[7:])
    return grads, (0, 0, 0, 0 if args[4] is not None and args[-1] else None)


torch.library.register_vmap("rooftile_capture::attention", _attention_vmap)
torch.library.register_vmap("rooftile_capture::attention_backward", _attention_backward_vmap)


def _fused_attention_allowed() -> bool:
    """Whether the user's `sdpa_kernel` context leaves any fused backend."""
    cuda: Any = torch.backends.cuda
    return any(
        (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.cudnn_sdp_enabled())
    )


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Stands in for `aten::scaled_dot_product_attention`."""
    if not _plain(query, key, value, attn_mask, enable_gqa):
        _check(query, key, value, attn_mask, is_causal, enable_gqa)
    if not _fused_attention_allowed():
        math_op = torch.ops.aten._scaled_dot_product_attention_math
        options = {"scale": scale, "enable_gqa": enable_gqa}
        parts = math_op(query, key, value, attn_mask, dropout_p, is_causal, None, **options)
        out: Tensor = parts[0]
        return out
    if attn_mask is not None:
        pairs = "the causal pairs" if is_causal else "all pairs"
        note(f"attention under a mask tensor: counted without its zeros, over {pairs}")
    return _attend(query, key, value, attn_mask, dropout_p, is_causal, scale, "top_left")


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    alignment: str,
) -> Tensor:
    """One op of ours, [..., heads, sequence, width]; dimensions that are missing are put before."""
    rank = max(t.dim() for t in (query, key, value))
    if rank < 4 or min(t.dim() for t in (query, key, value)) < rank:
        query, key, value = (t[(None,) * (max(rank, 4) - t.dim())] for t in (query, key, value))
    keep = torch.is_grad_enabled() and any(map(_learnt, (query, key, value, mask)))
    scale = 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    out: Tensor = OPS.attention(
        query, key, value, mask, dropout_p, is_causal, scale, alignment, keep
    )[0]
    return out[(0,) * (4 - rank)] if rank < 4 else out


def _learnt(tensor: Tensor | None) -> bool:
    """Whether a gradient is wanted; a sample under vmap does not say so itself."""
    while tensor is not None and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor is not None and tensor.requires_grad


def _plain(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, enable_gqa: bool
) -> bool:
    """Whether nothing broadcasts and nothing can be wrong: the case of nearly every call."""
    q, k, v = query.shape, key.shape, value.shape
    return (
        mask is None
        and len(q) == len(k) == len(v) == 4
        and q[0] == k[0] == v[0]
        and k[1:3] == v[1:3]
        and q[3] == k[3]
        and (q[1] == k[1] or (enable_gqa and k[1] > 0 and q[1] % k[1] == 0))
        and query.dtype == key.dtype == value.dtype
    )


def _check(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, gqa: bool
) -> None:
    """Refuse what torch refuses, by asking it on tensors without memory; ours takes any shape."""
    with _disable_current_modes():
        q, k, v, m = (
            None if t is None else torch.empty(t.shape, dtype=t.dtype, device="meta")
            for t in (query, key, value, mask)
        )
        # the math kernel alone refuses a mask beside the flag: a GPU's takes both
        causal = is_causal and (mask is None or not _fused_attention_allowed())
        torch._C._nn.scaled_dot_product_attention(
            q, k, v, m, is_causal=causal, enable_gqa=gqa  # type: ignore[arg-type]
        )  # fmt: skip
    if mask is None:
        return
    # without memory torch lets a mask pass that is larger than the scores it is added to
    shared = gqa and query.dim() > 2
    batch = query.shape[:-2] if shared else torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    scores = (*batch, query.shape[-2], key.shape[-2])
    if torch.broadcast_shapes(scores, mask.shape) != scores:
        raise RuntimeError(
            f"scaled_dot_product_attention: attn_mask of shape {list(mask.shape)} does not fit "
            f"scores of shape {list(scores)}"
        )


def _biased(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: CausalBias,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Stands in for `CausalBias._dispatch`, which asks a GPU which of its kernels may run."""
    from torch.nn.attention.bias import CausalVariant

    if is_causal:
        raise ValueError("CausalBias excludes is_causal=True")
    square = attn_mask.seq_len_q == attn_mask.seq_len_kv
    bottom_right = attn_mask.variant == CausalVariant.LOWER_RIGHT and not square
    if not bottom_right or not _fused_attention_allowed():
        mask = attn_mask._materialize() if bottom_right else None
        return functional.scaled_dot_product_attention(
            query, key, value, mask, dropout_p, mask is None, scale=scale, enable_gqa=enable_gqa
        )
    if not _plain(query, key, value, None, enable_gqa):
        _check(query, key, value, None, False, enable_gqa)
    return _attend(query, key, value, None, dropout_p, True, scale, "bottom_right")


@contextmanager
def causal_biases() -> Iterator[None]:
    """Take torch's own causal biases for what they are while it lasts: a flag, no mask."""
    from torch.nn.attention.bias import CausalBias  # it touches the compiler, which may wait

    original = CausalBias.__dict__["_dispatch"]
    CausalBias._dispatch = staticmethod(_biased)  # type: ignore[method-assign]
    CausalBias.__new__ = _new_bias  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        CausalBias._dispatch = original  # type: ignore[method-assign]
        del CausalBias.__new__


def _new_bias(cls: type[CausalBias], *args: Any) -> Tensor:
    """Under fake tensors a subclass of tensors cannot be made; this one holds no data anyway."""
    with _disable_current_modes():
        return torch.Tensor._make_subclass(cls, torch.empty(0))
