"""A published benchmark, and what physics says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1

Answer = Literal["possible", "suspicious", "impossible"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody says a kernel did; None where they do not say.

    Attributes:
        op: ``"attention"``, ``"matmul"``, ``"softmax"``, ``"rms_norm"``, ``"layer_norm"`` or
            ``"copy"``.
        shape: Sizes by name: ``{"batch": 16, "heads": 32, "seq": 4096, "dim": 128}``.
        gpu: Id of the GPU.
        label: What they call the row.
        dtype: Torch's name of the operands' dtype.
        time_s: Of one call [s].
        causal: Attention: whether a query sees only what is before it.
        unfused: Attention in three kernels, the scores written to memory and read again.
        sparse: They say that they use 2:4 sparsity.
        bandwidth_bytes_per_s: What they print as achieved [B/s].
        memory_bytes: What they print as peak memory [B].
    """

    op: str
    shape: dict[str, int]
    gpu: str
    label: str = ""
    dtype: str | None = None
    time_s: float | None = None
    causal: bool | None = None
    unfused: bool = False
    sparse: bool = False
    bandwidth_bytes_per_s: float | None = None
    memory_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison.

    Attributes:
        name: What is compared: ``"FLOP/s"``, ``"traffic"``, ``"bandwidth"``, ``"printed traffic"``,
            ``"memory"``, ``"capacity"`` or ``"launch"``.
        answer: What it says.
        factor: Claimed over possible: above 1 it is impossible.
        detail: Both figures, in words.
    """

    name: str
    answer: Answer
    factor: float
    detail: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a claim that leaves things open.

    Attributes:
        dtype: Taken for the operands' dtype.
        causal: Taken for the mask; None where the op has none.
        flops: The work [FLOP].
        bytes: The least traffic [B].
        answer: The worst of its checks.
        factor: Of that check: of several, the largest.
        checks: Each comparison that the claim's figures allow.
    """

    dtype: str
    causal: bool | None
    flops: int
    bytes: int
    answer: Answer
    factor: float
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """What physics says of a claim.

    Attributes:
        claim: The claim.
        gpu_name: The GPU's full name.
        readings: Every way to read it, the kindest first.
        answer: That of the kindest reading: "impossible" only where no reading is possible.
        factor: Likewise.
    """

    claim: Claim
    gpu_name: str
    readings: tuple[Reading, ...]
    answer: Answer
    factor: float


@dataclass(frozen=True, slots=True)
class ClaimTable:
    """What physics says of several claims.

    Attributes:
        reports: One a claim, in the order they were given.
        kind: Tells this record's JSON from others.
        schema_version: Of this record and all below it.
    """

    reports: tuple[ClaimReport, ...]
    kind: Literal["rooftile.claims"] = "rooftile.claims"
    schema_version: int = SCHEMA_VERSION
