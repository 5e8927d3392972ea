"""What a kernel takes, out of its cubin and what ptxas says of it."""

from __future__ import annotations

import re
from typing import Any

from rooftile.compile.elf import sections
from rooftile.compile.sass import read_sass

_USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")
_THREADS = re.compile(r"^\.reqntid (\d+)(?:, (\d+))?(?:, (\d+))?", re.MULTILINE)


def read_nvidia(cubin: bytes, ptx: str, log: str, capability: int) -> dict[str, Any]:
    """The fields of KernelResources that binary and log hold.

    Args:
        cubin: The ELF file, of one kernel.
        ptx: The text it was assembled from, which has the block's threads.
        log: What ``ptxas -v`` printed.
        capability: Compute capability times ten.

    Raises:
        ValueError: One of them is not what it should be.
    """
    parts = sections(cubin)
    names = [name.removeprefix(".text.") for name in parts if name.startswith(".text.")]
    used, stack, threads = _USED.findall(log), _STACK.findall(log), _THREADS.search(ptx)
    if len(names) != 1 or not used or not stack or threads is None:
        raise ValueError(
            f"a cubin of one kernel with the log of ptxas -v is wanted, got kernels {names} and"
            f" the log {log!r}"
        )
    code = read_sass(parts[f".text.{names[0]}"], capability)
    registers, barriers = used[-1]
    shared = _SHARED.findall(log)
    frame, stores, loads = (int(number) for number in stack[-1])
    block = 1
    for extent in threads.groups(default="1"):
        block *= int(extent)
    return {
        "threads": block,
        "registers": int(registers),
        "accumulation_registers": 0,
        "scalar_registers": None,
        "stack_bytes": frame,
        "spill_store_bytes": stores,
        "spill_load_bytes": loads,
        # from 9.0 on the section .nv.shared also holds the driver's part; the log leaves it out
        "static_shared_bytes": int(shared[-1]) if shared else 0,
        "barriers": int(barriers or 0),
        "accesses": code.accesses(),
        "load_burst_bytes": code.burst_bytes,
        "tensor_core": code.tensor_core,
        "loops": len(code.loops()),
        "code_bytes": code.code_bytes,
    }
