"""The process that imports the user's kernel and forks a child for each compile.

It reads one request, a JSON line, answers one JSON line a configuration as it is done, and ends. A
child that dies of its compile, as C++ assertions do, takes nothing with it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rooftile.compile.build import Build, compile_build, plan_build, prepare
from rooftile.compile.cache import cached, keep
from rooftile.compile.forked import run_forked
from rooftile.compile.kernel import Argument, Call, load_kernel, load_module, parse_signature
from rooftile.compile.launch import record_call
from rooftile.compile.targets import Target, target_of
from rooftile.errors import InputError, RooftileError
from rooftile.records.io import from_json, to_json
from rooftile.records.resources import KernelResources


def main() -> None:
    """Serve the request on stdin; answers go to the stdout this process was born with."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the user's module prints is no answer
    request = json.loads(sys.stdin.readline())
    sys.path[:0] = [path for path in request["path"] if path not in sys.path]
    try:
        builds = list(_builds(request))
    except RooftileError as error:
        _answer(answers, {"fatal": str(error)})
        return
    _serve(request, builds, answers)


def _builds(request: dict[str, Any]) -> Iterator[Build | InputError]:
    """What to compile; an error is of one configuration, unless it is of all."""
    kernel = load_kernel(request["kernel"])
    calls: dict[str, Call] = {}
    for name in request["targets"]:
        target = target_of(name)
        if name not in calls:
            calls[name] = _call(request, kernel, target)
        for config in request["configs"]:
            try:
                yield plan_build(kernel, target, calls[name], config)
            except InputError as error:
                yield error


def _call(request: dict[str, Any], kernel: Any, target: Target) -> Call:
    """The kernel's arguments: by the signature, else by a call in the user's file."""
    if request["signature"] is not None:
        given = parse_signature(kernel, request["signature"])
        return Call(
            {name: arg for name, arg in given.items() if isinstance(arg, Argument)},
            {name: arg for name, arg in given.items() if not isinstance(arg, Argument)},
            {},
        )
    place, name = request["kernel"].rpartition(":")[0], request["call"]
    function = getattr(load_module(place), name, None)
    if function is None:
        raise InputError(
            f"signature of {kernel.__name__} is not known: give one, or write a function"
            f" {name}() into {place} that calls the kernel"
        )
    return record_call(function, kernel, target)


def _serve(request: dict[str, Any], builds: list[Build | InputError], answers: TextIO) -> None:
    """Answer from the cache what is there, compile the rest on so many cores."""
    cache = Path(request["cache"]) if request["cache"] else None
    waiting: list[tuple[int, Build, str]] = []
    for index, build in enumerate(builds):
        if isinstance(build, InputError):
            _answer(answers, {"index": index, "error": str(build)})
            continue
        try:
            key = build.key()
        except InputError as error:
            _answer(answers, {"index": index, "error": str(error)})
            continue
        found = cached(cache, key) if cache else None
        if found is None:
            waiting.append((index, build, key))
        else:
            _answer(answers, {"index": index, "resources": to_json(found).decode()})
    if not waiting:
        return
    prepare(build.target for _, build, _ in waiting)
    works = [partial(_compiled, build) for _, build, _ in waiting]
    for position, outcome in run_forked(works, request["cores"], request["timeout_s"]):
        index, _, key = waiting[position]
        if isinstance(outcome, str):
            _answer(answers, {"index": index, "error": outcome})
            continue
        if cache:
            keep(cache, key, from_json(outcome, KernelResources))
        _answer(answers, {"index": index, "resources": outcome.decode()})


def _compiled(build: Build) -> bytes:
    """A kernel's resources as JSON."""
    return to_json(compile_build(build))


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
