"""One step on several GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rooftile.records.estimate import Bound
from rooftile.records.plan import Action

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class OnGpu:
    """The step on one GPU.

    Attributes:
        gpu: Its id.
        name: Its full name.
        least_s: Least time of the step [s].
        bound_s: Least time by bound [s].
        saved_bytes: Traffic that fusion avoids.
        saved_s: Least time that it avoids [s].
        verdicts: Ops by what to do about them.
    """

    gpu: str
    name: str
    least_s: float
    bound_s: dict[str, float]
    saved_bytes: int
    saved_s: float
    verdicts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Place:
    """What becomes of ops of one kind on one GPU.

    Attributes:
        bound: Which wall they hit.
        action: What to do about them.
        rule: The row of the decision table.
        least_s: Their least time together [s].
        share: Their part of the step's least time, 0 to 1.
    """

    bound: Bound
    action: Action
    rule: str
    least_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Kind:
    """Ops of one name, shape and place in the model on every GPU.

    Attributes:
        name: Our op's name.
        shapes: Shapes and dtypes, for people.
        module: Path of the module, numbers replaced by ``#``.
        line: The user's file and line of the first.
        ops: So many.
        on: One place a GPU, in the order of the GPUs.
        flips: The verdict is not the same everywhere.
    """

    name: str
    shapes: str
    module: str
    line: str
    ops: int
    on: tuple[Place, ...]
    flips: bool


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One step on several GPUs.

    Attributes:
        target: What was audited.
        mode: ``"infer"`` or ``"train"``.
        gpus: The step on each.
        kinds: What it is made of; what flips first, then by share.
        kind: Tells this record's JSON from others.
        schema_version: Of this record.
    """

    target: str
    mode: str
    gpus: tuple[OnGpu, ...]
    kinds: tuple[Kind, ...]
    kind: Literal["rooftile.whatif"] = "rooftile.whatif"
    schema_version: int = SCHEMA_VERSION
