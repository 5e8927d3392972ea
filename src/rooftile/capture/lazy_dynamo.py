"""torch's compiler, loaded when something of it is first used: a capture compiles nothing.

Fake tensors ask ``torch._dynamo`` for two settings, and importing it for those takes a quarter of
an audit's time. Here the package stands in ``sys.modules`` unrun, with its settings; whoever asks
for more of it runs it first, and finds what an import would have made.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch

_NAME = "torch._dynamo"
# Modules of the package that import nothing else of it.
_ALONE = {f"{_NAME}.config", f"{_NAME}._trace_wrapped_higher_order_op"}
# Decorators that only mark a function, for a compiler that may never come.
_MARKS = {"allow_in_graph", "assume_constant_result"}
_lock = threading.RLock()
_marked: list[tuple[str, Any]] = []


class _Unrun(ModuleType):
    """The package before it has run."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {_NAME!r} has no attribute {name!r}")
        if name == "disable":
            return _disable
        if name in _MARKS:
            return functools.partial(_mark, name)
        _run()
        return getattr(sys.modules[_NAME], name)


class _BeforeItsModules:
    """Among the finders: an import of a module of the package runs the package first."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Find nothing itself."""
        if name.startswith(f"{_NAME}.") and name not in _ALONE:
            _run()


def put_off() -> None:
    """Stand the package in unrun, unless it is loaded already."""
    with _lock:
        spec = None if _NAME in sys.modules else importlib.util.find_spec(_NAME)
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        module.__class__ = _Unrun
        sys.modules[_NAME] = module
        torch._dynamo = module
        sys.meta_path.insert(0, _BeforeItsModules())


def is_loaded() -> bool:
    """Whether the compiler itself is there: without it nothing that runs was compiled."""
    module = sys.modules.get(_NAME)
    return module is not None and not isinstance(module, _Unrun)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled functions as they were written, and compile no others, while it lasts."""
    original = torch.compile
    torch.compile = _as_written
    try:
        with torch.compiler.set_stance("force_eager") if is_loaded() else nullcontext():
            yield
    finally:
        torch.compile = original


def _as_written(model: Any = None, **options: Any) -> Any:
    """Stands in for ``torch.compile``, a function or a decorator with options."""
    return (lambda function: function) if model is None else model


def _run() -> None:
    """Make the package what its import would have made it."""
    with _lock:
        module: Any = sys.modules[_NAME]
        if not isinstance(module, _Unrun):
            return
        module = sys.modules[_NAME]
        module.__class__ = ModuleType
        finders = [f for f in sys.meta_path if not isinstance(f, _BeforeItsModules)]
        sys.meta_path[:] = finders
        spec = module.__spec__
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(module)
        for mark, function in _marked:
            getattr(module, mark)(function)
        _marked.clear()


def _mark(name: str, function: Any) -> Any:
    _marked.append((name, function))
    return function


def _disable(fn: Any = None, recursive: bool = True, **options: Any) -> Any:
    """Stands in for ``torch._dynamo.disable``: keeps the compiler off once there is one."""
    if fn is None:
        return functools.partial(_disable, recursive=recursive, **options)
    if not inspect.isroutine(fn):  # a class or a module is changed, not wrapped
        _run()
        return sys.modules[_NAME].disable(fn, recursive, **options)
    kept: list[Callable[..., Any]] = []

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kept:
            if not is_loaded():
                return fn(*args, **kwargs)
            kept.append(sys.modules[_NAME].disable(fn, recursive, **options))
        return kept[0](*args, **kwargs)

    return call
