"""The attention kernels for GPUs that are not here: what is planned compiles, and fits."""

from __future__ import annotations

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from rooftile.ops.flash.bwd_kernels import attention_dkdv_kernel, attention_dq_kernel
from rooftile.ops.flash.decode import MERGED_PARTS, merged_rows
from rooftile.ops.flash.decode_kernels import attention_decode_kernel
from rooftile.ops.flash.fwd_kernel import attention_fwd_kernel
from rooftile.plan.launch import power_of_two
from rooftile.plan.launch_attention import attention_launch

KERNELS = {
    "attention_fwd": attention_fwd_kernel,
    "attention_dkdv": attention_dkdv_kernel,
    "attention_dq": attention_dq_kernel,
    "attention_decode": attention_decode_kernel,
}
# target -> most shared memory of a block [B]: CUDA programming guide, compute capabilities; LDS
SHARED = {
    "sm_80": 166_912,
    "sm_86": 101_376,
    "sm_90": 232_448,
    "sm_100": 232_448,
    "sm_120": 101_376,
    "gfx942": 65_536,
}
TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32"}
STATISTICS = ("lse_ptr", "delta_ptr", "parts_ptr", "part_sums_ptr")
INTEGERS = ("k_lens_ptr", "table_ptr", "arrived_ptr")
OPTIONAL = ("mask_ptr", "slopes_ptr", "sinks_ptr", "cu_q_ptr", "cu_k_ptr", "seed_ptr")


def source(family, dtype, width, arch):
    """A causal call of contiguous operands, as its launch would have it compiled."""
    kernel = KERNELS[family]
    plan = attention_launch(family, width, dtype.itemsize, arch)
    constants = {
        "HEAD_DIM": width, "V_DIM": width, "BLOCK_M": plan.block_m, "BLOCK_N": plan.block_n,
        "BLOCK_D": power_of_two(width), "BLOCK_DV": power_of_two(width), "CAP": False, "MASK": "",
        "PLAIN": True, "LEFT": False, "RIGHT": True, "BOTTOM_RIGHT": True, "EVEN_K": True,
        "EVEN_Q": True, "WIDE": False, "PRECISION": "ieee",
        "MERGED_ROWS": merged_rows(plan, width), "MERGED_PARTS": MERGED_PARTS,
    }  # fmt: skip
    signature, values, hints = {}, {}, {}
    for i, param in enumerate(kernel.params):
        name = param.name
        if param.is_constexpr or name in OPTIONAL:
            signature[name], values[(i,)] = "constexpr", constants.get(name)
        elif name.endswith("d") and name.startswith("stride"):
            signature[name], values[(i,)] = "constexpr", 1
        elif name in INTEGERS:
            signature[name] = "*i32"
        elif name.endswith("_ptr"):
            signature[name] = "*fp32" if name in STATISTICS else TYPES[dtype]
            hints[(i,)] = [["tt.divisibility", 16]]
        elif name in ("scale", "softcap", "keep_scale"):
            signature[name] = "fp32"
        else:
            signature[name] = "i32"
            if name.startswith("stride"):
                hints[(i,)] = [["tt.divisibility", 16]]
    options = {"num_warps": plan.num_warps, "num_stages": plan.num_stages}
    return ASTSource(kernel, signature, values, hints), options


def target(arch):
    """The compiler's name for a target."""
    if arch.startswith("gfx"):
        return GPUTarget("hip", arch, 64)
    return GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("arch", SHARED)
@pytest.mark.parametrize("family", KERNELS)
def test_what_is_planned_compiles_and_fits(family, arch, width, dtype):
    """Every planned tile fits the shared memory of its GPU."""
    found, options = source(family, dtype, width, arch)
    binary = compile(found, target=target(arch), options=options)
    assert 0 < binary.metadata.shared <= SHARED[arch]


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_the_forward_compiles(arch):
    """Head dim 128 on Hopper, by wgmma, and on CDNA 3, by MFMA."""
    found, options = source("attention_fwd", torch.bfloat16, 128, arch)
    binary = compile(found, target=target(arch), options=options)
    text = binary.asm["amdgcn" if arch.startswith("gfx") else "ptx"]
    assert ("v_mfma" if arch.startswith("gfx") else "wgmma.mma_async") in text
    assert 0 < binary.metadata.shared <= SHARED[arch]
