"""The command line. Errors become a message on stderr and an exit code here, and nowhere else.

Exit codes: 0, 1 a gate does not hold, stdout takes no more, or a fault of ours (with its
traceback), 2 bad input, 130 Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False  # typing itself takes as long to load as all else here
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line of this process and end it."""
    try:
        code = _streams() or run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    _leave(code)


def _streams() -> int:
    """Make the streams take every character; 1 where there is no stdout."""
    if sys.stderr is None:
        # closed by whoever started us: words go nowhere, for as long as the process lives
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        print("error: cannot write to stdout: it is closed", file=sys.stderr)
        return 1
    for stream in (sys.stdout, sys.stderr):
        # a module's name must not fail for the locale it is printed in
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    return 0


def run(args: Sequence[str]) -> int:
    """Run one command.

    Args:
        args: What stands behind ``rooftile``.

    Returns:
        The exit code.
    """
    from rooftile.errors import RooftileError, TargetError

    try:
        from rooftile.cli.app import invoke
        from rooftile.cli.quiet import quiet

        with quiet():
            invoke(args)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except OSError as error:
        if not _of_a_stream(error):
            raise
        return _no_room(error)
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


def _of_a_stream(error: OSError) -> bool:
    """Whether it came of writing to stdout: errors of files have the file's name."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
    return error.errno in full and error.filename is None


def _no_room(error: OSError) -> int:
    """Say that stdout takes no more."""
    print(f"error: cannot write to stdout: {error.strerror}", file=sys.stderr)
    return 1


def _leave(code: int) -> NoReturn:
    """End the process, what was printed flushed."""
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError as error:
        # a pipe's reader has seen enough: no fault of anybody
        code = code or (1 if isinstance(error, BrokenPipeError) else _no_room(error))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if "torch" in sys.modules:
        # taking torch and a captured model apart in order costs about 1 s, and nothing waits for it
        os._exit(code)
    sys.exit(code)
