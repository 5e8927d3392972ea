"""Which module is running, kept by hooks that leave with the context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules import module as nn_module


class ModuleStack:
    """Paths of the modules that are running, the innermost last."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._running: list[str] = []

    @property
    def path(self) -> str:
        """Path of the innermost module that is running, ``""`` outside of all."""
        return self._running[-1] if self._running else ""

    @contextmanager
    def watch(self, model: nn.Module) -> Iterator[None]:
        """Follow the calls of the model's modules until the context ends."""
        root = type(model).__name__
        self._names = {id(m): name or root for name, m in model.named_modules()}
        before = nn_module.register_module_forward_pre_hook(self._enter)
        # always_call: a forward that raises (and is caught) must leave the stack as it was
        after = nn_module.register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()
            self._running.clear()

    def _enter(self, module: nn.Module, args: Any) -> None:
        name = self._names.get(id(module))
        if name is None:  # made during the forward: no path leads to it
            name = type(module).__name__
        self._running.append(name)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._running:
            self._running.pop()
