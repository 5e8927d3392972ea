"""Models are built without initialising weights: a capture needs their shapes only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def skip_init() -> Iterator[None]:
    """Make the functions of ``torch.nn.init`` leave their tensor as it is, while it lasts.

    They cost time under fake tensors, and some look at values that are not there.
    """
    originals = {
        name: function
        for name, function in vars(nn.init).items()
        if name.endswith("_") and not name.startswith("_") and callable(function)
    }
    try:
        for name in originals:
            setattr(nn.init, name, _unchanged)
        yield
    finally:
        for name, function in originals.items():
            setattr(nn.init, name, function)


def _unchanged(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return tensor
