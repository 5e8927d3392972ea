"""Time launch parameters of the row kernels on this GPU: one line a variant.

    python benchmarks/tune_rows.py [--limit 300] [--dtype bfloat16] [--cols 256 ...] [op ...]

Each op runs on 2^28 elements (or --elements), so that neither side of it stays in L2, and is timed
between runs of a copy of as many bytes: the last column is the percentage of that copy's speed.
The plan of plan/launch.py comes first, then the variants. Nothing is timed whose result differs
from that of PyTorch.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rooftile.ops.cross_entropy import cross_entropy
from rooftile.ops.layer_norm import layer_norm
from rooftile.ops.log_softmax import log_softmax
from rooftile.ops.rms_norm import rms_norm
from rooftile.ops.softmax import softmax
from rooftile.plan.launch import override, row_launch

COLS = (256, 512, 1024, 4096, 8192, 12345, 16384, 32768, 50257, 65536, 131072, 262144)
REPEATS = 15


@dataclass
class Case:
    """One call to time: what it runs, what it should give, tensors moved, its launch family."""

    run: Callable[[], Any]
    check: Callable[[], None]
    n_bytes: int
    family: str
    plan_args: tuple[int, int]


def close(name: str, actual: Tensor, expected: Tensor) -> None:
    """Fail on a wrong result: 2 % of the largest value, for bfloat16 against bfloat16."""
    scale = expected.float().abs().max().item()
    worst = (actual.float() - expected.float()).abs().max().item()
    if not worst <= 0.02 * scale:
        raise ValueError(f"{name} is wrong by {worst:.3g} of {scale:.3g}")


def backward(run: Callable[..., Tensor], leaves: list[Tensor], dy: Tensor) -> Callable[[], Any]:
    """Only the gradients of a recorded call."""
    y = run(*leaves)
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


def build(op: str, x: Tensor, dy: Tensor) -> Case:
    """The case of one op on x."""
    n = x.shape[1]
    w, b = (torch.randn(n, device=x.device, dtype=x.dtype) for _ in range(2))
    norm: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], list[Tensor]]] = {
        "rms_norm": (
            lambda x, w: rms_norm(x, (n,), w, 1e-6), lambda x, w: torch.rms_norm(x, (n,), w, 1e-6),
            [x, w],
        ),
        "layer_norm": (
            lambda x, w, b: layer_norm(x, (n,), w, b),
            lambda x, w, b: torch.layer_norm(x, (n,), w, b),
            [x, w, b],
        ),
        "softmax": (lambda x: softmax(x, 1), lambda x: torch.softmax(x, 1), [x]),
        "log_softmax": (lambda x: log_softmax(x, 1), lambda x: torch.log_softmax(x, 1), [x]),
    }  # fmt: skip
    size, row = x.numel() * x.element_size(), (n, x.element_size())
    if op.startswith("cross_entropy"):
        return build_cross_entropy(op, x)
    name, _, direction = op.rpartition("_")
    ours, theirs, leaves = norm[name]
    small = [t[:64] if t.dim() == 2 else t for t in leaves]
    family = f"{'softmax' if 'softmax' in name else 'norm'}_{direction}"
    if direction == "fwd":
        return Case(
            lambda: ours(*leaves),
            lambda: close(op, ours(*small), theirs(*small)),
            2 * size,
            family,
            row,
        )
    leaves = [t.requires_grad_() for t in leaves]

    def check() -> None:
        near = [t.detach().clone().requires_grad_() for t in small]
        for a, e in zip(
            backward(ours, near, dy[:64])(), backward(theirs, near, dy[:64])(), strict=True
        ):
            close(op, a, e)

    return Case(backward(ours, leaves, dy), check, 3 * size, family, row)


def build_cross_entropy(op: str, x: Tensor) -> Case:
    """Loss alone, or loss and gradient."""
    target = torch.randint(0, x.shape[1], (x.shape[0],), device=x.device)
    size, row = x.numel() * x.element_size(), (x.shape[1], x.element_size())

    def check() -> None:
        near = x[:64].detach().clone().requires_grad_()
        ours = cross_entropy(near, target[:64])
        theirs = torch.nn.functional.cross_entropy(near.float(), target[:64])
        close(op, ours, theirs)
        (a,), (e,) = torch.autograd.grad(ours, near), torch.autograd.grad(theirs, near)
        close(op, a, e)

    if op == "cross_entropy_fwd":
        return Case(lambda: cross_entropy(x, target), check, size, op, row)
    x.requires_grad_()

    def both() -> None:
        torch.autograd.grad(cross_entropy(x, target), x)

    return Case(both, check, 3 * size, "cross_entropy_bwd", row)


def variants(family: str, n: int, itemsize: int) -> Iterator[dict[str, Any]]:
    """Plausible launch parameters, the likeliest first."""
    block = 1 << (n - 1).bit_length()
    size = block * itemsize
    if family.startswith("cross_entropy"):
        for chunk, warps in itertools.product((2048, 4096, 8192, 16384), (4, 8, 16)):
            if 8 <= chunk // (warps * 32) <= 64:
                yield {"block_n": chunk, "num_warps": warps}
                if family.endswith("fwd"):
                    yield {"block_n": chunk, "num_warps": warps, "num_stages": 3}
        return
    if size <= 131072:
        for warps, each in itertools.product((4, 8, 16, 32), (8, 16, 32, 64)):
            rows = warps * 32 * each // block
            if rows < 1 or (rows > 1 and warps > 8):
                continue
            tile = {"kind": "tile", "rows": rows, "block_n": block, "num_warps": warps}
            if family == "norm_bwd":
                for per_sm, stages in itertools.product((1, 2, 4), (1, 2)):
                    if per_sm * warps <= 32 and each <= 32:
                        yield {**tile, "programs_per_sm": per_sm, "num_stages": stages}
            else:
                yield {**tile, "packed": False, "max_registers": 0}
                for registers in (64, 80) if each == 64 else (48,):
                    if each >= 32:
                        yield {**tile, "packed": True, "max_registers": registers}
    if 16384 <= size <= 131072 and family == "norm_bwd":
        for cluster, warps, per_sm in itertools.product((2, 4, 8), (4, 8, 16), (1, 2, 4)):
            if block // cluster // (warps * 32) == 16 and per_sm * warps <= 16:
                yield {"kind": "cluster", "cluster": cluster, "block_n": block // cluster,
                       "num_warps": warps, "packed": True, "programs_per_sm": per_sm,
                       "max_registers": 128}  # fmt: skip
    if size >= 32768 and family != "norm_bwd":
        for cluster, warps in itertools.product((2, 4, 8), (4, 8, 16)):
            each = block // cluster // (warps * 32)
            for registers in (0, 64, 80):
                if (16 <= each <= 32 and registers == 0) or (each == 64 and registers):
                    yield {"kind": "cluster", "cluster": cluster, "block_n": block // cluster,
                           "num_warps": warps, "packed": each == 64,
                           "max_registers": registers}  # fmt: skip
    if size >= 65536:
        for chunk, warps in itertools.product((4096, 8192, 16384), (4, 8, 16)):
            if 8 <= chunk // (warps * 32) <= 32:
                yield {"kind": "loop", "rows": 1, "block_n": chunk, "num_warps": warps}


def median_ms(run: Callable[[], Any]) -> float:
    """Median time on the GPU of one call, in ms; the tensors are larger than L2."""
    for _ in range(2):
        run()
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REPEATS)]
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000)  # the host gets ahead of the GPU
    for start, end in pairs:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)


def report(op: str, n: int, label: str, case: Case, values: dict[str, Any]) -> None:
    """Check, time beside a copy of the same bytes, print."""
    with ExitStack() as stack:
        if values:
            stack.enter_context(override(case.family, **values))
        try:
            case.check()
            half = torch.empty(case.n_bytes // 2, dtype=torch.uint8, device="cuda")
            copy = torch.empty_like(half)
            first = median_ms(lambda: copy.copy_(half))
            ms = median_ms(case.run)
            copied = min(first, median_ms(lambda: copy.copy_(half)))
        except Exception as error:  # a variant that cannot run is reported as one
            text = str(error).strip().splitlines()
            why = f"{type(error).__name__}: {text[0][:60] if text else ''}"
            print(f"{op:17} {n:7} {label:40} {why}", flush=True)
            return
    print(
        f"{op:17} {n:7} {label:40} {ms:8.4f} ms {case.n_bytes / ms / 1e6:7.0f} GB/s "
        f"{100 * copied / ms:5.1f} %",
        flush=True,
    )


def label_of(values: dict[str, Any]) -> str:
    """Short names of the parameters."""
    short = {"num_warps": "w", "block_n": "b", "rows": "r", "programs_per_sm": "p", "cluster": "c",
             "num_stages": "s", "packed": "pk", "max_registers": "reg"}  # fmt: skip
    parts = [f"{short[k]}{int(v)}" for k, v in values.items() if k in short and v is not False]
    return " ".join([str(values.get("kind", "")), *parts]).strip()


def host_times(calls: int = 2000) -> None:
    """Microseconds of the host a call, forward without gradients, 64 rows of 1024."""
    x = torch.randn(64, 1024, device="cuda", dtype=torch.bfloat16)
    w, b = torch.ones(1024, device="cuda").bfloat16(), torch.ones(1024, device="cuda").bfloat16()
    t = torch.randint(0, 1024, (64,), device="cuda")
    table = {
        "torch.softmax": lambda: torch.softmax(x, 1),
        "softmax": lambda: softmax(x, 1),
        "rms_norm": lambda: rms_norm(x, (1024,), w, 1e-6),
        "layer_norm": lambda: layer_norm(x, (1024,), w, b),
        "cross_entropy": lambda: cross_entropy(x, t),
    }
    for name, run in table.items():
        times = []
        for _ in range(5):
            for _ in range(50):
                run()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls // 5):
                run()
            times.append((time.perf_counter() - start) / (calls // 5) * 1e6)
            torch.cuda.synchronize()
        print(f"host {name:15} {statistics.median(times):6.1f} us a call", flush=True)


OPS = ("softmax_fwd", "rms_norm_fwd", "layer_norm_fwd", "rms_norm_bwd", "layer_norm_bwd",
       "softmax_bwd", "cross_entropy_fwd", "cross_entropy_both")  # fmt: skip


def main() -> None:
    """Go through ops and widths until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", default=OPS, metavar="op")
    parser.add_argument("--cols", type=int, nargs="*", default=COLS)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--elements", type=int, default=2**28)
    parser.add_argument("--limit", type=float, default=300, help="seconds to spend")
    parser.add_argument("--plans", action="store_true", help="time the plans alone, no variants")
    args = parser.parse_args()
    end = time.monotonic() + args.limit
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "limit", args.limit, "s")
    host_times()
    for op, n in itertools.product(args.ops, args.cols):
        dtype = getattr(torch, args.dtype)
        x = torch.randn(args.elements // n, n, device="cuda", dtype=dtype)
        case = build(op, x, torch.randn_like(x))
        report(op, n, "plan: " + label_of(_plan(case)), case, {})
        for values in () if args.plans else variants(case.family, *case.plan_args):
            if time.monotonic() > end:
                print(f"stopped after {args.limit} s")
                return
            report(op, n, label_of(values), case, values)


def _plan(case: Case) -> dict[str, Any]:
    plan = row_launch(case.family, *case.plan_args, clusters=True)
    return {name: getattr(plan, name) for name in plan.__slots__}


if __name__ == "__main__":
    main()
