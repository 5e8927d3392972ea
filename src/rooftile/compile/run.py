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
from rooftile.compile.recall import Answer, answer_of, question, recall
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
    asked = {"kernel": kernel, "signature": signature, "call": call, "case": None, "launch": False}
    answers = _ask(asked, targets, configs, cores, cache, timeout_s, progress)
    return [answer.outcome for answer in answers]


def compile_launches(
    kernel: str,
    targets: Sequence[str],
    config: Mapping[str, Constant],
    *,
    signature: str | None = None,
    call: str = "example",
    case: Mapping[str, Any] | None = None,
    cache: bool = True,
    progress: Callable[[str], None] | None = None,
) -> list[Answer]:
    """Compile a kernel for every target, and say how the call launches it.

    Args:
        kernel: As for ``compile_all``.
        targets: Likewise.
        config: Constants and compiler options by name.
        signature: As for ``compile_all``.
        call: Likewise.
        case: Name, shape and dtype of a bench case beside the kernel, whose function launches it.
        cache: Read and write the cache on disk.
        progress: Told what is being done.

    Returns:
        One a target: resources, grid and the case's bytes.

    Raises:
        InputError: The request itself is wrong: no such kernel, target, signature or case.
        MissingDependencyError: Triton is not installed.
    """
    asked = {"kernel": kernel, "signature": signature, "call": call, "case": case, "launch": True}
    return _ask(asked, targets, [config], None, cache, TIMEOUT_S, progress)


def _ask(
    asked: dict[str, Any], targets: Sequence[str], configs: Sequence[Mapping[str, Constant]],
    cores: int | None, cache: bool, timeout_s: float, progress: Callable[[str], None] | None,
) -> list[Answer]:  # fmt: skip
    """Answers from the cache, and from a server for what is not there."""
    _check_compiles()
    asked = {**asked, "path": [str(Path.cwd()), *filter(None, sys.path)]}
    builds = [
        (target, {name: _plain(name, value) for name, value in config.items()})
        for target in targets
        for config in configs
    ]
    folder = cache_folder() if cache else None
    questions = [question(asked, *build) for build in builds]
    answers = recall(folder, questions) if folder else {}
    missing = [index for index in range(len(builds)) if index not in answers]
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
        answers[missing[answer["index"]]] = answer_of(
            answer,
            from_json(answer["resources"].encode(), KernelResources)
            if "resources" in answer
            else answer["error"],
        )
        if progress:
            progress(f"compiled {len(answers)} of {len(builds)}")
    return [answers.get(index, Answer("no answer")) for index in range(len(builds))]


def _plain(name: str, value: Any) -> Any:
    """A constant as JSON holds it; the server makes of it what it was.

    Raises:
        InputError: It is nothing that a kernel takes.
    """
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, part) for part in value]
    if repr(value).startswith("triton.language."):
        return repr(value)
    code = getattr(getattr(value, "fn", None), "__code__", None)
    if code is not None and code.co_filename.endswith(".py"):
        return f"{code.co_filename}:{value.fn.__qualname__}"
    raise InputError(
        f"{name} must be a number, text, None, a dtype of triton.language, a kernel or a tuple of"
        f" these, got {value!r}"
    )


def _check_compiles() -> None:
    """Refuse a process whose kernels are Python."""
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "y", "yes"):
        raise InputError(
            "TRITON_INTERPRET must not be set to compile: it turns every kernel into Python that"
            f" has no binary; it is {os.environ['TRITON_INTERPRET']!r}"
        )


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
