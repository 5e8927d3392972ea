"""The process that imports the user's kernel and forks a child for each compile.

It reads one request, a JSON line, answers one JSON line a configuration as it is done, and ends. A
child that dies of its compile, as C++ assertions do, takes nothing with it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rooftile.compile.build import Build, compile_build, plan_build, prepare
from rooftile.compile.cache import cached, keep
from rooftile.compile.case import case_bytes, case_call
from rooftile.compile.forked import run_forked
from rooftile.compile.kernel import Call, load_kernel, load_module
from rooftile.compile.launch import record_call
from rooftile.compile.recall import Depends, remember
from rooftile.compile.signature import called_by_signature, is_typed
from rooftile.compile.targets import Target, target_of
from rooftile.compile.watch import Watch
from rooftile.errors import InputError, RooftileError
from rooftile.records.io import from_json, to_json
from rooftile.records.resources import KernelResources


def main() -> None:
    """Serve the request on stdin; answers go to the stdout this process was born with."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the user's module prints is no answer
    request = json.loads(sys.stdin.readline())
    sys.path[:0] = [path for path in request["path"] if path not in sys.path]
    watch = Watch()
    try:
        with watch.watching():
            kernel = load_kernel(request["kernel"])
            builds = list(_builds(request, kernel))
            facts = [_facts(request, build) for build in builds]
    except RooftileError as error:
        _answer(answers, {"fatal": str(error)})
        return
    cache = Path(request["cache"]) if request["cache"] else None
    _serve(request, builds, _Answers(answers, request, facts, cache, watch.depends(kernel)))


@dataclass(frozen=True, slots=True)
class _Answers:
    """Where answers go, and whether they are kept for the next time."""

    stream: TextIO
    request: Mapping[str, Any]
    facts: Sequence[Mapping[str, Any]]
    cache: Path | None
    depends: Depends | None

    def resources(self, index: int, key: str, resources: str) -> None:
        """A kernel that compiled."""
        self._keep(index, key=key)
        _answer(self.stream, {"index": index, "resources": resources, **self.facts[index]})

    def error(self, index: int, error: str, *, lasting: bool = True) -> None:
        """A configuration without a kernel; ``lasting``: the next time it has none either."""
        if lasting:
            self._keep(index, error=error)
        _answer(self.stream, {"index": index, "error": error})

    def _keep(self, index: int, *, key: str = "", error: str = "") -> None:
        if self.cache and self.depends:
            asked, facts = self.request["asked"][index], self.facts[index]
            remember(self.cache, asked, self.depends, key=key, error=error, facts=facts)


def _builds(request: Mapping[str, Any], kernel: Any) -> Iterator[Build | InputError]:
    """What to compile; an error is of one configuration, unless it is of all."""
    calls: dict[str, Call] = {}
    for name, config in request["builds"]:
        target = target_of(name)
        if name not in calls:
            calls[name] = _call(request, kernel, target)
        try:
            yield plan_build(kernel, target, calls[name], config)
        except InputError as error:
            yield error


def _call(request: Mapping[str, Any], kernel: Any, target: Target) -> Call:
    """The kernel's arguments: by the signature, else by a call in the user's file."""
    if request["signature"] is not None:
        return called_by_signature(kernel, request["signature"])
    place, name = request["kernel"].rpartition(":")[0], request["call"]
    module = load_module(place)
    if request["case"] is not None:
        return record_call(case_call(module, **request["case"]), kernel, target)
    function = getattr(module, name, None)
    if function is None and is_typed(kernel):
        return called_by_signature(kernel, "")
    if function is None:
        raise InputError(
            f"signature of {kernel.__name__} is not known: give one, or write a function"
            f" {name}() into {place} that calls the kernel"
        )
    return record_call(function, kernel, target)


def _facts(request: Mapping[str, Any], build: Build | InputError) -> dict[str, Any]:
    """Grid and formula of the call that a configuration comes from, where they are asked for."""
    if not request["launch"] or isinstance(build, InputError):
        return {}
    case = request["case"]
    module = load_module(request["kernel"].rpartition(":")[0])
    return {
        "grid": build.grid(),
        "formula_bytes": None if case is None else case_bytes(module, **case),
    }


def _serve(
    request: Mapping[str, Any], builds: Sequence[Build | InputError], answers: _Answers
) -> None:
    """Answer from the cache what is there, compile the rest on so many cores."""
    cache = answers.cache
    waiting: list[tuple[int, Build, str]] = []
    for index, build in enumerate(builds):
        if isinstance(build, InputError):
            answers.error(index, str(build))
            continue
        try:
            key = build.key()
        except InputError as error:
            answers.error(index, str(error))
            continue
        found = cached(cache, key) if cache else None
        if found is None:
            waiting.append((index, build, key))
        else:
            answers.resources(index, key, to_json(found).decode())
    if not waiting:
        return
    gluon = any(build.kernel.is_gluon() for _, build, _ in waiting)
    prepare((build.target for _, build, _ in waiting), gluon=gluon)
    works = [partial(_compiled, build) for _, build, _ in waiting]
    for position, outcome in run_forked(works, request["cores"], request["timeout_s"]):
        index, _, key = waiting[position]
        if isinstance(outcome, str):  # it died, or took too long
            answers.error(index, outcome, lasting=False)
            continue
        result = json.loads(outcome)
        if "error" in result:
            answers.error(index, result["error"])
            continue
        if cache:
            keep(cache, key, from_json(result["resources"].encode(), KernelResources))
        answers.resources(index, key, result["resources"])


def _compiled(build: Build) -> bytes:
    """A kernel's resources, or why it does not compile, as JSON."""
    try:
        return json.dumps({"resources": to_json(compile_build(build)).decode()}).encode()
    except InputError as error:
        return json.dumps({"error": str(error)}).encode()


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
    # all is answered: taking apart the user's modules, torch among them, would take a second
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
