"""A tensor as an op meets it: a strided region of a storage."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Tensor:
    """A strided region of a storage.

    Attributes:
        shape: Length of each dimension [elements].
        dtype: Name as in ``rooftile.spec.dtypes``: ``"bfloat16"``, ``"float8_e4m3fn"``, ...
        stride: Distance between neighbours of each dimension [elements]; 0 where expanded.
        storage: Number of the storage, unique in a graph; views share it.
        offset: First element within the storage [elements].
    """

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]
    storage: int
    offset: int = 0

    @property
    def numel(self) -> int:
        """Elements, expanded ones counted as often as they appear."""
        return prod(self.shape)


def contiguous(shape: tuple[int, ...], dtype: str, storage: int) -> Tensor:
    """A dense row-major tensor that starts its storage."""
    stride = []
    step = 1
    for n in reversed(shape):
        stride.append(step)
        step *= max(n, 1)
    return Tensor(shape, dtype, tuple(reversed(stride)), storage)
