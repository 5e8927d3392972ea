"""Host time of a call where the host is all there is: 64 rows of 1024, forward, no gradients.

python benchmarks/host_times.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from rooftile import ops

ROUNDS, CALLS = 7, 400


def calls() -> dict[str, Callable[[], Any]]:
    """Each op once, torch's softmax to compare."""
    x, r = (torch.randn(64, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    w, b = (torch.ones(1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    t = torch.randint(0, 1024, (64,), device="cuda")
    seed = torch.randint(2**62, (1,), device="cuda")
    heads = x.view(1, 64, 8, 128)
    cos, sin = (torch.randn(64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    leaf = x.clone().requires_grad_()
    y = ops.softmax(leaf, 1)
    return {
        "torch.softmax": lambda: torch.softmax(x, 1),
        "softmax": lambda: ops.softmax(x, 1),
        "log_softmax": lambda: ops.log_softmax(x, 1),
        "rms_norm": lambda: ops.rms_norm(x, (1024,), w, 1e-6),
        "layer_norm": lambda: ops.layer_norm(x, (1024,), w, b),
        "add_rms_norm": lambda: ops.add_rms_norm(x, r, (1024,), w, 1e-6),
        "add_layer_norm": lambda: ops.add_layer_norm(x, r, (1024,), w, b),
        "cross_entropy": lambda: ops.cross_entropy(x, t),
        "swiglu": lambda: ops.swiglu(x, r),
        "geglu": lambda: ops.geglu(x, r),
        "bias_gelu_dropout_residual": lambda: ops.bias_gelu_dropout_residual(
            x, b, r, 0.1, seed=seed
        ),
        "rotary_embedding": lambda: ops.rotary_embedding(heads, cos, sin),
        "softmax, graph recorded": lambda: ops.softmax(leaf, 1),
        "softmax, backward": lambda: torch.autograd.grad(y, leaf, r, retain_graph=True),
    }


def main() -> None:
    """Print the median of some rounds of calls in a row, in microseconds."""
    for name, call in calls().items():
        times = []
        for _ in range(ROUNDS):
            for _ in range(20):
                call()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            times.append((time.perf_counter() - start) / CALLS * 1e6)
            torch.cuda.synchronize()
        print(f"host {name:28} {statistics.median(times):6.1f} us", flush=True)


if __name__ == "__main__":
    main()
