"""A kernel's binary with all that a launch from outside Python must know of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rooftile.compile.build import Build, compile_and_read, prepare
from rooftile.compile.forked import run_forked
from rooftile.records.resources import KernelResources


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel.

    Attributes:
        files: Contents by kind: ``cubin`` and ``ptx``, or ``hsaco``.
        resources: What it takes.
        num_warps: Of a block, those that warp specialisation adds included.
        num_ctas: Blocks of a cluster.
        scratch: Bytes a block and alignment of the memory for descriptors.
        profile_scratch: The same for instrumentation.
        cooperative: It needs a cooperative launch.
        dependent_launch: It needs programmatic dependent launch.
        assembler: Version of ptxas: ``"12.8"``; "" for AMD.
    """

    files: dict[str, bytes]
    resources: KernelResources
    num_warps: int
    num_ctas: int
    scratch: tuple[int, int]
    profile_scratch: tuple[int, int]
    cooperative: bool
    dependent_launch: bool
    assembler: str


def compile_binaries(
    builds: Sequence[tuple[Build, str]],
    *,
    cores: int,
    timeout_s: float,
    progress: Callable[[str], None] | None = None,
) -> list[Binary | str]:
    """Compile kernels under names of their own, in processes of their own.

    Line numbers are left out: they hold the source's path, and the bytes would depend on it.

    Args:
        builds: Each with the name that its entry gets.
        cores: Compiles at once.
        timeout_s: A compile that takes longer is given up [s].
        progress: Told what is being done.

    Returns:
        For each the binary, or why there is none.
    """
    from triton.runtime import cache

    key = getattr(cache, "triton_key", None)
    outcomes: list[Binary | str] = ["no answer"] * len(builds)
    try:
        gluon = any(build.kernel.is_gluon() for build, _ in builds)
        prepare((build.target for build, _ in builds), gluon=gluon)
        works = [partial(_work, build, symbol) for build, symbol in builds]
        for done, (index, outcome) in enumerate(run_forked(works, cores, timeout_s), start=1):
            outcomes[index] = outcome if isinstance(outcome, str) else pickle.loads(outcome)
            if progress:
                progress(f"compiled {done} of {len(builds)}")
    finally:
        if key is not None:
            cache.triton_key = key
    return outcomes


def _work(build: Build, symbol: str) -> bytes:
    """Compile in a forked process: what is changed here, no one else sees."""
    from triton import knobs

    knobs.compilation.disable_line_info = True
    build.kernel._repr = lambda _: symbol
    compiled, resources = compile_and_read(build)
    return pickle.dumps(_binary(build, compiled, resources))


def _binary(build: Build, compiled: Any, resources: KernelResources) -> Binary:
    metadata = compiled.metadata
    nvidia = build.target.backend == "cuda"
    kinds = ("cubin", "ptx") if nvidia else ("hsaco",)
    contents = {kind: compiled.asm[kind] for kind in kinds}
    return Binary(
        files={k: c.encode() if isinstance(c, str) else c for k, c in contents.items()},
        resources=resources,
        num_warps=metadata.num_warps,
        num_ctas=metadata.num_ctas,
        scratch=_memory(metadata, "global_scratch"),
        profile_scratch=_memory(metadata, "profile_scratch"),
        cooperative=bool(getattr(metadata, "launch_cooperative_grid", False)),
        dependent_launch=bool(getattr(metadata, "launch_pdl", False)),
        assembler=_assembler(int(build.target.arch)) if nvidia else "",
    )


def _memory(metadata: Any, name: str) -> tuple[int, int]:
    """Bytes a block and alignment; Triton before 3.5 knows no profile scratch."""
    return getattr(metadata, f"{name}_size", 0), getattr(metadata, f"{name}_align", 1)


def _assembler(arch: int) -> str:
    """Version of the ptxas that Triton takes for an architecture."""
    from triton.backends.nvidia.compiler import get_ptxas

    return str(get_ptxas(arch).version)
