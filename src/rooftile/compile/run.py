"""Asks the compile server: the one way into this room, and it needs no Triton in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import rooftile.compile
from rooftile.compile.cache import cache_folder
from rooftile.compile.recall import question, recall
from rooftile.errors import InputError, MissingDependencyError, RooftileError
from rooftile.records.io import from_json
from rooftile.records.resources import Constant, KernelResources

TIMEOUT_S = 120.0  # the slowest kernels of use take 10 s; spilling ones on AMD can take minutes

Outcome = KernelResources | str


def compile_all(
    kernel: str,
    targets: Sequence[str],
    configs: Sequence[Mapping[str, Constant]],
    *,
    signature: str | None = None,
    call: str = "example",
    cores: int | None = None,
    cache: bool = True,
    timeout_s: float = TIMEOUT_S,
    progress: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """Compile a kernel for every target in every configuration, in processes of their own.

    Args:
        kernel: ``"file.py:name"`` or ``"package.module:name"``.
        targets: ``"sm_90"``, ``"gfx942"``, ...
        configs: Constants and compiler options by name.
        signature: Types of the run-time arguments; None: they are taken from ``call``.
        call: A function beside the kernel, without arguments, that launches it.
        cores: Compiles at once; None: one a core.
        cache: Read and write the cache on disk.
        timeout_s: A compile that takes longer is given up [s].
        progress: Told what is being done.

    Returns:
        Targets outside, configurations inside: the resources, or why there are none.

    Raises:
        InputError: The request itself is wrong: no such kernel, target or signature.
        MissingDependencyError: Triton is not installed.
    """
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "y", "yes"):
        raise InputError(
            "TRITON_INTERPRET must not be set to compile: it turns every kernel into Python that"
            f" has no binary; it is {os.environ['TRITON_INTERPRET']!r}"
        )
    asked = {
        "kernel": kernel,
        "signature": signature,
        "call": call,
        "path": [str(Path.cwd()), *filter(None, sys.path)],
    }
    builds = [(target, dict(config)) for target in targets for config in configs]
    folder = cache_folder() if cache else None
    questions = [question(asked, *build) for build in builds]
    outcomes = recall(folder, questions) if folder else {}
    missing = [index for index in range(len(builds)) if index not in outcomes]
    request = {
        **asked,
        "builds": [builds[index] for index in missing],
        "asked": [questions[index] for index in missing],
        "cores": cores or len(os.sched_getaffinity(0)),
        "cache": str(folder) if folder else None,
        "timeout_s": timeout_s,
    }
    for answer in _answers(request) if missing else ():
        if "fatal" in answer:
            raise InputError(answer["fatal"])
        outcomes[missing[answer["index"]]] = (
            from_json(answer["resources"].encode(), KernelResources)
            if "resources" in answer
            else answer["error"]
        )
        if progress:
            progress(f"compiled {len(outcomes)} of {len(builds)}")
    return [outcomes.get(index, "no answer") for index in range(len(builds))]


def _answers(request: dict[str, Any]) -> Any:
    """The server's answers as they come."""
    home = str(Path(rooftile.compile.__file__).parents[2])
    search = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    # words go to a file: a pipe that nobody empties stops who fills it
    with (
        tempfile.TemporaryFile("w+", errors="replace") as words,
        subprocess.Popen(
            [sys.executable, "-m", "rooftile.compile.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
            env={**os.environ, "PYTHONPATH": search},
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.close()
            for line in server.stdout:
                yield json.loads(line)
        except BaseException:
            server.kill()
            raise
        server.wait()
        words.seek(0)
        said = words.read()
    if server.returncode:
        if "No module named 'triton'" in said:
            raise MissingDependencyError("compiling needs Triton: pip install 'rooftile[torch]'")
        raise RooftileError(f"the compile server failed:\n{said}")
