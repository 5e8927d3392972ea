"""Rooftile's own op by its name, imported when it is first called: a case needs no Triton."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from rooftile.bench.case import Function, Results


def our_op(name: str) -> Function:
    """A function that is ``rooftile.ops.<name>``."""

    def function(*args: object, **options: object) -> Results:
        return find(name)(*args, **options)  # type: ignore[return-value]

    function.__name__ = name
    return function


def find(name: str) -> Function:
    """The public op of that name."""
    found = getattr(import_module("rooftile.ops"), name, None)
    if found is None or isinstance(found, ModuleType):
        found = getattr(import_module(f"rooftile.ops.{name}"), name)
    return found  # type: ignore[no-any-return]
