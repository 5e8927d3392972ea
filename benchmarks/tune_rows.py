"""Time launch parameters of the row kernels on this GPU: the best of each op and width.

    python benchmarks/tune_rows.py [--limit 300] [--out tune.jsonl] [op:cols,cols[:kind] ...]

Every variant is first compiled and checked against PyTorch by a pool of processes, on few rows;
then this process times those that were right, on tensors larger than L2, each as a percentage of
the speed of a copy of as many bytes. The plan of plan/launch.py is timed first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from tune_cases import CHECK_ROWS, Case, build
from tune_variants import variants

from rooftile.plan.launch import override

WORK = (
    "softmax_fwd:65536,262144,50257,12345,32768,131072",
    "rms_norm_fwd:65536,262144,50257,12345,32768,131072",
    "layer_norm_fwd:65536,262144,50257,12345,32768,131072,16384,256",
    "rms_norm_bwd:8192,65536,512,16384,4096,1024,32768,12345,50257",
    "layer_norm_bwd:8192,65536,512,16384,4096,1024,32768,12345,50257",
    "softmax_bwd:65536,262144,32768,131072,50257,12345",
    "cross_entropy_fwd:32000,128256,50257", "cross_entropy_both:32000,128256,50257",
    "bgdr_tanh_fwd:8192", "bgdr_erf_fwd:8192", "bgdr_tanh_bwd:8192",
    "swiglu_fwd:8192", "swiglu_bwd:8192", "geglu_fwd:8192", "geglu_bwd:8192",
    "rotary_fwd:8192", "rotary_bwd:8192",
)  # fmt: skip
FLAT = ("flat", "column_blocks", "rotary")
REPEATS = 9


class Job(NamedTuple):
    """One op, width and set of launch parameters; none for the plan."""

    op: str
    n: int
    values: dict[str, Any]


def elements(op: str, n: int) -> int:
    """Elements of x: 2^28, or 8192 x 8192 for ops that reduce nothing; 8192 rows of logits."""
    if op.startswith("cross_entropy"):
        return 8192 * n
    return 2**28 if "softmax" in op or "norm" in op else 2**26


def family_of(op: str) -> str:
    """The launch family of an op's case."""
    x = torch.empty(CHECK_ROWS, 128, device="cuda", dtype=torch.bfloat16)
    return build(op, x).family


def jobs_of(work: list[str]) -> Iterator[Job]:
    """The plans first, then variants: of every op and width alike many at a time."""
    queues = []
    for item in work:
        op, widths, *kinds = item.split(":")
        for n in map(int, widths.split(",")):
            yield Job(op, n, {})
            found = variants(family_of(op), n, 2)
            queues.append([Job(op, n, v) for v in found if not kinds or v.get("kind") in kinds])
    for batch in itertools.zip_longest(*queues):
        yield from (job for job in batch if job is not None)


def prepare(job: Job) -> str:
    """Compile and check one job on few rows; what went wrong, or nothing."""
    try:
        x = torch.randn(CHECK_ROWS, job.n, device="cuda", dtype=torch.bfloat16)
        case = build(job.op, x)
        with ExitStack() as stack:
            if job.values:
                stack.enter_context(override(case.family, **job.values))
            case.check()
            torch.cuda.synchronize()
    except Exception as error:  # a variant that cannot run is reported as one
        text = str(error).strip().splitlines()
        if "CUDA error" in str(error):
            os._exit(1)  # nothing runs in this process any more: the pool starts another
        return f"{type(error).__name__}: {text[0][:90] if text else ''}"
    return ""


def median_ms(run: Callable[[], Any]) -> float:
    """Median time on the GPU of one call, in ms, the host ahead of the GPU all the time."""
    run()
    torch.cuda.synchronize()
    start_s = time.perf_counter()
    run()
    host_s = time.perf_counter() - start_s + 20e-6
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REPEATS)]
    torch.cuda.synchronize()
    torch.cuda._sleep(int(min(REPEATS * host_s * 1.5, 0.02) * 2e9))
    for start, end in pairs:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)


