"""From the public arguments of attention to those of its torch op, every one of them checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._check import (
    check_choice,
    check_device,
    check_finite,
    check_probability,
    check_softcap,
    check_switch,
    check_tensor,
    check_whole,
)
from rooftile.ops.flash import checks


@dataclass(frozen=True, slots=True)
class Options:
    """The keyword arguments of ``rooftile.ops.attention``; there they are described."""

    attn_mask: Tensor | None = None
    is_causal: bool = False
    alignment: str = "bottom_right"
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    alibi_slopes: Tensor | None = None
    sinks: Tensor | None = None
    dropout_p: float = 0.0
    seed: Tensor | None = None
    scale: float | None = None
    layout: str = "bhsd"
    deterministic: bool = False
    cu_seqlens_q: Tensor | None = None
    cu_seqlens_k: Tensor | None = None
    max_seqlen_q: int | None = None
    max_seqlen_k: int | None = None
    seqused_k: Tensor | None = None
    block_table: Tensor | None = None
    num_splits: int = 0


def op_arguments(
    query: Tensor, key: Tensor, value: Tensor, options: Options
) -> tuple[tuple[Any, ...], bool]:
    """The arguments of the torch op, and whether heads lie inside the sequence.

    Raises:
        InputError: An argument is not as ``rooftile.ops.attention`` says.
    """
    for name, given in (("query", query), ("key", key), ("value", value)):
        check_tensor(name, given)
    if options.attn_mask is not None:
        check_tensor("attn_mask", options.attn_mask)
    query, key, value, mask = _autocast(query, key, value, options.attn_mask)
    check_choice("layout", options.layout, checks.LAYOUTS)
    check_choice("alignment", options.alignment, checks.ALIGNMENTS)
    check_switch("is_causal", options.is_causal)
    check_switch("deterministic", options.deterministic)
    packed = options.cu_seqlens_q is not None or options.cu_seqlens_k is not None
    paged = options.block_table is not None
    inside = packed or options.layout == "bshd"
    q, k, v = (_heads_first(*named, packed, inside)
               for named in (("query", query), ("key", key), ("value", value)))  # fmt: skip
    checks.check_qkv(q, k, v, packed, paged)
    scale, softcap, dropout_p, num_splits = _numbers(options, q.shape[-1])
    longest_q, longest_k = (_packed_lengths if packed else _lengths)(q, k, options)
    left, right = checks.check_window(options.window_size, longest_q, longest_k)
    batch = options.cu_seqlens_q.numel() - 1 if options.cu_seqlens_q is not None else q.shape[0]
    heads = q.shape[1]
    _refuse_together(options, packed, paged)
    if paged and torch.is_grad_enabled():
        _refuse_gradients(query=q, key=k, value=v, sinks=options.sinks)
    if mask is not None:
        mask = checks.check_mask(mask, (batch, heads, longest_q, longest_k), q)
    slopes = options.alibi_slopes
    if slopes is not None:
        slopes = checks.check_slopes(slopes, batch, heads, q)
    if options.sinks is not None:
        checks.check_sinks(options.sinks, heads, q)
    small = (
        options.sinks, options.cu_seqlens_q, options.cu_seqlens_k, options.seqused_k,
        options.block_table,
    )  # fmt: skip
    return (
        q, k, v, mask, slopes, *map(checks.side_by_side, small), _seed(q, options), scale,
        softcap, left, 0 if options.is_causal else right,
        options.alignment == "bottom_right", dropout_p, longest_q, longest_k,
        options.deterministic, mask is not None and mask.requires_grad, num_splits,
        inside or _lies_inside(q),
    ), inside  # fmt: skip


def _numbers(options: Options, head_dim: int) -> tuple[float, float, float, int]:
    """Scale, softcap, dropout's probability and the number of splits."""
    scale = head_dim**-0.5 if options.scale is None else check_finite("scale", options.scale)
    softcap = float(check_softcap(options.softcap))
    dropout_p = float(check_probability("dropout_p", options.dropout_p))
    num_splits = check_whole("num_splits", options.num_splits)
    if num_splits < 0:
        raise InputError(f"num_splits must be at least 0 (chosen), got {num_splits}")
    return scale, softcap, dropout_p, num_splits


def _heads_first(name: str, t: Tensor, packed: bool, inside: bool) -> Tensor:
    """[batch, heads, sequence, width], a view: packed sequences are one batch."""
    if packed:
        checks.check_dimensions(name, t, 3, "tokens, heads, head dim")
        t = t.unsqueeze(0)
    else:
        what = "batch, sequence, heads, head dim" if inside else "batch, heads, sequence, head dim"
        checks.check_dimensions(name, t, 4, what)
    return t.transpose(1, 2) if inside else t


