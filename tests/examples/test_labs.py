"""The labs print the right values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

RIGHT = """\
Roofline
  ridge 295.5 FLOP/byte
  softmax row 4096: 0.375 FLOP/byte, 1.256 TFLOP/s, 0.13 % of peak, memory-bound
  matmul 4096: 682.7 FLOP/byte, 990 TFLOP/s, 100 % of peak, compute-bound
Fusion
  unfused 1.25 GiB
  fused 0.25 GiB
  80 % less, 5 times
Triage
  dense matmul: USE LIBRARY (compute, in a library)
  layernorm chain: AUTO-FUSE (memory, fused)
  novel fused mask: HAND-WRITE (memory, covered by nothing)
  start-up reshape: LEAVE IT (cold)
  novel compute: HAND-WRITE (compute, covered by nothing)
"""


def test_the_labs_give_the_right_values():
    """As a program of its own, line by line."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "labs.py")],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == RIGHT
