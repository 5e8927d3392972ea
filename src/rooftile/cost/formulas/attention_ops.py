"""Attention ops of a graph: ours, and each of torch's own, whatever their layout.

Ours and torch's ``_scaled_dot_product_*`` hold [batch, heads, sequence, width]; the ops under them
[batch, sequence, heads, width], or packed [tokens, heads, width] with the sequences' ends in
another tensor. Those ends are data; where they are known, the op carries the lengths (``q_lens``,
``k_lens``). Else all sequences are taken to be equally long: with one query each, or as many, that
is exact; for self-attention it is the least work that so many tokens can be.

Which corner a causal mask of unequal lengths hangs on is each kernel's own: top left for torch's
composite op, cuDNN and the CPU's, bottom right for the flash kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from rooftile.cost.formulas.attention import (
    Mask,
    Work,
    backward_work,
    forward_work,
    ragged_pairs,
)
from rooftile.cost.formulas.operands import (
    Formula,
    broadcast,
    cost,
    flag,
    matrix_math,
    narrowed,
    number,
    operand,
    reads_without,
)
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor

# Vector FLOP a pair: an added bias; dropout's comparison and product.
_BIAS_FLOPS, _DROPOUT_FLOPS = 1, 2
_BIAS_ROLES = ("attn_bias", "attn_mask", "bias")
# Where packed sequences of queries end, as each kernel calls it.
_ENDS = ("cum_seq_q", "cu_seqlens_q", "cu_seq_q")


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the dimensions stand: of the sequence and of the heads, counted from the back."""

    sequence: int
    heads: int


_HEADS_FIRST = _Layout(sequence=-2, heads=-3)  # [batch, heads, sequence, width]
_SEQUENCE_FIRST = _Layout(sequence=-3, heads=-2)  # [batch, sequence, heads, width]


def _window(op: Op, *names: str) -> int | None:
    """A window's width; torch writes "unlimited" as -1 or leaves it out."""
    for name in names:
        value = op.attrs.get(name)
        if isinstance(value, int) and value >= 0:
            return value
    return None


def _mask(op: Op, bottom_right: bool) -> Mask:
    alignment = op.attrs.get("causal_alignment")
    kind = op.attrs.get("custom_mask_type", 0)  # of the memory-efficient kernel
    left = _window(op, "window_left", "window_size_left")
    right = _window(op, "window_right", "window_size_right")
    size = op.attrs.get("window_size")
    if isinstance(size, tuple) and len(size) == 2:  # the packed kernel's: before, after
        left, right = (n if isinstance(n, int) and n >= 0 else None for n in size)
    own_included = _window(op, "window_size")  # the memory-efficient kernel's word for it
    return Mask(
        causal=flag(op, "is_causal") or kind in (1, 2),
        bottom_right=kind == 2 or (alignment == "bottom_right" if alignment else bottom_right),
        left=own_included - 1 if left is None and own_included else left,
        right=right,
    )


def _leading(op: Op, q: Tensor, k: Tensor, layout: _Layout) -> int:
    """Batch times query heads; a batch of one broadcasts, query heads share those of the keys."""
    heads = q.shape[layout.heads] if len(q.shape) > 2 else 1
    kv_heads = k.shape[layout.heads] if len(k.shape) > 2 else 1
    if kv_heads == 0 or (heads % kv_heads and heads != 1):
        raise InputError(f"{op.aten}: query heads must be a multiple of {kv_heads}, got {heads}")
    return prod(broadcast((q.shape[:-3], k.shape[:-3]))) * max(heads, kv_heads)


def _spread(op: Op, q: Tensor, k: Tensor, v: Tensor, layout: _Layout) -> int:
    """Batches of the output over batches of the scores: more where only values have a batch."""
    lead = _leading(op, q, k, layout)
    heads = max((t.shape[layout.heads] if len(t.shape) > 2 else 1) for t in (q, k, v))
    both = prod(broadcast((q.shape[:-3], k.shape[:-3], v.shape[:-3]))) * heads
    return both // lead if lead else 1


def _lengths(op: Op, name: str, tokens: int, sequences: int) -> tuple[int, ...] | None:
    given = op.attrs.get(name)
    if given is None:
        return None
    lengths = tuple(n for n in given if isinstance(n, int)) if isinstance(given, tuple) else ()
    if len(lengths) != sequences or sum(lengths) > tokens:
        raise InputError(
            f"{op.aten}: {name} must be {sequences} lengths of {tokens} tokens, got {given!r}"
        )
    return lengths


