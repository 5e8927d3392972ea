"""The command line. Errors become a message on stderr and an exit code here, and nowhere else.

Exit codes: 0, 1 a gate does not hold or a fault of ours (with its traceback), 2 bad input, 130
Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from rooftile.errors import RooftileError, TargetError

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line of this process and end it."""
    for stream in (sys.stdout, sys.stderr):
        # a module's name must not fail for the locale it is printed in
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    _leave(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command.

    Args:
        args: What stands behind ``rooftile``.

    Returns:
        The exit code.
    """
    try:
        from rooftile.cli.app import invoke

        invoke(args)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except TargetError as error:
        print(error.traceback, file=sys.stderr, end="")
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except RooftileError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _leave(code: int) -> NoReturn:
    """End the process, what was printed flushed."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # the reader has seen enough: no fault of anybody
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or 1
    if "torch" in sys.modules:
        # taking torch and a captured model apart in order costs about 1 s, and nothing waits for it
        os._exit(code)
    sys.exit(code)
