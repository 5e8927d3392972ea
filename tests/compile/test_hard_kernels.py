"""Kernels as people write them, beyond the plain ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton.language as tl

import rooftile
from rooftile.errors import InputError

FILE = str(Path(__file__).with_name("hard_kernels.py"))
DOT = "*fp32:16, *{0}:16, *{0}:16, i32:16"


def build(kernel, target="sm_90", **options):
    """One kernel of the file."""
    return rooftile.compile_kernel(f"{FILE}:{kernel}", target, **options)


def test_heuristics_under_an_autotuner():
    """Its first configuration, and what the heuristic makes of it: no mask, 16-byte accesses."""
    kernel = build("decorated_kernel", call="decorated")
    assert kernel.constants == {"BLOCK": 512, "EVEN": True}
    assert kernel.options["num_warps"] == 2
    assert [(a.kind, a.width_bytes, a.count) for a in kernel.accesses] == [
        ("load", 16, 2), ("store", 16, 2)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "constants",
    [
        {"F": f"{FILE}:double", "D": "tl.float16", "T": "(2, 3)"},
        {"F": f"{FILE}:double", "D": tl.float16, "T": (2, 3)},
    ],
)
def test_a_function_a_dtype_and_a_tuple_are_constants(constants):
    """As the command line writes them, and as Python has them."""
    kernel = build("constants_kernel", signature="*fp16:16, *fp32:16", BLOCK=1024, **constants)
    assert kernel.constants["D"] == "triton.language.float16"
    assert kernel.constants["T"] == "(2, 3)"
    assert kernel.constants["F"].startswith("JITFunction(")
    assert sum(a.width_bytes * a.count for a in kernel.loads) == 4 * 1024 // 128
    assert sum(a.width_bytes * a.count for a in kernel.accesses if a.kind == "store") == 16


@pytest.mark.parametrize(
    ("value", "message"),
    [("tl.float17", "there is no float17"), (object(), "D must be a number, text, None, a dtype")],
)
def test_a_constant_that_is_none_says_so(value, message):
    """A name that the file's module has not; what no kernel takes."""
    with pytest.raises(InputError, match=message):
        build("constants_kernel", signature="*fp16, *fp32", F=1, D=value, T=1, BLOCK=128)


def test_a_tuple_of_pointers_keeps_their_alignment():
    """16 bytes at once, as of two arguments; 1024 is a multiple of 16 too."""
    kernel = build("pair_kernel", call="paired")
    assert kernel.signature["pair"] == "(*fp32:16, *fp32:16)"
    assert (kernel.load_width_bytes, kernel.store_width_bytes) == (16, 16)


def test_annotations_and_defaults_are_types():
    """No signature, no call: all is said by the kernel; None stays a constant."""
    kernel = build("annotated_kernel")
    assert kernel.signature == {
        "x_ptr": "*bf16", "n": "i32", "wide": "i64", "scale": "fp32", "shift": "i32", "flag": "u1"
    }  # fmt: skip
    assert kernel.constants == {"BLOCK": 256, "none": None}


def test_a_signature_goes_before_an_annotation():
    """One argument is given, the others stay as the kernel has them."""
    kernel = build("annotated_kernel", signature="n=i32:16, shift=i64")
    assert (kernel.signature["n"], kernel.signature["shift"]) == ("i32:16", "i64")
    assert kernel.signature["wide"] == "i64"


def test_a_kernel_in_a_class():
    """By its dotted name."""
    kernel = build("Kernels.copy_kernel", signature="*i8:16, *i8:16", BLOCK=4096)
    assert [(a.kind, a.width_bytes, a.count) for a in kernel.accesses] == [
        ("load", 16, 2), ("store", 16, 2)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "target", "matrix"),
    [
        ("fp16", "sm_80", "HMMA"), ("fp16", "sm_90", "HGMMA"), ("fp8e4nv", "sm_90", "QGMMA"),
        ("fp16", "sm_100", "UTCMMA"), ("fp8e4b8", "gfx942", "MFMA"),
    ],
)  # fmt: skip
def test_a_while_loop_around_a_dot_is_one_loop(dtype, target, matrix):
    """Its operands are loaded within, the output is stored behind; waits are no loops."""
    kernel = build("dot_kernel", target, signature=DOT.format(dtype), N=64, DEPTH=64)
    assert list(kernel.tensor_core) == [matrix]
    assert kernel.loops == 1
    assert {a.loop for a in kernel.loads} == {1}
    assert {a.loop for a in kernel.accesses if a.kind == "store"} == {0}


def test_whole_numbers_on_the_tensor_cores():
    """With an accumulator of int32."""
    kernel = build("dot_kernel", signature="*i32:16, *i8:16, *i8:16, i32:16", N=64, DEPTH=64,
                   ACC="tl.int32")  # fmt: skip
    assert list(kernel.tensor_core) == ["IGMMA"]


def test_what_a_target_does_not_have_is_at_the_user_s_line():
    """fp8 of Hopper on Ampere."""
    with pytest.raises(InputError, match=r"hard_kernels.py:\d+: .*fp8e4nv not supported"):
        build("dot_kernel", "sm_80", signature=DOT.format("fp8e4nv"), N=64, DEPTH=64)


def test_too_few_registers_is_told_without_ptxas_s_files():
    """The finding alone."""
    with pytest.raises(InputError, match="Insufficient registers") as caught:
        build("dot_kernel", signature=DOT.format("fp16"), N=128, DEPTH=64, maxnreg=32)
    assert "/tmp" not in str(caught.value)
    assert "aborted" not in str(caught.value)


def test_a_layout_of_the_wrong_vendor_is_at_the_user_s_line():
    """Gluon's layout of 32 threads on waves of 64: the compiler's words at the line."""
    options = {"signature": "*bf16:16, *bf16:16", "BLOCK": 2048}
    assert build("warp_of_32_kernel", **options).load_width_bytes == 16
    with pytest.raises(InputError) as caught:
        build("warp_of_32_kernel", "gfx942", **options)
    lines = Path(FILE).read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "offs = gl.arange" in text)
    assert f"hard_kernels.py:{line}: " in str(caught.value)
    assert "invalid layout" in str(caught.value)
    assert "    offs = gl.arange(0, BLOCK, layout=layout)" in str(caught.value)


def test_assembly_of_another_vendor_is_refused_in_words():
    """PTX compiles for NVIDIA; AMD's assembler says what it is."""
    options = {"signature": "*i32:16", "BLOCK": 512}
    assert build("assembly_kernel", **options).registers > 0
    with pytest.raises(InputError, match=r"not compile for gfx942: .*invalid"):
        build("assembly_kernel", "gfx942", **options)


def test_two_kernels_of_one_name(tmp_path):
    """Each by its own file, the answers apart."""
    for folder, factor in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(
            "import triton, triton.language as tl\n@triton.jit\n"
            "def kernel(x_ptr, BLOCK: tl.constexpr):\n"
            f"    offs = tl.arange(0, BLOCK * {factor})\n    tl.store(x_ptr + offs, offs)\n"
        )
    stores = [
        rooftile.compile_kernel(f"{tmp_path / folder}/same.py:kernel", signature="*i32:16",
                                BLOCK=512).accesses[0].count
        for folder in ("one", "two")
    ]  # fmt: skip
    assert stores == [1, 2]
