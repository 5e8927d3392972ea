"""Let the interpreter prepare triton once a launch, not at each call of a device function.

Such a call replaces every builtin of ``triton.language`` by its interpreted form, which takes
milliseconds and changes nothing after the first time in a launch (seen in 3.6 to 3.9).
"""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_patch_lang = interpreter._patch_lang
_launch = interpreter.GridExecutor.__call__
_ready: set[int] = set()


def _patch_new(fn: Any) -> Any:
    names = {id(v) for v in fn.__globals__.values() if v is tl or v is tl.core}
    if names <= _ready:
        return None
    _ready.update(names)
    return _patch_lang(fn)


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    _patch_new(self.fn)
    try:
        return self.rewrite()(*args, **kwargs)
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


def _grid_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    _ready.clear()
    return _launch(self, *args, **kwargs)


def install() -> None:
    """Patch once a launch from now on, for the process."""
    interpreter.InterpretedFunction.__call__ = _call
    interpreter.GridExecutor.__call__ = _grid_call
