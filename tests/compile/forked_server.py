"""The compile server in a fork of this process, which has Triton loaded: a start costs nothing."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn


def answers(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What ``python -m rooftile.compile.server`` answers to a request."""
    import torch  # noqa: F401 the examples of many kernels use it
    import triton  # noqa: F401

    from rooftile.compile import server

    read, write = os.pipe()
    with tempfile.TemporaryFile("w+") as asked, tempfile.TemporaryFile("w+") as words:
        asked.write(json.dumps(request) + "\n")
        asked.seek(0)
        pid = os.fork()
        if not pid:
            _serve(server.main, (asked.fileno(), write, words.fileno()))
        os.close(write)
        try:
            with os.fdopen(read) as stream:
                for line in stream:
                    yield json.loads(line)
        finally:
            status = os.waitpid(pid, 0)[1]
        words.seek(0)
        assert status == 0, words.read()


def _serve(main: Any, streams: tuple[int, int, int]) -> NoReturn:
    """Serve with these as stdin, stdout and stderr, and end."""
    code = 1
    faulthandler.disable()  # a compiler that dies is no fault of these tests
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        main()
        sys.stdout.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