def _lies_inside(q: Tensor) -> bool:
    """Whether the output is laid out as [batch, sequence, heads, width], because q is."""
    return q.transpose(1, 2).is_contiguous() and not q.is_contiguous()


def _lengths(q: Tensor, k: Tensor, options: Options) -> tuple[int, int]:
    """Queries and keys of a sequence that is not packed; in pages, the keys that fit a row."""
    batch = q.shape[0]
    longest_k = k.shape[2]
    table = options.block_table
    if table is not None:
        checks.check_index("block_table", table, (batch, None), q)
        longest_k = table.shape[1] * k.shape[2]
    if options.seqused_k is not None:
        checks.check_index("seqused_k", options.seqused_k, (batch,), q)
        checks.check_lengths("seqused_k", options.seqused_k, longest_k)
    if table is not None:
        checks.check_pages(table, options.seqused_k, k.shape[0], k.shape[2])
    return q.shape[2], longest_k


def _packed_lengths(q: Tensor, k: Tensor, options: Options) -> tuple[int, int]:
    """The longest sequences of a packed batch; as many as all tokens where none is given."""
    found = []
    for side, t, cu, longest in (
        ("q", q, options.cu_seqlens_q, options.max_seqlen_q),
        ("k", k, options.cu_seqlens_k, options.max_seqlen_k),
    ):
        name = f"cu_seqlens_{side}"
        if cu is None:
            raise InputError(f"{name} must be given where queries or keys are packed, got None")
        checks.check_index(name, cu, (None,), q)
        if cu.numel() < 1:
            raise InputError(f"{name} must hold a start at least, got none")
        tokens = t.shape[2]
        most = tokens if longest is None else check_whole(f"max_seqlen_{side}", longest)
        if most < 0:
            raise InputError(f"max_seqlen_{side} must be at least 0, got {most}")
        checks.check_starts(name, cu, tokens, most)
        found.append(min(most, tokens))  # no sequence is longer, and a grid has its limits
    assert options.cu_seqlens_q is not None
    assert options.cu_seqlens_k is not None
    if options.cu_seqlens_q.shape != options.cu_seqlens_k.shape:
        raise InputError(
            f"cu_seqlens_k must have {options.cu_seqlens_q.numel()} starts like cu_seqlens_q, "
            f"got {options.cu_seqlens_k.numel()}"
        )
    return found[0], found[1]


def _refuse_gradients(**tensors: Tensor | None) -> None:
    """The kernel that reads pages has no backward."""
    for name, t in tensors.items():
        if t is not None and t.requires_grad:
            raise InputError(
                f"{name} must not require a gradient where keys lie in pages (block_table)"
            )


def _refuse_together(options: Options, packed: bool, paged: bool) -> None:
    """What has no meaning, or no kernel, together."""
    lengths = options.seqused_k is not None
    given = options.attn_mask is not None
    if packed and (paged or lengths):
        name = "block_table" if paged else "seqused_k"
        raise InputError(f"{name} must be None where sequences are packed by cu_seqlens")
    if (packed or paged) and given:
        raise InputError("attn_mask must be None where sequences are packed or paged")
    if not packed and (options.max_seqlen_q is not None or options.max_seqlen_k is not None):
        raise InputError("max_seqlen_q and max_seqlen_k must be None without cu_seqlens")
    if paged and options.dropout_p > 0:
        raise InputError("dropout_p must be 0 where keys lie in pages (block_table)")


def _seed(q: Tensor, options: Options) -> Tensor | None:
    """The given seed, or one out of torch's generator, on the device: nothing waits for it."""
    seed = options.seed
    if seed is not None:
        check_device("seed", seed, "query", q)
        if seed.dtype != torch.int64 or seed.numel() != 1:
            raise InputError(f"seed must be one int64, got {seed.numel()} of {seed.dtype}")
    if options.dropout_p == 0:
        return None
    return torch.randint(2**62, (1,), device=q.device) if seed is None else seed.view(1)


def _autocast(*tensors: Tensor | None) -> Any:
    """The operands as autocast hands them to torch's attention; a boolean mask stays one."""
    first = tensors[0]
    assert first is not None
    device = first.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    eligible = (torch.float32, torch.float16, torch.bfloat16)
    return tuple(t.to(dtype) if t is not None and t.dtype in eligible else t for t in tensors)
