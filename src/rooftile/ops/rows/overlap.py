"""A kernel that starts while the one before it ends: on NVIDIA's Hopper and later.

The launch of the second asks for it (``launch_pdl``, see ``overlapping``); the first says when the
second may take free places on the GPU, and the second waits for the results of the first.

Source: https://docs.nvidia.com/cuda/parallel-thread-execution (griddepcontrol)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from rooftile.ops._launch import max_cluster


def overlaps(device: torch.device) -> bool:
    """Whether launches on a device can overlap: where there are clusters."""
    return max_cluster(device) > 0


def overlapping(device: torch.device) -> dict[str, bool]:
    """What the launch of the second kernel asks for."""
    return {"launch_pdl": True} if overlaps(device) else {}


@triton.jit
def release_next(OVERLAPS: tl.constexpr):
    """Let the next kernel start once every program of this one has come here."""
    if OVERLAPS:
        gdc_launch_dependents()


@triton.jit
def wait_for_previous(OVERLAPS: tl.constexpr):
    """Wait until the kernel before is done and what it wrote can be read."""
    if OVERLAPS:
        gdc_wait()
