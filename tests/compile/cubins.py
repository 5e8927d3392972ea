"""Writes cubins of the test kernels for some targets: run as a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

KERNELS = {
    "softmax": ("softmax_kernel", "*bf16:16,*bf16:16,i64:16,i64:16,i32:16", {"BLOCK": 4096}),
    "narrow": ("softmax_kernel", "*bf16,*bf16,i64,i64,i32", {"BLOCK": 1024}),
    "spill": ("softmax_kernel", "*bf16:16,*bf16:16,i64:16,i64:16,i32:16",
              {"BLOCK": 8192, "maxnreg": 32}),
    "loops": ("two_pass_kernel", "*fp32:16,*fp32:16,i64:16,i64:16,i32:16", {"BLOCK": 1024}),
    "matmul": ("matmul_kernel", "*fp16:16,*fp16:16,*fp16:16,i32:16,i32:16,i32:16,i32:16",
               {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_stages": 3}),
    "tf32": ("matmul_kernel", "*fp32:16,*fp32:16,*fp32:16,i32:16,i32:16,i32:16,i32:16",
             {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_stages": 3}),
    "atomics64": ("atomics_kernel", "*i64:16,*i64:16", {"BLOCK": 512}),
    "descriptors": ("descriptor_kernel", "*fp16:16,*fp16:16,i32:16,i32:16",
                    {"BLOCK_M": 64, "BLOCK_N": 64}),
    "atomics": ("add_kernel", "*fp32:16,*fp32:16,i32:16", {"BLOCK": 1024}),
}  # fmt: skip


def main(folder: str, *targets: str) -> None:
    """One file a kernel and target: ``softmax.sm_90.cubin``."""
    from rooftile.compile.build import compiled_kernel, plan_build
    from rooftile.compile.kernel import load_kernel
    from rooftile.compile.signature import called_by_signature
    from rooftile.compile.targets import target_of

    here = Path(__file__).with_name("kernels.py")
    for name, (kernel_name, signature, config) in KERNELS.items():
        kernel = load_kernel(f"{here}:{kernel_name}")
        for target in map(target_of, targets):
            build = plan_build(kernel, target, called_by_signature(kernel, signature), config)
            Path(folder, f"{name}.{target.name}.cubin").write_bytes(
                compiled_kernel(build).asm["cubin"]
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
