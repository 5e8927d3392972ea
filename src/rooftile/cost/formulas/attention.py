"""Attention as one op, whatever kernel runs it.

Forward, for each pair of a query and a key it may see: ``2 * Dqk`` FLOP of the scores and ``2 *
Dv`` of the output. Backward computes the scores again and then four products: ``2 * (3 * Dqk + 2 *
Dv)`` a pair, which is 2.5 times the forward where both widths are equal. A mask that is known
(causal, a window) lowers the pairs exactly; the count without it stands beside as dense.

Vector work, documented convention: forward 5 FLOP a pair (scale, maximum, subtract, exponential,
sum), one more for a bias, two for dropout, and one division an element of the output; backward 6 a
pair (scale, subtract, exponential; subtract delta, times the probability, times the scale), the
same extras, and 2 an element of the output for delta.

Bytes: q, k, v and the output once, K and V at their own head count, the log-sum-exp in float32; the
scores never. Keys that no query sees are not read.

Source: Dao 2023, https://arxiv.org/abs/2307.08691 (the five products of the backward).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rooftile.errors import InputError
from rooftile.records.cost import Cost

_FORWARD_FLOPS, _BACKWARD_FLOPS = 5, 6
_LSE_ITEMSIZE = 4


@dataclass(frozen=True, slots=True)
class Mask:
    """Which keys a query sees.

    Attributes:
        causal: None after its own place.
        bottom_right: With fewer or more queries than keys, the last query stands at the last key;
            else the first at the first.
        left: Keys before its own place, at most; None where unlimited.
        right: Keys after it, likewise.
    """

    causal: bool = False
    bottom_right: bool = False
    left: int | None = None
    right: int | None = None

    def _bounds(self, q_len: int, k_len: int) -> tuple[int, int]:
        """Query i sees keys from i + first to i + last - 1, cut to those there are."""
        shift = k_len - q_len if self.bottom_right else 0
        right = 0 if self.causal else self.right
        first = -q_len if self.left is None else shift - self.left
        last = k_len + q_len if right is None else shift + right + 1
        return first, last

    def pairs(self, q_len: int, k_len: int) -> int:
        """Pairs of a query and a key it sees."""
        first, last = self._bounds(q_len, k_len)
        return max(0, _clamped(last, q_len, k_len) - _clamped(first, q_len, k_len))

    def keys_seen(self, q_len: int, k_len: int) -> tuple[int, int]:
        """First key that any query sees, and how many from there on."""
        first, last = self._bounds(q_len, k_len)
        start = min(max(first, 0), k_len)
        end = min(max(q_len - 1 + last, start), k_len) if q_len else start
        return start, end - start


def _clamped(shift: int, q_len: int, k_len: int) -> int:
    """Sum over i < q_len of i + shift, cut to the range from 0 to k_len."""
    low = min(max(-shift, 0), q_len)  # first i with i + shift above 0
    high = min(max(k_len - shift, low), q_len)  # first i at or above k_len
    inside = (high - low) * (low + high - 1 + 2 * shift) // 2
    return inside + (q_len - high) * k_len


@dataclass(frozen=True, slots=True)
class Work:
    """FLOP of one attention call.

    Attributes:
        matrix: Of the products, as far as the mask needs them.
        dense: Of the products without a mask.
        vector: Of the softmax and its gradient.
    """

    matrix: int
    dense: int
    vector: int


def forward_work(
    pairs: int, dense: int, out: int, qk_dim: int, v_dim: int, *, extras: int = 0, spread: int = 1
) -> Work:
    """FLOP of the forward.

    Args:
        pairs: Visible pairs of query and key, over batch and query heads.
        dense: All pairs, likewise.
        out: Elements of the output.
        qk_dim: Width of q and k.
        v_dim: Width of v.
        extras: Vector FLOP a pair beyond the softmax.
        spread: Batches of values that share one batch of probabilities.
    """
    products = 2 * (qk_dim + spread * v_dim)
    return Work(pairs * products, dense * products, pairs * (_FORWARD_FLOPS + extras) + out)


def backward_work(
    pairs: int, dense: int, out: int, qk_dim: int, v_dim: int, *, extras: int = 0, spread: int = 1
) -> Work:
    """FLOP of the backward, the scores computed again; arguments as :func:`forward_work`."""
    products = 2 * (3 * qk_dim + spread * 2 * v_dim)
    return Work(pairs * products, dense * products, pairs * (_BACKWARD_FLOPS + extras) + 2 * out)


def _shape(
    batch: int, heads: int, kv_heads: int, q_len: int, k_len: int, qk_dim: int, v_dim: int
) -> tuple[int, int, int]:
    """Elements of q, of k and v together, and of the output."""
    if kv_heads < 1 or heads % kv_heads:
        raise InputError(f"heads must be a multiple of kv_heads, got {heads} and {kv_heads}")
    return (
        batch * heads * q_len * qk_dim,
        batch * kv_heads * k_len * (qk_dim + v_dim),
        batch * heads * q_len * v_dim,
    )


def attention_forward(
    batch: int,
    heads: int,
    q_len: int,
    k_len: int,
    qk_dim: int,
    itemsize: int,
    *,
    kv_heads: int | None = None,
    v_dim: int | None = None,
    mask: Mask | None = None,
    lse: bool = True,
    math: str = "",
) -> Cost:
    """o = softmax(scale * q @ k.T) @ v.

    Args:
        batch: Sequences.
        heads: Of the queries.
        q_len: Queries of a sequence.
        k_len: Keys of a sequence.
        qk_dim: Width of q and k.
        itemsize: Bytes of an element of q, k, v and o.
        kv_heads: Of keys and values; ``heads`` where None.
        v_dim: Width of v and o; ``qk_dim`` where None.
        mask: Which keys a query sees; all of them where None.
        lse: The log-sum-exp is written, for the backward.
        math: Key of the matrix roof.

    Raises:
        InputError: ``heads`` is no multiple of ``kv_heads``.
    """
    kv_heads, v_dim, mask = kv_heads or heads, v_dim or qk_dim, mask or Mask()
    _, keys = mask.keys_seen(q_len, k_len)
    q, kv, out = _shape(batch, heads, kv_heads, q_len, keys, qk_dim, v_dim)
    rows = batch * heads
    pairs, dense = rows * mask.pairs(q_len, k_len), rows * q_len * k_len
    work = forward_work(pairs, dense, out, qk_dim, v_dim)
    return Cost(
        matrix_flops=work.matrix,
        dense_matrix_flops=work.dense,
        vector_flops=work.vector,
        read_bytes=(q + kv) * itemsize,
        write_bytes=out * itemsize + (rows * q_len * _LSE_ITEMSIZE if lse else 0),
        math=math,
        formula="attention.attention_forward",
    )


def attention_backward(
    batch: int,
    heads: int,
    q_len: int,
    k_len: int,
    qk_dim: int,
    itemsize: int,
    *,
    kv_heads: int | None = None,
    v_dim: int | None = None,
    mask: Mask | None = None,
    math: str = "",
) -> Cost:
    """dq, dk, dv from do, q, k, v, o and the log-sum-exp; arguments as the forward's."""
    kv_heads, v_dim, mask = kv_heads or heads, v_dim or qk_dim, mask or Mask()
    _, keys = mask.keys_seen(q_len, k_len)
    q, kv, out = _shape(batch, heads, kv_heads, q_len, keys, qk_dim, v_dim)
    _, all_kv, _ = _shape(batch, heads, kv_heads, q_len, k_len, qk_dim, v_dim)
    rows = batch * heads
    pairs, dense = rows * mask.pairs(q_len, k_len), rows * q_len * k_len
    work = backward_work(pairs, dense, out, qk_dim, v_dim)
    return Cost(
        matrix_flops=work.matrix,
        dense_matrix_flops=work.dense,
        vector_flops=work.vector,
        read_bytes=(q + kv + 2 * out) * itemsize + rows * q_len * _LSE_ITEMSIZE,
        write_bytes=(q + all_kv) * itemsize,
        math=math,
        formula="attention.attention_backward",
    )


def ragged_pairs(q_lens: Sequence[int], k_lens: Sequence[int], mask: Mask) -> tuple[int, int]:
    """Visible and dense pairs of a batch whose sequences have lengths of their own.

    Raises:
        InputError: The two batches differ in size.
    """
    if len(q_lens) != len(k_lens):
        raise InputError(f"k_lens must have {len(q_lens)} lengths, got {len(k_lens)}")
    visible = sum(mask.pairs(q, k) for q, k in zip(q_lens, k_lens, strict=True))
    return visible, sum(q * k for q, k in zip(q_lens, k_lens, strict=True))
