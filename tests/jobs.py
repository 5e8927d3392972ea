"""Jobs of the bench on a CPU, and their rows by provider."""

from __future__ import annotations

import torch

from rooftile.bench.job import Job


def job(case, direction="forward", **changes) -> Job:
    parts = {"dtype": torch.float32, "device": "cpu", "against": ("eager",), "matmul_n": 16}
    return Job(case, direction, case.small[0], **{**parts, **changes})


def rows_of(found):
    return {row.provider: row for row in found}
