"""Measurements that several tests share: a sweep of one op, and a product."""

from __future__ import annotations

from dataclasses import replace

from rooftile.records.cost import Cost
from rooftile.records.measurement import Check, Environment, Measurement

H200 = Environment(
    gpu="NVIDIA H200",
    gpu_id="h200-sxm",
    driver="580.1",
    cuda="13.0",
    torch="2.11.0",
    triton="3.6.0",
    python="3.12.3",
    rooftile="0.1.0",
    peers={"quack": "0.6.5"},
    units=132,
    l2_bytes=60 * 2**20,
    memory_bytes=141 * 2**30,
    sm_clock_mhz=1980.0,
    memory_clock_mhz=3201.0,
    power_limit_w=700.0,
    started="2026-12-01T10:00:00+00:00",
)
PASSED = Check(True, 0.001, 0.01)


def measurement(provider: str = "rooftile", n: int = 4096, ms: float = 0.25, **changes):
    """A softmax of 2**28 bf16 elements beside a copy of 0.2 ms and a peer of 0.3 ms."""
    m = 2**28 // n
    base = Measurement(
        op="softmax",
        provider=provider,
        direction="forward",
        shape={"M": m, "N": n},
        dtype="bfloat16",
        cost=Cost(vector_flops=5 * m * n, read_bytes=2 * m * n, write_bytes=2 * m * n),
        environment=H200,
        seconds=(ms * 1e-3,) * 5,
        timer="cuda events",
        warmup_rounds=10,
        settled=True,
        host_s=12e-6,
        first_call_s=1.0,
        peak_bytes=2**29,
        copy_s=0.2e-3,
        best_peer="quack",
        best_peer_s=0.3e-3,
        bandwidth_bytes_per_s=4.8e12,
        peak_flops_per_s=66.9e12,
        check=PASSED,
    )
    return replace(base, **changes)


def sweep() -> list[Measurement]:
    """Ours and a peer at three widths, the copy, and a peer that refuses the widest."""
    rows = []
    for n in (1024, 4096, 65_536):
        rows += [
            measurement("rooftile", n, 0.25),
            measurement("quack", n, 0.3),
            measurement("copy", n, 0.2, check=None, host_s=None, peak_bytes=None),
        ]
    refused = measurement("liger", 65_536, seconds=(), check=None, error="RuntimeError: too wide")
    return [*rows, refused]


def product() -> Measurement:
    """A linear cross-entropy of 1e12 FLOP in 2 ms beside a matmul of 700 TFLOP/s."""
    cost = Cost(matrix_flops=10**12, read_bytes=10**9, write_bytes=8, math="bf16")
    return measurement(
        op="linear_cross_entropy", shape={"M": 1, "K": 2, "V": 3}, cost=cost, seconds=(2e-3,),
        matmul_flops_per_s=700e12, peak_flops_per_s=989.5e12,
    )  # fmt: skip
