"""Compares registers, spills, shared memory and resident blocks with what a GPU's driver says.

``python benchmarks/driver_occupancy.py make FOLDER`` compiles 20 kernels for sm_90 on any machine
with Triton; ``python benchmarks/driver_occupancy.py check FOLDER`` loads them through the CUDA
driver alone on one with a Hopper GPU and prints both numbers. Exit code 1 where they differ.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROWS = "*bf16:16, *bf16:16, i64:16, i64:16, i32:16"
HALF = "*fp16:16, *fp16:16, *fp16:16, i32:16, i32:16, i32:16, i32:16"
KERNELS = [
    *(("softmax_kernel", ROWS, {"BLOCK": block, "num_warps": warps})
      for block, warps in ((256, 2), (1024, 4), (1024, 16), (4096, 4), (4096, 8), (4096, 32),
                           (16384, 8), (16384, 16), (32768, 4), (32768, 16))),
    ("softmax_kernel", "*bf16, *bf16, i64, i64, i32", {"BLOCK": 2048, "num_warps": 8}),
    *(("two_pass_kernel", ROWS, {"BLOCK": block, "num_warps": 4}) for block in (512, 2048, 8192)),
    *(("matmul_kernel", HALF, {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "num_warps": warps,
                               "num_stages": stages})
      for m, n, warps, stages in ((64, 64, 4, 2), (64, 128, 4, 3), (128, 128, 4, 3),
                                  (128, 128, 8, 4), (128, 256, 8, 4))),
    ("add_kernel", "*fp32:16, *fp32:16, i32:16", {"BLOCK": 1024, "num_warps": 4}),
]  # fmt: skip

# CUfunction_attribute
_SHARED, _LOCAL, _REGISTERS, _MAX_DYNAMIC, _CARVEOUT = 1, 3, 4, 8, 9


def make(folder: Path) -> None:
    """One cubin a kernel, and our numbers of all in ``expected.json``."""
    import dataclasses

    import rooftile
    from rooftile.compile.build import compiled_kernel, plan_build
    from rooftile.compile.kernel import load_kernel
    from rooftile.compile.signature import called_by_signature
    from rooftile.compile.targets import target_of

    source = ROOT / "tests" / "compile" / "kernels.py"
    folder.mkdir(parents=True, exist_ok=True)
    expected = []
    for number, (name, signature, config) in enumerate(KERNELS):
        read = rooftile.compile_kernel(f"{source}:{name}", "sm_90", signature=signature, **config)
        kernel = load_kernel(f"{source}:{name}")
        call = called_by_signature(kernel, signature)
        build = plan_build(kernel, target_of("sm_90"), call, config)
        (folder / f"{number}.cubin").write_bytes(compiled_kernel(build).asm["cubin"])
        found = rooftile.occupancy(target="sm_90", kernel=read)
        expected.append({"resources": dataclasses.asdict(read), "blocks": found.blocks})
    (folder / "expected.json").write_text(json.dumps(expected))


def check(folder: Path) -> int:
    """Print a line a kernel; returns how many differ."""
    cuda = ctypes.CDLL("libcuda.so.1")
    _do(cuda.cuInit(0))
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _do(cuda.cuDeviceGet(ctypes.byref(device), 0))
    _do(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _do(cuda.cuCtxSetCurrent(context))
    name, version = ctypes.create_string_buffer(100), ctypes.c_int()
    _do(cuda.cuDeviceGetName(name, 100, device))
    _do(cuda.cuDriverGetVersion(ctypes.byref(version)))
    print(f"{name.value.decode()}, CUDA driver {version.value}")
    wrong = 0
    for number, ours in enumerate(json.loads((folder / "expected.json").read_text())):
        theirs = _driver(cuda, (folder / f"{number}.cubin").read_bytes(), ours["resources"])
        mine = {
            "registers": ours["resources"]["registers"],
            "stack": ours["resources"]["stack_bytes"],
            "static shared": ours["resources"]["static_shared_bytes"],
            "blocks": ours["blocks"],
        }
        same = mine == theirs
        wrong += not same
        print(ours["resources"]["kernel"], mine, "equal" if same else f"driver: {theirs}")
    print(f"{len(KERNELS) - wrong} of {len(KERNELS)} equal")
    return wrong


def _driver(cuda: Any, cubin: bytes, ours: dict[str, Any]) -> dict[str, int]:
    """What the driver says of one kernel."""
    module, function, value = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    _do(cuda.cuModuleLoadData(ctypes.byref(module), cubin))
    _do(cuda.cuModuleGetFunction(ctypes.byref(function), module, ours["kernel"].encode()))

    def attribute(which: int) -> int:
        _do(cuda.cuFuncGetAttribute(ctypes.byref(value), which, function))
        return value.value

    dynamic = ours["dynamic_shared_bytes"]
    _do(cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC, dynamic))
    _do(cuda.cuFuncSetAttribute(function, _CARVEOUT, 100))
    _do(
        cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(value), function, ours["threads"], ctypes.c_size_t(dynamic)
        )
    )
    blocks = value.value
    return {
        "registers": attribute(_REGISTERS),
        "stack": attribute(_LOCAL),
        "static shared": attribute(_SHARED),
        "blocks": blocks,
    }


def _do(status: int) -> None:
    """A driver call that must not fail."""
    if status:
        raise RuntimeError(f"the CUDA driver returned {status}")


if __name__ == "__main__":
    verb, where = sys.argv[1:]
    if verb == "make":
        make(Path(where))
    else:
        sys.exit(bool(check(Path(where))))
