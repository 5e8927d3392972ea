"""Run the sweep on a machine with a GPU, within a time limit: ``python benchmarks/device_run.py``.

Shapes run in an order of importance, every op once before any op twice. Each row goes to a file of
JSON lines as soon as it is there; what the file already has is not run again, so a run that was cut
short goes on where it stopped. The work is done in a process of its own: where a kernel takes the
device down, hangs, or kills the process, the row says so, the process is started anew, and the
provider at fault is left out at that shape.

Needs torch and Triton; peers (liger-kernel, quack-kernels and what they need) where they can be
imported. Nothing else of Rooftile's own dependencies.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from compile_first import compile_all, fill_caches, import_all, set_caches
from journal import Journal
from summary import one_line, table
from supervise import CRASHED, supervise

from rooftile.bench.case import Case
from rooftile.bench.cases import OPS, cases_of
from rooftile.bench.clock import CACHES, Clock, CudaClock, HostClock
from rooftile.bench.environment import environment
from rooftile.bench.job import Job
from rooftile.bench.peers import providers
from rooftile.bench.results import append
from rooftile.bench.rounds import Settings
from rooftile.bench.run import ceilings_of, run
from rooftile.records.measurement import Direction, Environment, Measurement

IMPORTANCE = (
    ("softmax", "forward"),
    ("rms_norm", "forward"),
    ("layer_norm", "forward"),
    ("add_rms_norm", "forward"),
    ("attention", "forward"),
    ("attention[causal]", "forward"),
    ("attention", "backward"),
    ("attention[causal]", "backward"),
    ("attention[gqa]", "forward"),
    ("attention[window]", "forward"),
    ("attention[gqa]", "backward"),
    ("attention[window]", "backward"),
    ("softmax", "backward"),
    ("rms_norm", "backward"),
    ("layer_norm", "backward"),
    ("cross_entropy", "forward"),
    ("cross_entropy", "forward_backward"),
    ("bias_gelu_dropout_residual", "forward"),
    ("swiglu", "forward"),
    ("swiglu", "backward"),
    ("geglu", "forward"),
    ("geglu", "backward"),
    ("rotary_embedding", "forward"),
    ("rotary_embedding", "backward"),
    ("add_rms_norm", "backward"),
    ("bias_gelu_dropout_residual", "backward"),
    ("linear_cross_entropy", "forward_backward"),
    ("linear_cross_entropy", "forward"),
    ("log_softmax", "forward"),
    ("add_layer_norm", "forward"),
    ("cross_entropy", "backward"),
    ("log_softmax", "backward"),
    ("add_layer_norm", "backward"),
)
# columns from the most telling on: the middle, both ends, an odd one, then what lies between
COLUMNS = (8192, 65_536, 1024, 262_144, 512, 50_257, 4096, 256, 131_072, 16_384, 32_768, 12_345,
           2048)  # fmt: skip
HOST_SHAPE = (64, 1024)  # where the host's time per call is all there is


@dataclass(frozen=True)
class Planned:
    """A job and where it stands in the order."""

    job: Job
    rank: tuple[int, int]

    @property
    def key(self) -> str:
        """Names the job in files."""
        shape = "x".join(map(str, self.job.shape))
        return f"{self.job.case.label}|{self.job.direction}|{shape}|{self.job.dtype}"


def plan(options: argparse.Namespace) -> list[Planned]:
    """All jobs, the most important first."""
    jobs = []
    for case in (case for op in OPS for case in cases_of(op)):
        for direction in case.costs:
            names = {case.op, case.label, f"{case.op}:{direction}", f"{case.label}:{direction}"}
            asked = not options.ops or names & set(options.ops)
            if asked and direction in options.directions:
                jobs += list(_jobs(case, direction, _place(case, direction), options))
    return sorted(jobs, key=lambda planned: planned.rank)


def _place(case: Case, direction: Direction) -> int:
    """Where a form, or else its op, stands among the others; the last where nowhere."""
    for name in (case.label, case.op):
        if (name, direction) in IMPORTANCE:
            return IMPORTANCE.index((name, direction))
    return len(IMPORTANCE)


def _jobs(
    case: Case, direction: Direction, place: int, options: argparse.Namespace
) -> Iterator[Planned]:
    shapes = case.small if options.dry_run else case.shapes.get(direction, ())
    rows = case.dims == ("M", "N")
    small = direction == "forward" and rows and options.host_shape
    extra = [HOST_SHAPE] if small and not options.dry_run else []
    for number, shape in enumerate([*shapes, *extra]):
        if options.columns and shape[-1] not in options.columns:
            continue
        if options.shapes and "x".join(map(str, shape)) not in options.shapes:
            continue
        tier = COLUMNS.index(shape[-1]) if rows and shape[-1] in COLUMNS else number
        tier = len(COLUMNS) if shape == HOST_SHAPE else tier
        job = Job(
            case=case,
            direction=direction,
            shape=tuple(shape),
            dtype=getattr(torch, options.dtype),
            device="cpu" if options.dry_run else "cuda",
            against=(*options.against, *(options.first_against if number == 0 else ())),
            ceilings=ceilings_of(case, direction),
            matmul_n=64 if options.dry_run else 8192,
        )
        yield Planned(job, (tier, place))


def worker(options: argparse.Namespace) -> int:
    """Run what is left of the plan; each row to the file, each step to the journal."""
    journal = Journal(options.out)
    if options.after:
        import_all([planned.job for planned in plan(options)], Path(options.after))
    clock: Clock = HostClock() if options.dry_run else CudaClock("cuda", options.cache)
    surroundings = environment("cpu" if options.dry_run else "cuda")
    for planned in plan(options):
        if planned.key in journal.done():
            continue
        if time.time() > options.until:
            return 0
        left_out = journal.left_out(planned.key)
        rows = measure(planned, clock, surroundings, options, journal, left_out)
        append(options.out, rows)
        journal.write("done", planned.key)
        print(f"{options.until - time.time():4.0f} s left", one_line(rows), flush=True)
        if not options.dry_run and not device_answers():
            return CRASHED
    return 0


def measure(
    planned: Planned,
    clock: Clock,
    surroundings: Environment,
    options: argparse.Namespace,
    journal: Journal,
    left_out: dict[str, str],
) -> list[Measurement]:
    """The rows of one job, those of providers that brought a process down among them."""
    job = planned.job
    against = tuple(name for name in job.against if name not in left_out)
    case = job.case
    if case.provider in left_out:
        case = replace(case, function=_refusing(left_out[case.provider]))
    job = replace(job, case=case, against=against)
    settings = Settings(rounds=options.rounds, budget_s=options.row_seconds)

    def stage(provider: str, what: str) -> None:
        journal.write("step", planned.key, provider=provider, what=what)

    rows = run(job, clock, surroundings, settings, stage)
    gone = [
        replace(rows[0], provider=name, seconds=(), check=None, host_s=None, first_call_s=None,
                peak_bytes=None, error=words)
        for name, words in left_out.items() if name != case.provider
    ]  # fmt: skip
    return [*rows, *gone]


def _refusing(words: str) -> Any:
    def refuse(*inputs: object) -> Any:
        raise RuntimeError(words)

    return refuse


def device_answers() -> bool:
    """Whether the device still does what it is told, after a fault it does not."""
    try:
        torch.cuda.synchronize()
        return bool(torch.ones(1, device="cuda").item() == 1)
    except RuntimeError:
        return False


def parse(words: list[str]) -> argparse.Namespace:
    """The options; names apart by commas."""

    def names(text: str) -> tuple[str, ...]:
        return tuple(filter(None, text.split(",")))

    out = os.path.join(os.environ.get("OUT", "."), "bench.jsonl")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default=out, help="rows are added to this file")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin nothing after that")
    parser.add_argument(
        "--ops", type=names, default=(), help="softmax,attention[causal],log_softmax:forward"
    )
    parser.add_argument("--directions", type=names,
                        default=("forward", "backward", "forward_backward"))  # fmt: skip
    parser.add_argument("--columns", type=lambda text: tuple(map(int, names(text))), default=())
    parser.add_argument("--shapes", type=names, default=(), help="of the cases' own, as 8192x8192")
    parser.add_argument("--against", type=names, default=("quack", "compile", "liger", "eager"))
    parser.add_argument(
        "--first-against", type=names, default=(), help="further peers, at a case's first shape"
    )
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--cache", default="balanced", choices=CACHES)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--row-seconds", type=float, default=2.0, help="measured time a shape")
    parser.add_argument(
        "--no-host-shape",
        dest="host_shape",
        action="store_false",
        help="leave out 64 x 1024, where host time is all there is",
    )
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, at small shapes")
    parser.add_argument("--list", action="store_true", help="print the plan and end")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--compilers", type=int, default=0, help="processes that fill the compilers' caches first"
    )
    parser.add_argument("--compile-part", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--after", default="", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    options.words = [word for word in words if word != "--worker"]
    options.until = options.until or time.time() + 60 * options.minutes
    return options


def main(words: list[str]) -> int:
    """Run, and print what came of it."""
    options = parse(words)
    if options.worker:
        return worker(options)
    if options.list:
        for planned in plan(options):
            print(planned.key, *providers(planned.job.case, planned.job.against))
        return 0
    if options.compile_part is not None:
        part = plan(options)[options.compile_part :: options.compilers]
        return compile_all([planned.job for planned in part], options.until)
    command = [sys.executable, str(Path(__file__).resolve()), *options.words]
    command += ["--until", str(options.until)]
    if options.compilers:
        set_caches()
        done = Path(f"{options.out}.compiled")
        done.unlink(missing_ok=True)
        given = (command, options.compilers, options.until, done)
        Thread(target=fill_caches, args=given).start()
        command = [*command, "--after", str(done)]
    code = supervise([*command, "--worker"], options.until, Journal(options.out))
    print(table(options.out))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
