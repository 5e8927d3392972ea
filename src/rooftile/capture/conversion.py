"""Modules of fake tensors that are moved or converted while they are built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rooftile.capture.fake import refresh_flat_weights


@contextmanager
def convertible() -> Iterator[None]:
    """Let ``module.to(...)`` and its kind replace weights while it lasts.

    Torch exchanges the insides of a fake weight with the converted one's, and refuses where anyone
    holds a weak reference, as fake tensors themselves do.
    """
    original = nn.Module._apply
    nn.Module._apply = _replace  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]


def _replace(self: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """Stands in for ``nn.Module._apply``; a weight that is tied stays tied."""
    made: dict[int, tuple[Tensor, Tensor]] = {}  # the old one is kept: its id stays its own
    for module in list(self.modules()) if recurse else [self]:
        for store in (module._parameters, module._buffers):
            for name, old in store.items():
                if old is not None:
                    if id(old) not in made:
                        made[id(old)] = old, _converted(old, fn)
                    store[name] = made[id(old)][1]  # type: ignore[assignment]
        refresh_flat_weights(module)
    return self


def _converted(old: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    with torch.no_grad():
        new = fn(old)
    if isinstance(old, nn.Parameter) and new is not old:
        return nn.Parameter(new, requires_grad=old.requires_grad)
    return new
