"""The process that imports the user's kernel and forks a child for each compile.

It reads one request, a JSON line, answers one JSON line a configuration as it is done, and ends. A
child that dies of its compile, as C++ assertions do, takes nothing with it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rooftile.compile.build import Build, compile_build, plan_build, prepare
from rooftile.compile.cache import cached, keep
from rooftile.compile.kernel import Argument, Call, load_kernel, load_module, parse_signature
from rooftile.compile.launch import record_call
from rooftile.compile.targets import Target, target_of
from rooftile.errors import InputError, RooftileError
from rooftile.records.io import to_json


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


@dataclass
class _Child:
    """A compile under way."""

    index: int
    key: str
    out: Path
    log: Path
    deadline: float


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
    with tempfile.TemporaryDirectory(prefix="rooftile-") as folder:
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        if waiting:
            prepare(build.target for _, build, _ in waiting)
            gc.collect()
            gc.freeze()  # a collection in a child would copy every page it looks at
        running: dict[int, _Child] = {}
        while waiting or running:
            while waiting and len(running) < request["cores"]:
                index, build, key = waiting.pop(0)
                child = _Child(
                    index, key, Path(folder, f"{index}.json"), Path(folder, f"{index}.log"),
                    time.monotonic() + request["timeout_s"],
                )  # fmt: skip
                running[_fork(build, child)] = child
            pid, status = _next(running)
            child = running.pop(pid)
            _answer(answers, _result(child, status, request["timeout_s"], cache))


def _fork(build: Build, child: _Child) -> int:
    """Start a compile in a process of its own, which writes one file; returns its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)  # so that ptxas ends with it
    log = os.open(child.log, os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        resources = compile_build(build)
        child.out.write_text(json.dumps({"resources": to_json(resources).decode()}))
        code = 0
    except RooftileError as error:
        child.out.write_text(json.dumps({"error": str(error)}))
        code = 0
    except Exception as error:
        child.out.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        code = 0
    finally:
        os._exit(code)


def _next(running: dict[int, _Child]) -> tuple[int, int]:
    """The next child that ends, of itself or because its time is up."""
    while True:
        for pid, child in running.items():
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return pid, status
            if time.monotonic() > child.deadline:
                os.killpg(pid, signal.SIGKILL)
                return pid, os.waitpid(pid, 0)[1]
        time.sleep(0.002)


def _result(child: _Child, status: int, timeout_s: float, cache: Path | None) -> dict[str, Any]:
    """What became of a child."""
    if child.out.exists() and os.WIFEXITED(status):
        result = json.loads(child.out.read_text())
        if cache and "resources" in result:
            from rooftile.records.io import from_json
            from rooftile.records.resources import KernelResources

            keep(cache, child.key, from_json(result["resources"].encode(), KernelResources))
        return {"index": child.index, **result}
    if time.monotonic() > child.deadline:
        return {"index": child.index, "error": f"compile takes longer than {timeout_s:g} s"}
    how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "an exit"
    said = child.log.read_text(errors="replace").strip().splitlines()
    last = next((line for line in said if "ERROR" in line or "Assert" in line), (said or [""])[-1])
    return {"index": child.index, "error": f"the compiler died of {how}: {last.strip()}"}


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
