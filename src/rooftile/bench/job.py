"""What a run of the bench measures."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rooftile.bench.case import Case
from rooftile.records.measurement import Direction

_MATMUL_N = 8192  # large enough for the full rate, 1.6 ms of an H200


@dataclass(frozen=True, slots=True)
class Job:
    """What to measure.

    Attributes:
        case: The op, its inputs and who computes it.
        direction: Which pass.
        shape: Lengths of the case's dimensions.
        dtype: Of the inputs.
        device: Where it runs.
        against: Peers' names.
        ceilings: Which ceilings run in the same rounds: ``"copy"``, ``"matmul"``.
        matmul_n: Size of the square matmul.
    """

    case: Case
    direction: Direction
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str = "cuda"
    against: tuple[str, ...] = ()
    ceilings: tuple[str, ...] = ("copy",)
    matmul_n: int = _MATMUL_N
