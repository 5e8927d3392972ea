"""What a change did to the traffic of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Change:
    """One op name, line or figure before and after.

    Attributes:
        name: What it is.
        before_ops: Kernels before.
        after_ops: Kernels after.
        before_bytes: Traffic before.
        after_bytes: Traffic after.
        before_flops: FLOP before, of priced ops.
        after_flops: FLOP after, likewise.
    """

    name: str
    before_ops: int
    after_ops: int
    before_bytes: int
    after_bytes: int
    before_flops: int
    after_flops: int

    @property
    def bytes(self) -> int:
        """Traffic that came on top; negative where it got less."""
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """Two reports beside each other.

    Attributes:
        before: What was audited first.
        after: What was audited then.
        total: The whole step.
        by_op: Changes by op's name, the largest change of traffic first; those without are left
            out.
        by_line: Likewise by the user's file and line.
        kind: Tells this record's JSON from others.
        schema_version: Of this record.
    """

    before: str
    after: str
    total: Change
    by_op: tuple[Change, ...]
    by_line: tuple[Change, ...]
    kind: Literal["rooftile.difference"] = "rooftile.difference"
    schema_version: int = SCHEMA_VERSION
