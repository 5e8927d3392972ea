"""Why a kernel has no binary, in the user's terms: the file and the line."""

from __future__ import annotations

import linecache
import os
import re
from typing import Any

from rooftile.compile.targets import Target

# What ptxas found, without its files and the command to find it again
_PTXAS_ERROR = re.compile(r"\b(?:error|fatal)\s+:\s*(?!\s|Ptx assembly aborted)(.+)")
# What the compiler's own passes print, with the place in the user's file where they know it
_DIAGNOSTIC = re.compile(r"^(?:loc\(\S*\"(?P<file>[^\":]+)\":(?P<line>\d+):\d+.*?\): |"
                         r"(?P<file2>[^\s:]+\.py):(?P<line2>\d+):\d+: |\S*:\d+:\d+: )?"
                         r"error: (?P<said>.+)$", re.MULTILINE)  # fmt: skip
_LOG_BYTES = 1 << 16


def diagnosed(words: str) -> str:
    """An error with what the compiler printed about it, at the user's line.

    A forked compile's stderr is a file that it can read; elsewhere the words stay as they are.

    Args:
        words: What the error itself says.
    """
    try:
        log = os.pread(2, _LOG_BYTES, 0).decode(errors="replace")
    except OSError:  # a terminal or a pipe
        return words
    found = _DIAGNOSTIC.search(log)
    if found is None:
        return words
    path, line = found["file"] or found["file2"], found["line"] or found["line2"]
    if path is None:
        return f"{words}: {found['said']}"
    return f"{path}:{line}: {found['said']}{_shown(path, int(line))}"


def _shown(path: str, line: int) -> str:
    """A line of a file, indented on a line of its own; "" where it is not there."""
    text = linecache.getline(path, line).strip()
    return f"\n    {text}" if text else ""


def not_assembled(kernel: Any, target: Target, message: str) -> str:
    """What ptxas did not take: the target itself, or the code."""
    import triton

    if "is not defined for option 'gpu-name'" in message:
        return (
            f"target must be one that Triton {triton.__version__} knows, its ptxas does not know"
            f" {target.name}: a newer Triton is wanted"
        )
    said = "; ".join(dict.fromkeys(_PTXAS_ERROR.findall(message))) or message
    return f"{kernel.__name__} does not assemble for {target.name}: {said}"


def place_of(kernel: Any, error: Any) -> str:
    """Triton's message at the user's line: ``file.py:12: message``."""
    inner = error
    while isinstance(inner.__cause__, type(error)):
        inner = inner.__cause__
    function = _function_of(kernel, inner)
    path, start = function.__code__.co_filename, function.__code__.co_firstlineno
    skipped = _lines_before_def(function)
    line = start + skipped + (getattr(inner.node, "lineno", 1) - 1)
    text = inner.src.splitlines()
    number = getattr(inner.node, "lineno", 0)
    shown = f"\n    {text[number - 1].strip()}" if 0 < number <= len(text) else ""
    message = inner.error_message or (
        str(inner.__cause__) if inner.__cause__ else "does not compile"
    )
    return f"{path}:{line}: {message}{shown}"


def _function_of(kernel: Any, error: Any) -> Any:
    """The Python function whose source the error shows: the kernel, or one that it calls."""
    queue, seen = [kernel], set()
    while queue:
        candidate = queue.pop()
        if id(candidate) in seen:
            continue
        seen.add(id(candidate))
        if candidate.src == error.src:
            return candidate.fn
        queue += [
            v for v in candidate.__globals__.values() if hasattr(v, "src") and hasattr(v, "fn")
        ]
    return kernel.fn


def _lines_before_def(function: Any) -> int:
    """Decorator lines between a function's first line and its ``def``."""
    import inspect

    lines, _ = inspect.getsourcelines(function)
    return next((i for i, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
