"""How many pairs of a query and a key a mask of flex_attention leaves, counted by asking it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from rooftile.capture.values import Values

_ROWS_TIMES_KEYS = 1 << 24  # pairs asked about at a time: 16 MiB of flags
# A mask of 8 sequences of 8192 tokens takes seconds; more is not asked about.
_MOST_PAIRS = 1 << 30

MaskMod = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of one attention call, over batch and heads.

    Attributes:
        visible: Those whose key the query sees.
        asked: Those in blocks that the mask hides in part: there alone the kernel asks it.
    """

    visible: int
    asked: int


class _UnknownValueError(Exception):
    """The mask depends on what a capture does not know."""


class _OnValues(TorchDispatchMode):
    """Runs ops on what is known to stand in their tensors."""

    def __init__(self, values: Values) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._values = values

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = tree_map_only(Tensor, self._real, (args, kwargs or {}))
        with torch._C._DisableTorchDispatch():
            return func(*args, **kwargs)

    def _real(self, tensor: Tensor) -> Tensor:
        if type(tensor) is Tensor:
            return tensor
        known = self._values.of(tensor)
        if known is None:
            raise _UnknownValueError
        return known


def visible_pairs(
    mask_mod: MaskMod,
    values: Values,
    *,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    block: tuple[int, int],
) -> Pairs | None:
    """Ask a mask about every pair; None where it depends on values that are not known.

    Args:
        mask_mod: Takes batch, head, query and key, as tensors of indices that broadcast.
        values: What is known.
        batch: Sequences that the mask tells apart, 1 where it does not.
        heads: Heads, likewise.
        queries: Of a sequence.
        keys: Of a sequence.
        block: Queries and keys of a block of the kernel.
    """
    if batch * heads * queries * keys > _MOST_PAIRS:
        return None
    visible = asked = 0
    try:
        with _disable_current_modes(), torch.no_grad(), _OnValues(values):
            for flags in _flags(mask_mod, batch, heads, queries, keys, block[0]):
                visible += int(flags.sum())
                asked += _in_mixed_blocks(flags, block)
    except _UnknownValueError:
        return None
    return Pairs(visible, asked)


def _flags(
    mask_mod: MaskMod, batch: int, heads: int, queries: int, keys: int, height: int
) -> Iterator[Tensor]:
    """The mask a few rows of blocks at a time, [rows, keys]."""
    rows = max(_ROWS_TIMES_KEYS // max(keys, 1) // height, 1) * height
    k = torch.arange(keys)
    for b in range(batch):
        for h in range(heads):
            for start in range(0, queries, rows):
                q = torch.arange(start, min(start + rows, queries)).unsqueeze(1)
                flags = mask_mod(torch.full((1, 1), b), torch.full((1, 1), h), q, k)
                yield flags.to(torch.bool).expand(q.shape[0], keys)


def _in_mixed_blocks(flags: Tensor, block: tuple[int, int]) -> int:
    """Pairs of the blocks in which some flags are set and some are not."""
    height, width = block
    rows, keys = flags.shape
    padded = torch.nn.functional.pad(flags, (0, -keys % width, 0, -rows % height))
    counts = padded.unflatten(0, (-1, height)).unflatten(-1, (-1, width)).sum((1, 3))
    mixed = (counts > 0) & (counts < height * width)
    return int(mixed.sum()) * height * width
