"""What one GPU did over a measured trace: how long it worked, at what, and how long it waited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All calls of one kernel.

    Attributes:
        name: As the trace has it.
        calls: How many there were.
        seconds: Their times added up [s]; calls at the same time count each.
    """

    name: str
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Work of one GPU. Times are of the union of events: what runs side by side counts once.

    Attributes:
        source: File the trace came from.
        device: Index of the GPU.
        rank: Of the process in its group; None where the trace does not say.
        kernels: Calls of kernels, those that communicate among them.
        copies: Copies between memories.
        fills: Fills of memory.
        span_s: From the first event's start to the last one's end [s].
        busy_s: At least one event runs [s].
        compute_s: At least one kernel runs that does not communicate [s].
        communication_s: At least one kernel runs that does [s].
        overlapped_s: Both run [s].
        memory_s: At least one copy or fill runs [s].
        slowest: The kernels with the most time, the first the most.
        kind: Tells this record's JSON from others.
        schema_version: Of this record.
    """

    source: str
    device: int
    rank: int | None
    kernels: int
    copies: int
    fills: int
    span_s: float
    busy_s: float
    compute_s: float
    communication_s: float
    overlapped_s: float
    memory_s: float
    slowest: tuple[KernelTime, ...] = ()
    kind: Literal["rooftile.timeline"] = "rooftile.timeline"
    schema_version: int = SCHEMA_VERSION

    @property
    def idle_s(self) -> float:
        """Nothing runs [s]."""
        return self.span_s - self.busy_s

    @property
    def overlap(self) -> float:
        """Part of the communication that compute hides; 0 where there is none."""
        return self.overlapped_s / self.communication_s if self.communication_s else 0.0
