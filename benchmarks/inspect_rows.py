"""Compile the row kernels as they would be launched on a GPU, without one, and read the binary.

    python benchmarks/inspect_rows.py [--arch 90] [op ...]

One line a kernel: registers, spilled bytes, shared memory, and accesses to global memory by width.
A spill, or a narrow access where the shape allows 16 bytes, is what to look for before any time on
a GPU is spent.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

from rooftile.ops import _launch
from rooftile.ops.rows import norm, norm_backward, resident, softmax
from rooftile.plan.launch import override

_BIN = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16",
          torch.int64: "*i64", torch.int32: "*i32"}  # fmt: skip
_ACCESS = re.compile(
    r"^\s+(?:/\*\w+\*/)?\s*(?:@!?U?P\w+\s+)?(LDGSTS|LDG|STG|LDL|STL)([\w.]*)", re.M
)
_WIDTH = re.compile(r"\.(128|64|U16|S16|U8)\b")


def source(kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> tuple[ASTSource, dict]:
    """The kernel with the types and hints that its launch would give it."""
    names = kernel.arg_names
    values = dict(zip(names, args, strict=False))
    options = {k: v for k, v in meta.items() if k not in names}
    values.update({k: v for k, v in meta.items() if k in names})
    signature, constants, attrs = {}, {}, {}
    for i, name in enumerate(names):
        value = values[name]
        if isinstance(value, Tensor):
            signature[name] = _TYPES[value.dtype]
            if value.data_ptr() % 16 == 0:
                attrs[(i,)] = [["tt.divisibility", 16]]
        elif kernel.params[i].is_constexpr or value is None or value is True or value is False:
            signature[name], constants[(i,)] = "constexpr", value
        elif isinstance(value, float):
            signature[name] = "fp32"
        elif value == 1:
            signature[name], constants[(i,)] = "constexpr", 1
        else:
            signature[name] = "i64" if abs(value) >= 2**31 else "i32"
            if value % 16 == 0:
                attrs[(i,)] = [["tt.divisibility", 16]]
    kind = GluonASTSource if kernel.is_gluon() else ASTSource
    return kind(kernel, signature, constants, attrs), options


def read_cubin(cubin: bytes) -> dict[str, Any]:
    """Registers, stack and the widths of global accesses, out of the machine code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = subprocess.run(
            [_BIN / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True
        )
        code = subprocess.run([_BIN / "nvdisasm", "-c", file.name], capture_output=True, text=True)
    text = usage.stdout + usage.stderr
    found = {k: int(v) for k, v in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", text)}
    accesses: Counter[str] = Counter()
    for name, suffix in _ACCESS.findall(code.stdout):
        width = _WIDTH.search(suffix)
        accesses[f"{name}.{width.group(1) if width else '32'}"] += 1
    return {**found, "access": dict(sorted(accesses.items())), "text": code.stdout}


def record(run: Callable[[], Any]) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """The launches that a call makes, none of them carried out."""
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def launch(kernel: Any, grid: Any, device: Any, *args: Any, **meta: Any) -> None:
        calls.append((kernel, args, meta))

    modules = (norm, norm_backward, softmax)
    before = [m.launch for m in modules]
    for m in modules:
        m.launch = launch
    try:
        run()
    finally:
        for m, original in zip(modules, before, strict=True):
            m.launch = original
    return iter(calls)


def calls(op: str, n_cols: int, dtype: torch.dtype) -> Callable[[], Any]:
    """One call of an op's launcher on two rows... of which nothing is read."""
    x = torch.empty(64, n_cols, dtype=dtype)
    w = torch.empty(n_cols, dtype=dtype)
    stats = torch.empty(64)
    table: dict[str, Callable[[], Any]] = {
        "softmax_fwd": lambda: softmax._softmax_fwd(x, 1, False, None),
        "softmax_bwd": lambda: softmax._softmax_bwd(x, x, 1, False, None),
        "rms_norm_fwd": lambda: norm.norm_forward(
            x, None, w, None, norm.Norm(1, 1e-6, False), None, x, norm.Statistics(None, stats)
        ),
        "layer_norm_fwd": lambda: norm.norm_forward(
            x, None, w, w, norm.Norm(1, 1e-6, True), None, x, norm.Statistics(stats, stats)
        ),
        "rms_norm_bwd": lambda: norm_backward.norm_backward(
            x, None, x, w, norm.Statistics(None, stats), norm.Norm(1, 1e-6, False),
            norm_backward.Wanted(x, w, None),
        ),
        "layer_norm_bwd": lambda: norm_backward.norm_backward(
            x, None, x, w, norm.Statistics(stats, stats), norm.Norm(1, 1e-6, True),
            norm_backward.Wanted(x, w, w),
        ),
    }  # fmt: skip
    return table[op]


OPS = ("softmax_fwd", "softmax_bwd", "rms_norm_fwd", "layer_norm_fwd", "rms_norm_bwd",
       "layer_norm_bwd")  # fmt: skip
COLS = (256, 512, 1000, 1024, 4096, 5120, 8192, 12345, 16384, 32768, 50257, 65536)


def main() -> None:
    """Print one line a launch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", default=OPS, metavar="op")
    parser.add_argument("--arch", type=int, default=90)
    parser.add_argument("--cols", type=int, nargs="*", default=COLS)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--set", nargs="*", default=[], help="FAMILY:name=JSON")
    args = parser.parse_args()
    resident.clusters_at_once = lambda cluster, device: 128 // cluster
    for module in (_launch, norm, norm_backward, resident, softmax):  # an H200 in name
        module.may_stay = lambda device: True
        module.is_nvidia = lambda device: True
        module.max_cluster = lambda device: 16 if args.arch in (90, 100) else 8 * (args.arch > 90)
        module.sm_count = lambda device: 132
    target = GPUTarget("cuda", args.arch, 32)
    print(f"triton {triton.__version__}, sm_{args.arch}, {args.dtype}")
    for op in args.ops:
        for n_cols in args.cols:
            inspect(op, n_cols, getattr(torch, args.dtype), target, args.set)


def inspect(op: str, n_cols: int, dtype: torch.dtype, target: GPUTarget, sets: list[str]) -> None:
    """Compile what one call launches."""
    values: dict[str, dict[str, Any]] = {}
    for item in sets:
        family, _, pair = item.partition(":")
        key, _, value = pair.partition("=")
        values.setdefault(family, {})[key] = json.loads(value)
    managers = [override(family, **v) for family, v in values.items()]
    for manager in managers:
        manager.__enter__()
    for kernel, args, meta in record(calls(op, n_cols, dtype)):
        if kernel.__name__ == "column_sum_kernel" and n_cols != 1024:
            continue
        src, options = source(kernel, args, meta)
        compiled = triton.compile(src, target=target, options=options)
        found = read_cubin(compiled.asm["cubin"])
        shape = " ".join(f"{k}={meta[k]}" for k in ("ROWS", "BLOCK_N", "VEC") if k in meta)
        flags = "".join(k[0] for k in ("SHIFT", "EDGE", "PACKED") if meta.get(k))
        print(
            f"{op:15} {n_cols:7} {kernel.__name__:24} {shape} {flags} w={options['num_warps']} "
            f"reg={found.get('REG')} stack={found.get('STACK')} smem={compiled.metadata.shared} "
            f"{found['access']}",
            flush=True,
        )
    for manager in managers:
        manager.__exit__(None, None, None)


if __name__ == "__main__":
    main()
