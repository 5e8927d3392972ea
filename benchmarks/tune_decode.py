"""Times launch parameters of the decode beside cuDNN: ``python benchmarks/tune_decode.py``.

Each call is captured into a CUDA graph of nine, over three caches in turn where one would lie in
L2; a graph's time is the median of as many as a budget allows. Prints GB/s of keys and values.
Needs an NVIDIA GPU, torch and Triton.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from rooftile.ops.attention import attention, attention_ref
from rooftile.plan.launch_attention import override_attention

HEADS, KV_HEADS, WIDTH = 32, 8, 128
SHAPES = ((1, 16_384), (32, 4096), (128, 1024))
_CALLS = 9
_IN_L2 = 200e6  # bytes of keys and values below which a cache is not cold the next time
_LEAST, _BUDGET_MS = 7, 60.0


def caches_of(batch: int, keys: int) -> list[tuple[torch.Tensor, ...]]:
    """Queries, keys and values, three times where they are small."""
    bytes_ = 4 * batch * KV_HEADS * keys * WIDTH
    many = 3 if bytes_ < _IN_L2 else 1
    shapes = (
        (batch, HEADS, 1, WIDTH),
        (batch, KV_HEADS, keys, WIDTH),
        (batch, KV_HEADS, keys, WIDTH),
    )
    return [
        tuple(torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in shapes)
        for _ in range(many)
    ]


def graph_of(function: Any, caches: list[tuple[torch.Tensor, ...]]) -> torch.cuda.CUDAGraph:
    """Nine calls, one after the other."""
    for cache in caches:
        function(*cache)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for cache in itertools.islice(itertools.cycle(caches), _CALLS):
            function(*cache)
    return graph


def seconds(graph: torch.cuda.CUDAGraph) -> float:
    """Of one call, the median."""
    times, spent = [], 0.0
    for _ in range(3):
        graph.replay()
    while len(times) < _LEAST or spent < _BUDGET_MS:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
        spent += times[-1]
    return median(times) / _CALLS / 1e3


def cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Torch's backend, which shares the heads of keys."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def ours(splits: int, **tile: int) -> Any:
    """A call with these launch parameters."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        with override_attention("attention_decode", **tile):
            return attention(q, k, v, num_splits=splits)

    return call


def variants(options: argparse.Namespace) -> list[tuple[int, dict[str, int]]]:
    """Every combination of what is asked for."""
    return [
        (splits, {"block_n": n, "num_warps": warps, "num_stages": stages})
        for n, warps, stages, splits in itertools.product(
            options.keys, options.warps, options.stages, options.splits
        )
    ]


def run(shape: tuple[int, int], options: argparse.Namespace) -> None:
    """One shape: cuDNN, a copy, every variant, cuDNN again."""
    batch, keys = shape
    torch.manual_seed(0)
    caches = caches_of(batch, keys)
    moved = 2 * caches[0][1].numel() * 2
    q, k, v = (t[:1].double() for t in caches[0])
    right = attention_ref(q, k, v)[0]
    source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
    target = [torch.empty_like(source) for _ in caches]
    best = {"copy": lambda: [target[i % len(target)].copy_(source) for i in range(_CALLS)]}
    report(shape, "copy", moved, timed(best["copy"]))
    report(shape, "cudnn", moved, seconds(graph_of(cudnn, caches)))
    for splits, tile in variants(options):
        name = f"{splits} parts, {tile}"
        try:
            function = ours(splits, **tile)
            error = float((function(*caches[0])[:1].double() - right).abs().max())
            if not error < 5e-3:
                print(f"{shape} {name}: wrong by {error}", flush=True)
                continue
            report(shape, name, moved, seconds(graph_of(function, caches)))
        except Exception as fault:  # a tile that does not fit: the others go on
            print(f"{shape} {name}: {type(fault).__name__} {str(fault)[:120]}", flush=True)
    report(shape, "cudnn", moved, seconds(graph_of(cudnn, caches)))


def timed(calls: Any) -> float:
    """Of one of nine calls in a row."""
    graph = torch.cuda.CUDAGraph()
    calls()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        calls()
    return seconds(graph)


def report(shape: tuple[int, int], name: str, moved: int, took_s: float) -> None:
    """One line, and one record."""
    rate = moved / took_s / 1e9
    print(f"{shape[0]}x{shape[1]} {took_s * 1e6:7.2f} us {rate:6.0f} GB/s  {name}", flush=True)
    record = {"shape": shape, "name": name, "us": took_s * 1e6, "gb_per_s": rate}
    with open(Path(os.environ.get("OUT", ".")) / "decode.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def main(words: list[str]) -> None:
    """Read what is asked for, and run it."""

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(",")))

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", default=",".join(f"{b}x{s}" for b, s in SHAPES))
    parser.add_argument("--keys", type=numbers, default=(64,))
    parser.add_argument("--warps", type=numbers, default=(4,))
    parser.add_argument("--stages", type=numbers, default=(3, 4))
    parser.add_argument("--splits", type=numbers, default=(0,))
    options = parser.parse_args(words)
    for text in options.shapes.split(","):
        batch, keys = map(int, text.split("x"))
        run((batch, keys), options)


if __name__ == "__main__":
    main(sys.argv[1:])
