"""Operands of torch's attention, of any number of dimensions, as [batch, heads, rows, width]."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._check import check_tensor

Views = tuple[Tensor, Tensor, Tensor, Tensor | None, tuple[int, ...]]


def torch_views(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, enable_gqa: bool) -> Views:
    """Operands of 4 dimensions, and the output's dimensions before the last two.

    Dimensions before the heads broadcast; so do the heads, unless they are grouped. One batch
    dimension is a view; several that broadcast are copied.

    Raises:
        InputError: There are fewer than two dimensions, or they do not broadcast.
    """
    for name, t in (("query", q), ("key", k), ("value", v)):
        check_tensor(name, t)
        if t.dim() < 2:
            raise InputError(f"{name} must have 2 dimensions at least, got shape {list(t.shape)}")
    if mask is not None:
        check_tensor("attn_mask", mask)
    dims = max(q.dim(), k.dim(), v.dim())
    q, k, v = (_at_least(t, max(dims, 3)) for t in (q, k, v))
    batch = _broadcast("key and value", *(t.shape[:-3] for t in (q, k, v)))
    heads = q.shape[-3]
    if not enable_gqa:
        (heads,) = _broadcast("key and value", *(t.shape[-3:-2] for t in (q, k, v)))
    q = _flat(q, batch, heads)
    one = enable_gqa or k.shape[-3] == v.shape[-3] == 1
    k, v = (_flat(t, batch, t.shape[-3] if one else heads) for t in (k, v))
    if mask is not None and mask.dim() > 3 and (mask.dim() > 4 or len(batch) != 1):
        mask = _flat_mask(mask, batch, (heads, q.shape[-2], k.shape[-2]))
    return q, k, v, mask, (*batch, heads)[max(3 - dims, 0) :]


def _at_least(t: Tensor, dims: int) -> Tensor:
    return t[(None,) * (dims - t.dim())] if t.dim() < dims else t


def _flat(t: Tensor, batch: tuple[int, ...], heads: int) -> Tensor:
    """All batch dimensions as one."""
    shape = (*batch, heads, *t.shape[-2:])
    if tuple(t.shape) != shape:
        t = t.expand(shape)
    return t if len(batch) == 1 else t.reshape(prod(batch), *shape[-3:])


def _flat_mask(mask: Tensor, batch: tuple[int, ...], scores: tuple[int, int, int]) -> Tensor:
    """A mask of as many batch dimensions, or fewer, as one."""
    shape = (*batch, *scores)
    sizes = (1,) * (len(shape) - mask.dim()) + tuple(mask.shape)
    fits = len(sizes) == len(shape)
    if not fits or not all(a in (1, b) for a, b in zip(sizes, shape, strict=True)):
        raise InputError(f"attn_mask must broadcast to {list(shape)}, got {list(mask.shape)}")
    return _flat(mask, batch, mask.shape[-3])


def _broadcast(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise InputError(
            f"{name} must broadcast with query before the length, got {listed}"
        ) from None
