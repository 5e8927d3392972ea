"""A chain of pointwise ops, one by one and as one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Chain:
    """What a chain of ops moves if each is a kernel, and if one kernel runs all of them.

    Attributes:
        elements: Of the tensor that goes through the chain.
        ops: Kernels of the unfused chain, each of which reads and writes it once.
        dtype: Of the elements.
        unfused_bytes: Traffic of the ops one by one.
        fused_bytes: Traffic of the one kernel: one read, one write.
        gpu: Id of the GPU that the times are for, "" where none was named.
        unfused_s: Least time of the ops one by one [s]; None without a GPU.
        fused_s: Least time of the one kernel [s]; None without a GPU.
        kind: Tells this record's JSON from others.
        schema_version: Of this record.
    """

    elements: int
    ops: int
    dtype: str
    unfused_bytes: int
    fused_bytes: int
    gpu: str = ""
    unfused_s: float | None = None
    fused_s: float | None = None
    kind: Literal["rooftile.chain"] = "rooftile.chain"
    schema_version: int = SCHEMA_VERSION

    @property
    def saved_bytes(self) -> int:
        """Traffic that the one kernel avoids."""
        return self.unfused_bytes - self.fused_bytes

    @property
    def times_less(self) -> float:
        """Unfused over fused traffic; 1 where nothing moves."""
        return self.unfused_bytes / self.fused_bytes if self.fused_bytes else 1.0
