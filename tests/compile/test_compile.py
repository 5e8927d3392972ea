"""Compiling for targets that are not here, and what is read out of the binaries."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton
from compile.conftest import KERNELS, MATMUL, SOFTMAX

import rooftile
from rooftile.compile.run import compile_all
from rooftile.compile.targets import compile_targets
from rooftile.records.resources import KernelResources

NVIDIA = [name for name in compile_targets() if name.startswith("sm_")]
AMD = [name for name in compile_targets() if name.startswith("gfx")]


@pytest.fixture(scope="module")
def softmax(tmp_path_factory) -> dict[str, KernelResources]:
    """The softmax of 4096 columns by 8 warps for every target."""
    outcomes = compile_all(
        f"{KERNELS}:softmax_kernel", compile_targets(), [{"BLOCK": 4096, "num_warps": 8}],
        signature=SOFTMAX, cache=False,
    )  # fmt: skip
    return dict(zip(compile_targets(), outcomes, strict=True))


@pytest.mark.parametrize("target", NVIDIA)
def test_a_softmax_on_every_nvidia_target(target, softmax):
    """A row of 8,192 B in and out by 256 threads: 2 accesses of 16 B each, all known exactly."""
    kernel = softmax[target]
    if target == "sm_110" and triton.__version__ < "3.7":
        assert kernel == (
            f"target must be one that Triton {triton.__version__} knows, its ptxas does not know"
            " sm_110: a newer Triton is wanted"
        )
        return
    assert isinstance(kernel, KernelResources), kernel
    assert (kernel.target, kernel.threads, kernel.warp_size) == (target, 256, 32)
    assert 16 <= kernel.registers <= 64
    assert (kernel.stack_bytes, kernel.spills, kernel.static_shared_bytes) == (0, 0, 0)
    assert kernel.dynamic_shared_bytes == 8 * 4  # a partial result a warp
    assert kernel.barriers == 1
    assert sum(a.width_bytes * a.count for a in kernel.loads) == 8192 // 256
    assert (kernel.load_width_bytes, kernel.store_width_bytes) == (16, 16)
    assert kernel.load_burst_bytes == 32
    assert (kernel.loops, kernel.tensor_core) == (0, {})
    assert kernel.code_bytes > 1000


@pytest.mark.parametrize("target", AMD)
def test_a_softmax_on_every_amd_target(target, softmax):
    """The same row by the waves of AMD."""
    kernel = softmax[target]
    assert isinstance(kernel, KernelResources), kernel
    wave = 32 if target == "gfx1100" else 64
    assert (kernel.threads, kernel.warp_size) == (8 * wave, wave)
    assert kernel.registers >= 8
    assert kernel.scalar_registers is not None
    assert (kernel.spills, kernel.barriers, kernel.dynamic_shared_bytes) == (0, 1, 32)
    assert sum(a.width_bytes * a.count for a in kernel.loads) == 8192 // kernel.threads
    assert (kernel.load_width_bytes, kernel.store_width_bytes) == (16, 16)
    assert kernel.load_burst_bytes == 8192 // kernel.threads


def test_the_record_says_what_was_compiled(softmax):
    """Arguments, constants, options, compiler."""
    kernel = softmax["sm_90"]
    assert kernel.kernel == "softmax_kernel"
    assert kernel.compiler == f"triton {triton.__version__}"
    assert kernel.signature["x_ptr"] == "*bf16:16"
    assert kernel.signature["n_cols"] == "i32:16"
    assert (kernel.constants, kernel.options) == ({"BLOCK": 4096}, {"num_warps": 8})
    assert 0 < kernel.compile_s < 60


def test_a_width_that_nothing_divides_is_loaded_by_element():
    """The same kernel without :16 has 2-byte accesses, which the traffic flags."""
    kernel = rooftile.compile_kernel(
        f"{KERNELS}:softmax_kernel", "sm_90", signature="*bf16:16,*bf16:16,i64:16,i64:16,i32",
        BLOCK=1024, num_warps=4,
    )  # fmt: skip
    assert [(a.kind, a.width_bytes, a.count) for a in kernel.accesses] == [
        ("load", 2, 8), ("store", 2, 8)
    ]  # fmt: skip
    flags = rooftile.kernel_traffic(kernel, 1).flags
    assert flags[0].startswith("2-byte loads")


def test_stack_and_spills_are_apart_from_registers():
    """64 floats a thread do not fit the 32 registers that it may have."""
    kernel = rooftile.compile_kernel(
        f"{KERNELS}:softmax_kernel", "sm_90", signature=SOFTMAX, BLOCK=8192, num_warps=4, maxnreg=32
    )
    assert kernel.registers == 32
    assert kernel.stack_bytes > 0
    assert kernel.spill_store_bytes > 0
    assert kernel.spill_load_bytes > 0


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_row_read_in_two_loops(target):
    """Both loops are seen, and 8 rounds of each make 1.5 times what must move."""
    kernel = rooftile.compile_kernel(
        f"{KERNELS}:two_pass_kernel", target, signature=SOFTMAX, BLOCK=1024,
        num_warps=2 if target == "gfx942" else 4,
    )  # fmt: skip
    assert kernel.loops == 2
    assert [(a.kind, a.loop, a.width_bytes * a.count) for a in kernel.accesses] == [
        ("load", 1, 16), ("load", 2, 16), ("store", 2, 16)
    ]  # fmt: skip
    found = rooftile.kernel_traffic(kernel, 10, trips={1: 8, 2: 8}, formula_bytes=10 * 8192 * 2 * 2)
    assert found.ratio == 1.5


@pytest.mark.parametrize(
    ("target", "instruction"),
    [("sm_80", "HMMA"), ("sm_90", "HGMMA"), ("sm_100", "UTCMMA"), ("sm_120", "HMMA"),
     ("gfx942", "MFMA"), ("gfx950", "MFMA"), ("gfx1100", "WMMA")],
)  # fmt: skip
def test_matrix_instructions_are_seen(target, instruction):
    """By the name of each generation."""
    kernel = rooftile.compile_kernel(
        f"{KERNELS}:matmul_kernel", target, signature=MATMUL, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64,
        num_warps=4, num_stages=2,
    )  # fmt: skip
    assert kernel.tensor_core[instruction] > 0
    assert kernel.load_width_bytes == 16


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120", "gfx942"])
def test_shared_memory_by_stages_is_as_planned(target):
    """What the compiler allocates for 2 to 4 stages is what a tile plan reckons."""
    from rooftile.plan.tile_matmul import pipeline_shared_bytes
    from rooftile.spec.limits import limits

    stages = (2, 3, 4)
    tile = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4}
    outcomes = compile_all(
        f"{KERNELS}:matmul_kernel", [target],
        [{**tile, "num_stages": n} for n in stages],
        signature=MATMUL,
    )  # fmt: skip
    planned = [pipeline_shared_bytes(64, 128, 64, 2, n, limits(target)) for n in stages]
    assert [kernel.dynamic_shared_bytes for kernel in outcomes] == planned


def test_gluon_compiles_too():
    """Its layout has 8 elements a thread: 16 bytes of bf16."""
    kernel = rooftile.compile_kernel(
        f"{KERNELS}:gluon_copy_kernel", "sm_90", signature="*bf16:16,*bf16:16,i32:16", BLOCK=2048,
        num_warps=4,
    )  # fmt: skip
    assert [(a.kind, a.width_bytes, a.count) for a in kernel.accesses] == [
        ("load", 16, 2), ("store", 16, 2)
    ]  # fmt: skip


def test_atomics_are_seen():
    """8 floats a thread, however many an instruction takes."""
    kernel = rooftile.compile_kernel(
        f"{KERNELS}:add_kernel", "sm_90", signature="*fp32:16,*fp32:16,i32:16", BLOCK=1024,
        num_warps=4,
    )  # fmt: skip
    assert sum(a.width_bytes * a.count for a in kernel.accesses if a.kind == "atomic") == 32


def test_types_are_taken_from_a_call():
    """The call's tensors, numbers, constants and options; a sweep's values go before."""
    kernel = rooftile.compile_kernel(f"{KERNELS}:softmax_kernel", "sm_90")
    assert (kernel.constants, kernel.options) == ({"BLOCK": 4096}, {"num_warps": 8})
    assert kernel.signature["x_ptr"] == "*bf16:16"
    assert kernel.signature["n_cols"] == "i32:16"
    wider = rooftile.compile_kernel(f"{KERNELS}:softmax_kernel", "sm_90", BLOCK=8192)
    assert wider.constants == {"BLOCK": 8192}


def test_a_call_through_an_autotuner():
    """Its first configuration; 1 becomes a constant, 1001 is divisible by nothing."""
    kernel = rooftile.compile_kernel(f"{KERNELS}:tuned_kernel", "sm_90", call="tuned")
    assert kernel.constants == {"flag": 1, "SCALED": True, "BLOCK": 2048}
    assert kernel.options["num_warps"] == 8
    assert kernel.signature["n_cols"] == "i32"
    assert kernel.signature["scale"] == "fp32"


def test_a_kernel_can_be_given_itself():
    """By where its code stands."""
    from compile import kernels

    kernel = rooftile.compile_kernel(kernels.add_kernel, "sm_90", signature="*fp32,*fp32,i32",
                                     BLOCK=128)  # fmt: skip
    assert kernel.kernel == "add_kernel"


def test_the_cache_holds_what_was_compiled(tmp_path, monkeypatch):
    """The second time is the first one's record; another option, source or global is another."""
    source = tmp_path / "mine.py"
    text = Path(KERNELS).read_text()
    source.write_text(text)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def compiled(**options):
        return rooftile.compile_kernel(
            f"{source}:softmax_kernel", "sm_90", signature=SOFTMAX, BLOCK=256, **options
        )

    first = compiled()
    kept = tmp_path / "rooftile" / "kernels"
    assert len(list(kept.glob("??/*.json"))) == 1
    assert compiled() == first  # its compile_s too
    assert compiled(cache=False).compile_s != first.compile_s
    compiled(num_warps=2)
    source.write_text(text.replace("e / tl.sum(e, axis=0)", "e"))
    assert compiled().code_bytes < first.code_bytes
    for file in kept.rglob("*.json"):
        file.write_text("{")
    source.write_text(text)
    assert compiled().registers == first.registers
