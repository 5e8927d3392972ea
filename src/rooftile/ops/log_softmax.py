"""Log-softmax along one dimension: y = x - max(x) - log(sum(exp(x - max(x)))).

Source: Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867 (one pass for long rows)
Cost:   rooftile.cost.formulas.softmax.softmax_forward (memory-bound at every shape)
"""

from __future__ import annotations

import torch
from torch import Tensor

from rooftile.ops._check import check_given
from rooftile.ops._repeat import repeats
from rooftile.ops.softmax import checked_softmax


def log_softmax_ref(x: Tensor, dim: int = -1) -> Tensor:
    """The definition, in plain PyTorch. It accumulates in float32, or in float64 for float64."""
    acc = x.to(torch.promote_types(x.dtype, torch.float32))
    acc = acc - acc.amax(dim, keepdim=True)
    return (acc - torch.exp(acc).sum(dim, keepdim=True).log()).to(x.dtype)


@repeats()
def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Turn each row along ``dim`` into log-probabilities: ``x - log(sum(exp(x)))``.

    Rows, -inf, NaN and autocast are as in ``softmax``.

    Args:
        input: Shape ``[...]``, float32, float16 or bfloat16, of any strides.
        dim: The dimension whose exponentials sum to 1.
        dtype: Of the result, one of the three; that of ``input`` where None.

    Returns:
        A contiguous tensor of the shape of ``input``. Sums are accumulated in float32.

    Raises:
        InputError: A dtype or ``dim`` is not as above.

    Cost:
        ``softmax.softmax_forward`` and ``softmax.softmax_backward``.

    Source:
        https://arxiv.org/abs/1805.02867
    """
    return checked_softmax(input, dim, dtype, log=True)


class LogSoftmax(torch.nn.LogSoftmax):
    """``torch.nn.LogSoftmax`` on ``rooftile.ops.log_softmax``; its ``dim`` must be given."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply ``log_softmax`` along ``self.dim``."""
        return log_softmax(input, check_given(self.dim))
