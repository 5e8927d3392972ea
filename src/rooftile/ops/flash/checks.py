"""Checks of attention's arguments. Each raises InputError and names the argument."""

from __future__ import annotations

import os
from itertools import pairwise

import torch
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._check import (
    FLOAT_DTYPES,
    check_device,
    check_float,
    check_tensor,
    check_whole,
    shown,
)
from rooftile.ops._derivatives import check_derivative
from rooftile.ops._launch import INTERPRETED

MAX_HEAD_DIM = 256
ALIGNMENTS = ("top_left", "bottom_right")
LAYOUTS = ("bhsd", "bshd")
CHECK_VALUES = "ROOFTILE_CHECK_SEQLENS"
_FAR = 2**30  # keys of a window's side; two of them are still 32 bits


def check_qkv(q: Tensor, k: Tensor, v: Tensor, packed: bool, paged: bool) -> None:
    """Queries, keys and values as [batch, heads, sequence, width]."""
    for name, t in (("query", q), ("key", k), ("value", v)):
        check_float(name, t)
        if t.dtype != q.dtype:
            raise InputError(f"{name} must be {q.dtype} like query, got {t.dtype}")
        check_device(name, t, "query", q)
        if not 1 <= t.shape[-1] <= MAX_HEAD_DIM:
            raise InputError(
                f"{name} must have a head dim in [1, {MAX_HEAD_DIM}], got {t.shape[-1]}"
            )
    if k.shape[-1] != q.shape[-1]:
        raise InputError(f"key must have head dim {q.shape[-1]} like query, got {k.shape[-1]}")
    if v.shape[:3] != k.shape[:3]:
        raise InputError(
            f"value must have the batch, heads and length of key, {list(k.shape[:3])}, "
            f"got {list(v.shape[:3])}"
        )
    if not paged and not packed and k.shape[0] != q.shape[0]:
        raise InputError(f"key must have batch {q.shape[0]} like query, got {k.shape[0]}")
    heads, kv_heads = q.shape[1], k.shape[1]
    if (kv_heads == 0 and heads) or (kv_heads and heads % kv_heads):
        raise InputError(
            f"query must have a multiple of key's heads, got {heads} and {kv_heads} heads"
        )


def check_dimensions(name: str, t: Tensor, n: int, what: str) -> None:
    """A tensor of so many dimensions, which are named."""
    if t.dim() != n:
        raise InputError(f"{name} must have {n} dimensions ({what}), got shape {list(t.shape)}")


def check_mask(mask: Tensor, shape: tuple[int, int, int, int], q: Tensor) -> Tensor:
    """A mask that broadcasts to the scores, as 4 dimensions."""
    check_device("attn_mask", mask, "query", q)
    check_derivative("attn_mask", mask)
    if mask.dtype != torch.bool and mask.dtype not in FLOAT_DTYPES:
        raise InputError(f"attn_mask must be bool, float32, float16 or bfloat16, got {mask.dtype}")
    sizes = (1,) * (4 - mask.dim()) + tuple(mask.shape)
    fits = len(sizes) == 4 and all(a in (1, b) for a, b in zip(sizes, shape, strict=True))
    if not fits:
        raise InputError(f"attn_mask must broadcast to {list(shape)}, got {list(mask.shape)}")
    return mask.view(sizes) if mask.dim() < 4 else mask


def check_window(window_size: tuple[int, int], longest_q: int, longest_k: int) -> tuple[int, int]:
    """Two sides, -1 where unlimited, as one is that reaches past the longest sequence.

    Kernels add a side to a row in 32 bits.
    """
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise InputError(
            f"window_size must be two numbers (left, right), -1 or more, got {shown(window_size)}"
        )
    left, right = window_size
    left, right = check_whole("window_size", left), check_whole("window_size", right)
    if left < -1 or right < -1:
        raise InputError(
            f"window_size must be two numbers (left, right), -1 or more, got {(left, right)}"
        )
    if left < _FAR and right < _FAR:
        return left, right
    if longest_q > _FAR or longest_k > _FAR:
        raise InputError(
            f"window_size must be under {_FAR} where sequences are as long, got {(left, right)}"
        )
    return -1 if left >= _FAR else left, -1 if right >= _FAR else right


