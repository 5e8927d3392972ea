"""A graph of torch.fx run node by node, each under the module and line that it was traced from."""

from __future__ import annotations

import re
from typing import Any

from torch import fx, nn

from rooftile.capture.lines import LineFinder
from rooftile.capture.place import place

_FRAME = re.compile(r'File "(.+?)", line (\d+)')


class TracedModule(nn.Module):
    """Runs an exported program's graph and says of each op where the user wrote it.

    The generated code of a graph has no lines of its own; the nodes keep those of the model they
    were traced from.
    """

    def __init__(self, program: fx.GraphModule) -> None:
        super().__init__()
        self.program = program

    def forward(self, args: Any, kwargs: Any) -> Any:
        return _Placed(self.program).run(*args, *kwargs.values())


class _Placed(fx.Interpreter):
    def __init__(self, program: fx.GraphModule) -> None:
        super().__init__(program)
        self._lines = LineFinder()

    def run_node(self, n: fx.Node) -> Any:
        token = place.set((_module(n), self._line(n)))
        try:
            return super().run_node(n)
        finally:
            place.reset(token)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A region under autocast or without gradients is a graph of its own: its nodes too."""
        if str(target).startswith("wrap_with"):
            args = tuple(_Placed(a).run if isinstance(a, fx.GraphModule) else a for a in args)
        return super().call_function(target, args, kwargs)

    def _line(self, node: fx.Node) -> str:
        frames = _FRAME.findall(node.meta.get("stack_trace") or "")
        return self._lines.nearest((path, int(number)) for path, number in reversed(frames))


def _module(node: fx.Node) -> str:
    """Path of the innermost module the node was traced in."""
    stack = node.meta.get("nn_module_stack") or {}
    entries = list(stack.values())
    if not entries:
        return ""
    path = str(entries[-1][0])
    return path.removeprefix("L['self']").lstrip(".")
