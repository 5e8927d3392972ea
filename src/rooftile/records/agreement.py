"""Whether torch.compile fuses what the rules say it fuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A group that the compiler does not make one kernel of, or a kernel of several groups.

    Attributes:
        group: Number of the plan's group; of a kernel of several groups, one of theirs; None where
            the plan leaves every op of the kernel alone.
        ops: The ops in question, by their index.
        names: What they are called.
        line: Line of the first.
        kernels: Kernels that the compiler makes of them.
        times: So many groups alike.
        detail: What differs, in words.
    """

    group: int | None
    ops: tuple[int, ...]
    names: tuple[str, ...]
    line: str
    kernels: int
    times: int
    detail: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """Rule and compiler beside each other.

    Attributes:
        target: What was audited.
        passes: Passes the compiler was asked about.
        groups: Groups that the rules say torch.compile fuses.
        agreed: Of these, those that it does make one kernel of.
        disagreements: The others, and kernels that join what the plan keeps apart.
        versions: Package to version: ``{"torch": "2.13.0"}``.
        device: What the compiler decided for: a GPU's name, or ``cpu``.
        kind: Tells this record's JSON from others.
        schema_version: Of this record.
    """

    target: str
    passes: tuple[str, ...]
    groups: int
    agreed: int
    disagreements: tuple[Disagreement, ...]
    versions: dict[str, str]
    device: str = "cpu"
    kind: Literal["rooftile.agreement"] = "rooftile.agreement"
    schema_version: int = SCHEMA_VERSION
