"""Softmax along one dimension: y = exp(x - max(x)) / sum(exp(x - max(x))).

Source: Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867 (one pass for long rows)
Cost:   rooftile.cost.formulas.softmax.softmax_forward (memory-bound at every shape)
"""

from __future__ import annotations

import torch
from torch import Tensor

from rooftile.ops._check import check_dim, check_dtype, check_float, check_given
from rooftile.ops._repeat import repeats
from rooftile.ops.rows.softmax import differentiable_softmax


def softmax_ref(x: Tensor, dim: int = -1) -> Tensor:
    """The definition, in plain PyTorch. It accumulates in float32, or in float64 for float64."""
    acc = x.to(torch.promote_types(x.dtype, torch.float32))
    e = torch.exp(acc - acc.amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


@repeats()
def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Turn each row along ``dim`` into probabilities: ``exp(x) / sum(exp(x))``.

    A row is read once and written once up to 32,768 elements of 2 bytes; on GPUs with thread block
    clusters up to 262,144. Longer rows are read again from L2. A row of -inf alone, or one with a
    NaN or +inf, gives NaN, as in torch. Under autocast the dtype stays that of ``input``: sums are
    float32 in any case.

    Args:
        input: Shape ``[...]``, float32, float16 or bfloat16, of any strides.
        dim: The dimension that sums to 1.
        dtype: Of the result, one of the three; that of ``input`` where None.

    Returns:
        A contiguous tensor of the shape of ``input``. Sums are accumulated in float32.

    Raises:
        InputError: A dtype or ``dim`` is not as above.

    Cost:
        ``softmax.softmax_forward`` and ``softmax.softmax_backward``: one read and one write of each
        element; two reads and one write.

    Source:
        https://arxiv.org/abs/1805.02867
    """
    return checked_softmax(input, dim, dtype, log=False)


def checked_softmax(input: Tensor, dim: int, dtype: torch.dtype | None, log: bool) -> Tensor:
    """Check the arguments that softmax and log-softmax share, and call the op."""
    check_float("input", input)
    if dtype is not None:
        check_dtype("dtype", dtype)
        dtype = None if dtype == input.dtype else dtype
    dim = check_dim(dim, input.dim())
    if input.dim() == 0:
        return differentiable_softmax(input.view(1), 0, log, dtype).view(())
    return differentiable_softmax(input, dim, log, dtype)


class Softmax(torch.nn.Softmax):
    """``torch.nn.Softmax`` on ``rooftile.ops.softmax``; its ``dim`` must be given."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply ``softmax`` along ``self.dim``."""
        return softmax(input, check_given(self.dim))
