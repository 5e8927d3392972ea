"""Conditions on a step's deterministic figures, and whether they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition.

    Attributes:
        expression: As the user wrote it.
        holds: Whether it is so.
        comparisons: Each comparison in it with its figures: ``"389,298,942,796 <= 400e9"``.
    """

    expression: str
    holds: bool
    comparisons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GateResult:
    """Conditions on one report.

    Attributes:
        target: What was audited.
        conditions: In the order they were given.
        figures: What a condition may name, with its value; the baseline's begin with ``base.``.
        kind: Tells this record's JSON from others.
        schema_version: Of this record.
    """

    target: str
    conditions: tuple[Condition, ...]
    figures: dict[str, float]
    kind: Literal["rooftile.gate"] = "rooftile.gate"
    schema_version: int = SCHEMA_VERSION

    @property
    def holds(self) -> bool:
        """Whether all conditions do."""
        return all(condition.holds for condition in self.conditions)