def check_slopes(slopes: Tensor, batch: int, heads: int, q: Tensor) -> Tensor:
    """ALiBi slopes as [batch or 1, heads]."""
    check_device("alibi_slopes", slopes, "query", q)
    if slopes.dtype != torch.float32 or tuple(slopes.shape) not in ((heads,), (batch, heads)):
        raise InputError(
            f"alibi_slopes must be float32 of shape {[heads]} or {[batch, heads]}, "
            f"got {slopes.dtype} {list(slopes.shape)}"
        )
    check_derivative("alibi_slopes", slopes)
    if slopes.requires_grad and torch.is_grad_enabled():
        raise InputError("alibi_slopes must not require a gradient: there is none for them")
    return slopes.view(-1, heads)


def check_sinks(sinks: Tensor, heads: int, q: Tensor) -> None:
    """One logit a head."""
    check_float("sinks", sinks)
    check_device("sinks", sinks, "query", q)
    if tuple(sinks.shape) != (heads,):
        raise InputError(f"sinks must have shape {[heads]}, got {list(sinks.shape)}")


def check_index(name: str, t: Tensor, shape: tuple[int | None, ...], q: Tensor) -> None:
    """An int32 tensor beside the queries; None stands for any length."""
    check_tensor(name, t)
    fits = t.dim() == len(shape) and all(
        want in (None, got) for want, got in zip(shape, t.shape, strict=True)
    )
    if t.dtype != torch.int32 or not fits:
        wanted = [("any" if n is None else n) for n in shape]
        raise InputError(f"{name} must be int32 of shape {wanted}, got {t.dtype} {list(t.shape)}")
    check_device(name, t, "query", q)


def side_by_side(t: Tensor | None) -> Tensor | None:
    """A small tensor as kernels read it: the elements of a row one after the other."""
    return t if t is None or t.stride(-1) == 1 else t.contiguous()


def values_are_checked(t: Tensor) -> bool:
    """Whether numbers on the device are looked at: where nothing waits for it, or when asked."""
    asked = INTERPRETED or os.environ.get(CHECK_VALUES) == "1"
    return asked and not torch.compiler.is_compiling() and not t.is_meta


def check_starts(name: str, cu: Tensor, tokens: int, longest: int) -> None:
    """Starts of packed sequences: from 0, never falling, within the tokens, none too long."""
    if not values_are_checked(cu):
        return
    starts = cu.tolist()
    lengths = [b - a for a, b in pairwise(starts)]
    if starts[0] != 0 or min(lengths, default=0) < 0 or starts[-1] > tokens:
        raise InputError(
            f"{name} must start at 0, never fall and end at {tokens} at most, got {starts}"
        )
    if max(lengths, default=0) > longest:
        name = name.replace("cu_seqlens", "max_seqlen")
        raise InputError(f"{name} must be at least {max(lengths)}, got {longest}")


def check_lengths(name: str, lengths: Tensor, most: int) -> None:
    """Numbers of keys that fit the cache."""
    if not values_are_checked(lengths) or lengths.numel() == 0:
        return
    low, high = int(lengths.min()), int(lengths.max())
    if low < 0 or high > most:
        raise InputError(f"{name} must be in [0, {most}], got {low if low < 0 else high}")


def check_pages(table: Tensor, lengths: Tensor | None, pages: int, page_size: int) -> None:
    """Pages that are looked up exist; entries past a sequence's keys are not looked up."""
    if not values_are_checked(table) or table.numel() == 0:
        return
    used = torch.ones_like(table, dtype=torch.bool)
    if lengths is not None:
        place = torch.arange(table.shape[1], device=table.device) * page_size
        used = place[None, :] < lengths[:, None]
    bad = used & ((table < 0) | (table >= pages))
    if bool(bad.any()):
        raise InputError(
            f"block_table must hold pages in [0, {pages - 1}], got {int(table[bad][0])}"
        )
