"""Launch parameters set by hand while a context lasts, to tune them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

from rooftile.errors import InputError

Plan = TypeVar("Plan")


class Overrides:
    """What is set in place of the planned parameters, for each family of one kind of launch."""

    def __init__(self, record: type[Any], families: Collection[str]) -> None:
        self._families = families
        self._names = sorted(field.name for field in fields(record))
        self._values: dict[str, dict[str, object]] = {}

    @contextmanager
    def set(self, family: str, **values: object) -> Iterator[None]:
        """Set launch parameters of one family while the context lasts, to tune them.

        It holds for the whole process: the backward of a GPU runs in another thread.

        Args:
            family: ``"softmax_fwd"``, ``"norm_bwd"`` ...: one of the families.
            **values: Fields of the launch's record.

        Raises:
            InputError: There is no such family or field.
        """
        if family not in self._families:
            raise InputError(f"family must be one of {', '.join(self._families)}, got {family!r}")
        for name in values:
            if name not in self._names:
                raise InputError(
                    f"{name!r} is no launch parameter; there are {', '.join(self._names)}"
                )
        before = self._values.get(family)
        self._values[family] = values
        try:
            yield
        finally:
            self._values.pop(family)
            if before is not None:
                self._values[family] = before

    def any(self) -> bool:
        """Whether any family's parameters are set now."""
        return bool(self._values)

    def applied(self, family: str, plan: Plan) -> Plan:
        """The plan with what is set for its family."""
        if family not in self._values:
            return plan
        return replace(plan, **self._values[family])  # type: ignore[type-var]