class Timer:
    """Times jobs beside copies of the same bytes; keeps the tensors of the last op and width."""

    def __init__(self) -> None:
        self.case: Case | None = None
        self.key: tuple[str, int] | None = None
        self.copied: tuple[float, float] | None = None  # ms, when

    def copy_ms(self, n_bytes: int) -> float:
        """Time of a copy that reads half of the bytes and writes the other half."""
        if self.copied is None or time.monotonic() - self.copied[1] > 3:
            half = torch.empty(n_bytes // 2, dtype=torch.uint8, device="cuda").random_()
            other = torch.empty_like(half)
            self.copied = median_ms(lambda: other.copy_(half)), time.monotonic()
        return self.copied[0]

    def __call__(self, job: Job) -> dict[str, Any]:
        """One row of the results."""
        if self.key != (job.op, job.n):
            self.case = self.copied = None
            rows = elements(job.op, job.n) // job.n // 64 * 64
            x = torch.randn(rows, job.n, device="cuda", dtype=torch.bfloat16)
            self.case, self.key = build(job.op, x), (job.op, job.n)
        assert self.case is not None
        copied = self.copy_ms(self.case.n_bytes)
        with ExitStack() as stack:
            if job.values:
                stack.enter_context(override(self.case.family, **job.values))
            ms = median_ms(self.case.run)
        return {"op": job.op, "n": job.n, "values": job.values, "ms": ms,
                "percent": round(100 * copied / ms, 1)}  # fmt: skip


def compile_all(jobs: list[Job], limit_s: float) -> dict[int, str]:
    """What ``prepare`` says of each job that it had time for."""
    end = time.monotonic() + limit_s
    with multiprocessing.get_context("spawn").Pool(max(2, (os.cpu_count() or 2) - 1)) as pool:
        pending = [pool.apply_async(prepare, (job,)) for job in jobs]
        while time.monotonic() < end and not all(result.ready() for result in pending):
            time.sleep(0.2)
        done = {i: result.get() for i, result in enumerate(pending) if result.ready()}
        pool.terminate()
    return done


def main() -> None:
    """Compile, check, time; print the best of each op and width, and write all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", nargs="*", default=WORK, metavar="op:cols[:kind]")
    parser.add_argument("--limit", type=float, default=300, help="seconds to spend")
    parser.add_argument("--out", default=os.path.join(os.environ.get("OUT", "."), "tune.jsonl"))
    parser.add_argument("--plans", action="store_true", help="time the plans alone, no variants")
    args = parser.parse_args()
    start = time.monotonic()
    jobs = [job for job in jobs_of(list(args.work)) if not (args.plans and job.values)]
    print(torch.cuda.get_device_name(), "torch", torch.__version__, len(jobs), "jobs", flush=True)
    ready = compile_all(jobs, 0.6 * args.limit)
    wrong = {i: why for i, why in ready.items() if why}
    print(f"{len(ready)} ready, {len(wrong)} failed, {time.monotonic() - start:.0f} s", flush=True)
    order = sorted(i for i in ready if i not in wrong)
    places = {key: p for p, key in enumerate(dict.fromkeys((j.op, j.n) for j in jobs))}
    order.sort(key=lambda i: (places[jobs[i].op, jobs[i].n], i))
    timer, best = Timer(), {}
    with open(args.out, "a") as file:
        for i, why in wrong.items():
            file.write(json.dumps({**jobs[i]._asdict(), "error": why}) + "\n")
        for i in order:
            if time.monotonic() - start > args.limit:
                print("stopped by the limit at", jobs[i].op, jobs[i].n)
                break
            row = timer(jobs[i])
            file.write(json.dumps(row) + "\n")
            file.flush()
            best.setdefault((row["op"], row["n"]), []).append(row)
    for (op, n), rows in best.items():
        report(op, n, rows)
    for why in sorted(set(wrong.values())):
        print("failed", list(wrong.values()).count(why), why)


def report(op: str, n: int, rows: list[dict[str, Any]]) -> None:
    """The plan and the three best, in two lines."""
    plan = next((r["percent"] for r in rows if not r["values"]), None)
    rows = sorted((r for r in rows if r["values"]), key=lambda r: -r["percent"])[:3]
    tops = " | ".join(f"{r['percent']} {label_of(r['values'])}" for r in rows)
    print(f"{op:18}{n:7} plan {plan} | {tops}", flush=True)


def label_of(values: dict[str, Any]) -> str:
    """Short names of the parameters."""
    short = {"num_warps": "w", "block_n": "b", "rows": "r", "programs_per_sm": "p", "cluster": "c",
             "num_stages": "s", "packed": "pk", "max_registers": "reg",
             "line_bytes": "line"}  # fmt: skip
    parts = [f"{short[k]}{int(v)}" for k, v in values.items() if k in short]
    return " ".join([str(values.get("kind", "")), *parts]).strip()


if __name__ == "__main__":
    main()
