"""Ops whose result's shape is in the values: where those are not known, the largest result.

What a mask selects is at most everything, what differs is at most all. The user is told, and told
where: what follows is then counted from above.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def largest(base: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an op as large as it can be; None where nothing limits it.

    Call it where tensors are fake.

    Args:
        base: Torch's name of the op, without namespace and overload.
        args: Its positional arguments.
        kwargs: Its others.
    """
    answer = _ANSWERS.get(base)
    return None if answer is None else answer(*args, **kwargs)


def _nonzero(self: Tensor) -> Tensor:
    """Every element, its indices one a row; in memory one a column, as a GPU's."""
    return torch.empty((self.dim(), self.numel()), dtype=torch.int64).t()


def _masked_select(self: Tensor, mask: Tensor) -> Tensor:
    return self.new_empty(torch.broadcast_shapes(self.shape, mask.shape).numel())


def _unique(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    return _all_differ(self, self.numel(), self.shape, return_inverse, return_counts)


def _unique_dim(
    self: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Tensor, ...]:
    n = self.shape[dim]
    _, inverse, counts = _all_differ(self, n, (n,), return_inverse, return_counts)
    return torch.empty_like(self), inverse, counts


def _unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, ...]:
    if dim is not None:
        return _unique_dim(self, dim, True, return_inverse, return_counts)
    return _unique(self, True, return_inverse, return_counts)


def _all_differ(
    self: Tensor, n: int, places: Any, inverse: bool, counts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Values, where each element's stands among them, and how often each stands there."""
    return (
        self.new_empty(n),
        torch.empty(places if inverse else 0, dtype=torch.int64),
        torch.empty(n if counts else 0, dtype=torch.int64),
    )


def ctc_states(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    *rest: Any,
    longest: int | None = None,
) -> tuple[Tensor, Tensor]:
    """What a GPU's CTC loss returns: a loss a sequence, and its table of states.

    The table is as wide as the longest target: of padded targets the padding, of targets one behind
    the other ``longest``, or where that is not known their mean length.
    """
    steps, batch = log_probs.shape[:2]
    if targets.dim() == 2:
        longest = targets.shape[1]
    elif longest is None:
        longest = -(-targets.shape[0] // max(batch, 1))
    return log_probs.new_empty(batch), log_probs.new_empty(batch, steps, 2 * longest + 1)


def ctc_loss_of_numbers(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: list[int],
    target_lengths: list[int],
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """Stands in for `aten::ctc_loss.IntList`, which looks at its targets' memory."""
    lengths = (torch.tensor(input_lengths), torch.tensor(target_lengths))
    return torch.ctc_loss(log_probs, targets, *lengths, blank, reduction, zero_infinity)


_ANSWERS: dict[str, Callable[..., Any]] = {
    "nonzero": _nonzero,
    "masked_select": _masked_select,
    "_unique2": _unique,
    "unique_dim": _unique_dim,
    "unique_consecutive": _unique_consecutive,
}