def _packed_pairs(op: Op, q: Tensor, k: Tensor, ends: Tensor, mask: Mask) -> tuple[int, int]:
    """Pairs of one head of packed sequences [tokens, heads, width] or [1, tokens, heads, width]."""
    sequences = max(ends.numel - 1, 1)
    q_tokens, k_tokens = q.shape[-3], k.shape[-3]
    q_lens = _lengths(op, "q_lens", q_tokens, sequences)
    k_lens = _lengths(op, "k_lens", k_tokens, sequences)
    if q_lens is None or k_lens is None:
        return _even_pairs(q_tokens, k_tokens, sequences, mask)
    return ragged_pairs(q_lens, k_lens, mask)


def _even_pairs(q_tokens: int, k_tokens: int, sequences: int, mask: Mask) -> tuple[int, int]:
    """Pairs of sequences of one length, as near as the tokens allow."""
    return ragged_pairs(_split(q_tokens, sequences), _split(k_tokens, sequences), mask)


def _split(tokens: int, sequences: int) -> Sequence[int]:
    short, longer = divmod(tokens, sequences)
    return [short + 1] * longer + [short] * (sequences - longer)


def _extras(op: Op) -> int:
    """Vector FLOP a pair beyond the softmax. An empty tensor is a bias that was not given."""
    biases = (op.operand(role) for role in _BIAS_ROLES)
    biased = any(bias is not None and bias.numel for bias in biases)
    dropped = number(op, "dropout_p", 0.0) > 0
    return _BIAS_FLOPS * biased + _DROPOUT_FLOPS * dropped


def _price(
    op: Op, work_of: Callable[..., Work], layout: _Layout, *, bottom_right: bool = False
) -> Cost:
    q, k, v = (operand(op, role) for role in ("query", "key", "value"))
    least = -layout.sequence  # the heads may be missing, the sequence not
    if min(len(t.shape) for t in (q, k, v)) < least:
        raise InputError(f"{op.aten}: query must have {least} dimensions at least, got {q.shape}")
    mask = _mask(op, bottom_right)
    ends = next((t for r in _ENDS if (t := op.operand(r))), None)
    packed = layout is _SEQUENCE_FIRST and ends is not None and ends.numel > 0
    reads, spread = op.reads, 1
    if packed and ends is not None:
        lead = q.shape[-2]
        visible, dense = _packed_pairs(op, q, k, ends, mask)
        rows = q.shape[-3]
    else:
        lead = _leading(op, q, k, layout)
        spread = _spread(op, q, k, v, layout)
        rows, keys = q.shape[layout.sequence], k.shape[layout.sequence]
        visible, dense = mask.pairs(rows, keys), rows * keys
        start, seen = mask.keys_seen(rows, keys)
        cut = tuple(narrowed(t, layout.sequence, start, seen) for t in (k, v))
        reads = (*reads_without(op, "key", "value"), *cut)
    if not visible:  # zeros, whatever stands in the queries
        return cost(op, f"attention.{op.name}", reads=[])
    work = work_of(
        lead * visible,
        lead * dense,
        lead * spread * rows * v.shape[-1],
        q.shape[-1],
        v.shape[-1],
        extras=_extras(op),
        spread=spread,
    )
    return cost(
        op,
        f"attention.{op.name}",
        matrix=work.matrix,
        dense=work.dense,
        vector=work.vector,
        math=matrix_math(op, q),
        reads=reads,
    )


_forward = partial(_price, work_of=forward_work)
_backward = partial(_price, work_of=backward_work)

OPS: dict[str, Formula] = {
    "attention": partial(_forward, layout=_HEADS_FIRST),
    "attention_backward": partial(_backward, layout=_HEADS_FIRST),
    "flash_sdpa": partial(_forward, layout=_HEADS_FIRST, bottom_right=True),
    "flash_sdpa_backward": partial(_backward, layout=_HEADS_FIRST, bottom_right=True),
    "flash_attention": partial(_forward, layout=_SEQUENCE_FIRST, bottom_right=True),
    "flash_attention_backward": partial(_backward, layout=_SEQUENCE_FIRST, bottom_right=True),
    "packed_attention": partial(_forward, layout=_SEQUENCE_FIRST, bottom_right=True),
    "packed_attention_backward": partial(_backward, layout=_SEQUENCE_FIRST, bottom_right=True),
    "efficient_attention": partial(_forward, layout=_SEQUENCE_FIRST),
    "efficient_attention_backward": partial(_backward, layout=_SEQUENCE_FIRST),
}
