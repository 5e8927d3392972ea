"""A user's own case: ``file.py:CASE``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from rooftile.bench.case import Case, kind_of
from rooftile.bench.cases import OPS, cases_of
from rooftile.bench.rounds import describe
from rooftile.errors import InputError, TargetError
from rooftile.user_file import free_name


def cases(targets: Iterable[str]) -> tuple[Case, ...]:
    """The cases of ops and of files, in the order they are named; of all ops where none is named.

    A file's neighbours are found while ``rooftile.user_file.importable`` lasts.

    Raises:
        InputError: No such op, file or name, or it is no case.
        TargetError: The file cannot be imported.
    """
    named = tuple(targets) or OPS
    found: list[Case] = []
    for target in named:
        if target.endswith(".py"):
            raise InputError(f"a case file must come with a case's name, {target}:CASE, got none")
        path, colon, name = target.rpartition(":")
        found += _from_file(path, name) if colon and path.endswith(".py") else cases_of(target)
    return tuple(found)


def _from_file(path: str, name: str) -> tuple[Case, ...]:
    source = Path(path).resolve()
    if not source.is_file():
        raise InputError(f"case file {path!r} does not exist")
    name_of_module = free_name(source)
    spec = importlib.util.spec_from_file_location(name_of_module, source)
    if spec is None or spec.loader is None:
        raise InputError(f"case file {path!r} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name_of_module] = module  # Triton reads a kernel's source through its module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise TargetError(f"case file {path!r} does not import: {describe(error)}") from error
    case = getattr(module, name, None)
    if isinstance(case, Case):
        return (case,)
    if isinstance(case, tuple | list) and case and all(isinstance(one, Case) for one in case):
        return tuple(case)
    kind = "nothing" if case is None else kind_of(case)
    raise InputError(f"{path}:{name} must be a rooftile.bench.case.Case or a tuple, got {kind}")
