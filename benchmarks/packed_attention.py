"""Times packed sequences beside plain ones of the same work, for attention on an NVIDIA GPU.

32,768 tokens, 4,096 columns in all heads. The table of tiles is part of the time. A few calls at a
time wait behind a sleeping kernel until the host has enqueued them all, so no host time is in it; a
round in which the host was late is not counted. Prints a JSON line for each case: TFLOP/s of both,
medians, and their ratio: ``python benchmarks/packed_attention.py``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch

from rooftile.ops.attention import attention

TOKENS, COLUMNS = 32_768, 4_096
_MIXED = (256, 4096, 1024, 2048, 640, 3200, 1536, 1000, 777, 2048, 4096, 512, 1280, 3000, 333, 2222,
          1111, 1500, 900, 1189)  # fmt: skip
# lengths of the packed sequences, and tokens of the plain ones beside them
LENGTHS = {"512": ((512,) * 64, 512), "4096": ((4096,) * 8, 4096), "mixed": (_MIXED, 2048)}
_SLEEP = 24_000_000  # cycles: 13 ms
_CALLS = 4
Run = Callable[[], object]


def case_of(
    width: int, batch: int, tokens: int, causal: bool, lengths: tuple[int, ...]
) -> tuple[Run, Run, float]:
    """Forward and backward of one call, and the forward's FLOP."""
    heads = COLUMNS // width
    shape = (batch, heads, tokens, width)
    options: dict[str, object] = {"is_causal": causal}
    if lengths:
        shape = (TOKENS, heads, width)
        ends = [0, *itertools.accumulate(lengths)]
        cu = torch.tensor(ends, dtype=torch.int32, device="cuda")
        longest = max(lengths)
        options |= {"cu_seqlens_q": cu, "cu_seqlens_k": cu,
                    "max_seqlen_q": longest, "max_seqlen_k": longest}  # fmt: skip
    q, k, v = (
        torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3)
    )
    o = attention(q, k, v, **options)  # type: ignore[arg-type]
    do = torch.randn_like(o)

    def forward() -> object:
        with torch.no_grad():
            return attention(q, k, v, **options)  # type: ignore[arg-type]

    def backward() -> object:
        return torch.autograd.grad(o, (q, k, v), do, retain_graph=True)

    pairs = sum(n * n for n in lengths) if lengths else batch * tokens * tokens
    return forward, backward, 4.0 * heads * width * pairs * (0.5 if causal else 1.0)


def milliseconds(run: Run) -> float:
    """Of one call; nan where the host was late."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_SLEEP)
    start.record()
    for _ in range(_CALLS):
        run()
    end.record()
    late = start.query()
    end.synchronize()
    return float("nan") if late else start.elapsed_time(end) / _CALLS


def compare(runs: tuple[Run, Run], rounds: int) -> tuple[list[float], int]:
    """Median time of each, interleaved, and the rounds that count."""
    for run in runs:
        run()
    torch.cuda.synchronize()
    times = [tuple(map(milliseconds, runs)) for _ in range(rounds)]
    times = [pair for pair in times if all(t == t for t in pair)]
    if not times:
        raise SystemExit("the host was late in every round")
    return [median(column) for column in zip(*times, strict=True)], len(times)


def main() -> None:
    """Every width, mask, lengths and pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--widths", type=int, nargs="*", default=[64, 128, 256])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = []
    for width, causal, name in itertools.product(given.widths, (False, True), LENGTHS):
        lengths, tokens = LENGTHS[name]
        plain = case_of(width, TOKENS // tokens, tokens, causal, ())
        packed = case_of(width, 1, TOKENS, causal, lengths)
        for which, kind in enumerate(("forward", "backward")):
            times, kept = compare((plain[which], packed[which]), given.rounds)  # type: ignore[arg-type]
            rates = [
                flop * (2.5 if which else 1.0) / ms / 1e9
                for flop, ms in zip((plain[2], packed[2]), times, strict=True)
            ]
            row = {"op": "attention", "pass": kind, "head_dim": width, "lengths": name,
                   "mask": "causal" if causal else "full", "plain_tflops": round(rates[0]),
                   "packed_tflops": round(rates[1]), "ratio": round(rates[1] / rates[0], 3),
                   "rounds": kept}  # fmt: skip
            lines.append(json.dumps(row))
            print(lines[-1], flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
