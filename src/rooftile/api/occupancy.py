"""Occupancy of a launch, of a compiled kernel, and of many: ``rooftile.occupancy(...)``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rooftile.errors import InputError

if TYPE_CHECKING:
    from rooftile.records.device import Device
    from rooftile.records.occupancy import Occupancy, SimpleOccupancy
    from rooftile.records.resources import Constant, KernelResources, Sweep

# The GPU whose bandwidth a sweep takes where none is named: the common one of its target
GPU_OF_TARGET = {
    "sm_80": "a100-sxm-80gb",
    "sm_86": "rtx-3090",
    "sm_87": "jetson-agx-orin-64gb",
    "sm_89": "rtx-4090",
    "sm_90": "h100-sxm",
    "sm_100": "b200",
    "sm_103": "b300",
    "sm_110": "jetson-t5000",
    "sm_120": "rtx-5090",
    "sm_121": "gb10",
    "gfx90a": "mi210",
    "gfx942": "mi300x",
    "gfx950": "mi355x",
    "gfx1100": "rx-7900-xtx",
}


def occupancy(
    *,
    target: str,
    threads: int | None = None,
    registers: int = 0,
    shared_bytes: int = 0,
    static_shared_bytes: int = 0,
    barriers: int = 1,
    accumulation_registers: int = 0,
    scalar_registers: int | None = None,
    opt_in: bool = True,
    kernel: KernelResources | None = None,
) -> Occupancy:
    """Resident blocks and warps of a launch, by the rules of the hardware.

    ``rooftile.occupancy(target="sm_90", threads=256, registers=40, shared_bytes=8192)`` is 6 blocks
    of 8 warps, 75 %, bound by registers; with 8 registers fewer it would be 100 %.

    Args:
        target: ``"sm_70"`` to ``"sm_121"``, ``"gfx90a"`` to ``"gfx1100"``.
        threads: Of a block; left out where ``kernel`` is given.
        registers: Of a thread; on AMD architectural vector registers.
        shared_bytes: Shared memory asked for by the launch [B].
        static_shared_bytes: Shared memory in the binary [B].
        barriers: Named barriers of a block.
        accumulation_registers: AMD's second kind of vector register.
        scalar_registers: Of a wave, AMD; None: they do not limit.
        opt_in: The launch opts in to more than 48 KiB of shared memory where it needs it.
        kernel: A compiled kernel, whose numbers are then taken.

    Returns:
        Blocks, warps, every limit, what binds, and the nearest cliffs.

    Raises:
        InputError: A number is out of range, or the target is not known.
    """
    from rooftile.plan.occupancy import kernel_occupancy
    from rooftile.plan.occupancy import occupancy as reckon

    if kernel is not None:
        return kernel_occupancy(target, kernel)
    if threads is None:
        raise InputError("threads must be given: the threads of a block, 1 to 1024")
    return reckon(
        target,
        threads=threads,
        registers=registers,
        static_shared=static_shared_bytes,
        dynamic_shared=shared_bytes,
        barriers=barriers,
        agprs=accumulation_registers,
        sgprs=scalar_registers,
        opt_in=opt_in,
    )


def simple_occupancy(
    *, target: str, threads: int, registers: int = 0, shared_bytes: int = 0
) -> SimpleOccupancy:
    """Occupancy by the textbook's formula, with what it leaves out: for teaching.

    Args:
        target: As for ``rooftile.occupancy``.
        threads: Of a block.
        registers: Of a thread.
        shared_bytes: Shared memory of a block [B].

    Raises:
        InputError: A number is out of range, or the target is not known.
    """
    from rooftile.plan.simple_occupancy import simple_occupancy as reckon

    return reckon(target, threads=threads, registers=registers, shared=shared_bytes)


def compile_kernel(
    kernel: Any,
    target: str = "sm_90",
    *,
    signature: str | None = None,
    call: str = "example",
    cache: bool = True,
    **config: Any,
) -> KernelResources:
    """Compile a Triton or Gluon kernel for a target, without a GPU, and read its binary.

    ``rooftile.compile_kernel("kernels.py:softmax_kernel", "sm_90", BLOCK=4096, num_warps=8)``

    Args:
        kernel: ``"file.py:name"``, ``"package.module:name"``, or the kernel itself if it stands at
            the top of a file.
        target: ``"sm_80"`` to ``"sm_121"``, ``"gfx90a"`` to ``"gfx1100"``.
        signature: Types of the run-time arguments, ``"*bf16:16, *bf16:16, i32"``; None: they are
            taken from ``call``.
        call: A function beside the kernel, without arguments, that launches it.
        cache: Read and write the cache on disk.
        **config: The kernel's constants and the compiler's options (``num_warps``, ...).

    Returns:
        Registers, spills, shared memory, accesses, code size.

    Raises:
        InputError: The kernel does not compile, with Triton's message at the user's line, or an
            argument is wrong.
        MissingDependencyError: Triton is not installed.
    """
    from rooftile.compile.run import compile_all

    (outcome,) = compile_all(
        kernel_target(kernel), [target], [config], signature=signature, call=call, cache=cache
    )
    if isinstance(outcome, str):
        raise InputError(outcome)
    return outcome


def sweep_kernel(
    kernel: Any,
    targets: Sequence[str] = ("sm_90",),
    *,
    values: Mapping[str, Sequence[Constant]],
    constants: Mapping[str, Constant] | None = None,
    signature: str | None = None,
    call: str = "example",
    gpu: str | Device | None = None,
    floor: float | None = None,
    latency_s: float | None = None,
    cores: int | None = None,
    cache: bool = True,
    progress: Callable[[str], None] | None = None,
) -> tuple[Sweep, ...]:
    """Compile a kernel in every combination of values and say which to take.

    Args:
        kernel: As for ``rooftile.compile_kernel``.
        targets: Architectures; each gets a sweep of its own.
        values: Constant or compiler option to the values to try.
        constants: Constants and options that stay as they are.
        signature: As for ``rooftile.compile_kernel``.
        call: Likewise.
        gpu: Whose bandwidth sets the bytes in flight that are needed; None: a common GPU of each
            target.
        floor: Least occupancy of a pick, 0 to 1; None: 0.5, or 0 for a kernel with tensor-core
            instructions.
        latency_s: Latency of a load under load [s]; None: 1.3 us.
        cores: Compiles at once; None: one a core.
        cache: Read and write the cache on disk.
        progress: Told what is being done.

    Returns:
        One Sweep a target: a row a configuration, the pick and why.

    Raises:
        InputError: No such kernel, target, name or GPU. A configuration that does not compile is
            no error: its row says why.
        MissingDependencyError: Triton is not installed.
    """
    from rooftile.api.device import choose_device
    from rooftile.compile.run import compile_all
    from rooftile.compile.targets import target_of
    from rooftile.plan import sweep as plan

    names = [target_of(target).name for target in targets]
    devices = [choose_device(gpu, default=GPU_OF_TARGET.get(name)) for name in names]
    latency = plan.LATENCY_S if latency_s is None else latency_s
    plan.check_sweep(devices, floor=floor, latency_s=latency)
    configs = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
    where = kernel_target(kernel)
    outcomes = compile_all(
        where,
        names,
        [{**(constants or {}), **config} for config in configs],
        signature=signature,
        call=call,
        cores=cores,
        cache=cache,
        progress=progress,
    )
    size = len(configs)
    shares = [outcomes[at : at + size] for at in range(0, len(outcomes), size)]
    return tuple(
        plan.sweep(
            where.rpartition(":")[2], name, device, configs, share, floor=floor, latency_s=latency
        )
        for name, device, share in zip(names, devices, shares, strict=True)
    )


def kernel_target(kernel: Any) -> str:
    """``file.py:name`` of a kernel: text as it is, a function by where its code stands."""
    if isinstance(kernel, str):
        return kernel
    function = kernel
    while not hasattr(function, "__code__") and hasattr(function, "fn"):
        function = function.fn
    code = getattr(function, "__code__", None)
    if code is None or "<" in function.__qualname__ or not code.co_filename.endswith(".py"):
        raise InputError(
            "kernel must be file.py:name, or a function under @triton.jit at the top of a file, got"
            f" {kernel!r}"
        )
    return f"{code.co_filename}:{function.__qualname__}"
