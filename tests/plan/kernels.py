"""Compiled kernels as records, without compiling any."""

from __future__ import annotations

from dataclasses import replace

from rooftile.records.resources import KernelResources, MemoryAccess

SOFTMAX = KernelResources(
    kernel="softmax_kernel",
    target="sm_90",
    compiler="triton 3.9.0",
    signature={"y_ptr": "*bf16:16", "x_ptr": "*bf16:16", "n_cols": "i32:16"},
    constants={"BLOCK": 4096},
    options={"num_warps": 8},
    threads=256,
    warp_size=32,
    registers=30,
    accumulation_registers=0,
    scalar_registers=None,
    stack_bytes=0,
    spill_store_bytes=0,
    spill_load_bytes=0,
    static_shared_bytes=0,
    dynamic_shared_bytes=32,
    barriers=1,
    accesses=(MemoryAccess("load", 16, 2), MemoryAccess("store", 16, 2)),
    load_burst_bytes=32,
    tensor_core={},
    loops=0,
    code_bytes=4992,
    compile_s=0.2,
)


def with_load(width: int, count: int, **changes: object) -> KernelResources:
    """The softmax with other loads and whatever else is changed."""
    loads = (MemoryAccess("load", width, count), MemoryAccess("store", width, count))
    changed = {"accesses": loads, "load_burst_bytes": width * count, **changes}
    return replace(SOFTMAX, **changed)  # type: ignore[arg-type]
