"""Three labs of a lesson on custom GPU kernels, with the answers that the hardware gives.

Run it: ``python examples/labs.py``. Roofline, fusion traffic and triage, without torch and without
a GPU.
"""

from __future__ import annotations

import rooftile
from rooftile.plan.triage import Case, triage

# An H100 as the lesson takes it: dense bf16 peak [TFLOP/s] and HBM bandwidth [GB/s].
PEAK_TFLOPS, BANDWIDTH_GBS = 990, 3350


def roofline_lab() -> list[str]:
    """A row of softmax and a product in float32 under one roof."""
    n = 4096
    softmax = (3 * n, 2 * n * 4)  # 3 FLOP an element; one read, one write
    matmul = (2 * n**3, 3 * n * n * 4)  # each of A, B and C moves once
    lines = [f"ridge {PEAK_TFLOPS * 1e12 / (BANDWIDTH_GBS * 1e9):.1f} FLOP/byte"]
    for name, (flops, moved) in (("softmax row 4096", softmax), ("matmul 4096", matmul)):
        point = rooftile.roofline(
            flops, moved, peak_tflops=PEAK_TFLOPS, bandwidth_gbs=BANDWIDTH_GBS
        )
        lines.append(
            f"{name}: {point.intensity:.4g} FLOP/byte, "
            f"{point.attainable_flops_per_s / 1e12:.4g} TFLOP/s, "
            f"{_percent(point.fraction_of_peak)} of peak, {point.bound}-bound"
        )
    return lines


def _percent(part: float) -> str:
    return f"{100 * part:.3g} %" if part >= 0.1 else f"{100 * part:.2g} %"


def fusion_lab() -> list[str]:
    """Five pointwise ops over 8192 x 8192 numbers of two bytes."""
    chain = rooftile.fusion("8192x8192", 5, dtype="float16")
    return [
        f"unfused {chain.unfused_bytes / 2**30:.2f} GiB",
        f"fused {chain.fused_bytes / 2**30:.2f} GiB",
        f"{100 * chain.saved_bytes / chain.unfused_bytes:.0f} % less, {chain.times_less:.0f} times",
    ]


def triage_lab() -> list[str]:
    """Four kernels, and a fifth that the lesson gets wrong: hot, compute-bound, in no library."""
    kernels = {
        "dense matmul": Case("compute", library=True, compiler=False, hot=True, expressible=True),
        "layernorm chain": Case("memory", library=False, compiler=True, hot=True, expressible=True),
        "novel fused mask": Case(
            "memory", library=False, compiler=False, hot=True, expressible=True
        ),
        "start-up reshape": Case(
            "memory", library=False, compiler=False, hot=False, expressible=False
        ),
        "novel compute": Case("compute", library=False, compiler=False, hot=True, expressible=True),
    }
    rules = {name: triage(case) for name, case in kernels.items()}
    return [f"{name}: {rule.action} ({rule.name})" for name, rule in rules.items()]


def main() -> None:
    """Print the three labs."""
    for title, lab in (
        ("Roofline", roofline_lab),
        ("Fusion", fusion_lab),
        ("Triage", triage_lab),
    ):
        print(title)
        for line in lab():
            print(f"  {line}")


if __name__ == "__main__":
    main()
