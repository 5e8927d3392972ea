"""Kernels of a user's own."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from export.conftest import KERNELS

import rooftile
from rooftile.errors import InputError
from rooftile.export.ops import SPECS, OpSpec, Tuned
from rooftile.records.manifest import ExportedKernel


def export(tmp_path, name: str, **options) -> ExportedKernel:
    """The only kernel for sm_90 of a bundle."""
    manifest = rooftile.export_bundle(
        f"{KERNELS}:{name}", arch=["sm_90"], out=tmp_path / "bundle", **options
    )
    return next(k for k in manifest.kernels if k.target == "sm_90")


def test_a_copy_has_two_parameters_more_than_its_signature(tmp_path):
    """exp-02: five, the last two addresses that the compiler has added."""
    kernel = export(
        tmp_path, "copy_kernel", signature="*bf16:16, *bf16:16, i32:16", constants={"BLOCK": 1024},
        grid="ceil(n / BLOCK)",
    )  # fmt: skip
    assert [(p.name, p.bytes, p.role) for p in kernel.parameters] == [
        ("x_ptr", 8, "tensor"), ("y_ptr", 8, "tensor"), ("n", 4, "size"),
        ("__scratch", 8, "scratch"), ("__profile_scratch", 8, "profile_scratch"),
    ]  # fmt: skip
    assert kernel.grid == ("ceil(n / 1024)", "1", "1")
    assert (kernel.sizes[0].name, kernel.sizes[0].multiple_of) == ("n", 16)


def test_divisibility_decides_about_the_loads(tmp_path):
    """exp-04: with n divisible the loads are v4, without scalar; n == 1 leaves 4 parameters."""

    def ptx(signature: str) -> tuple[str, int]:
        kernel = export(
            tmp_path, "copy_kernel", signature=signature, constants={"BLOCK": 1024}, force=True
        )
        return (tmp_path / "bundle" / kernel.ptx.path).read_text(), len(kernel.parameters)

    assert "v4.b32" in ptx("*bf16:16, *bf16:16, i32:16")[0]
    assert "v4.b32" not in ptx("*bf16:16, *bf16:16, i32")[0]
    assert ptx("*bf16:16, *bf16:16, 1")[1] == 4


def test_a_call_gives_types_and_a_float_takes_4_bytes(tmp_path):
    """A float argument of Python is fp32 in the kernel; what must be passed is no C double."""
    kernel = export(tmp_path, "scale")
    factor = next(p for p in kernel.parameters if p.name == "factor")
    assert (factor.type, factor.bytes, factor.role, factor.default) == ("fp32", 4, "scalar", None)
    assert kernel.grid == ()


def test_descriptors_that_the_kernel_makes_ask_for_scratch(tmp_path):
    """Two descriptors of 128 bytes a block, in memory that the launch provides."""
    kernel = export(
        tmp_path, "device_descriptor_kernel", signature="*fp16:16, *fp16:16, i32:16, i32:16",
        constants={"BLOCK": 64}, grid="ceil(rows / BLOCK), ceil(cols / BLOCK)",
    )  # fmt: skip
    assert (kernel.scratch.bytes_per_block, kernel.scratch.alignment) == (256, 128)
    assert kernel.grid == ("ceil(rows / 64)", "ceil(cols / 64)", "1")


def test_descriptors_of_the_host_are_refused_with_the_reason(tmp_path):
    """Only the driver can encode them."""
    with pytest.raises(InputError, match="x_desc is a TMA descriptor made by the host"):
        export(tmp_path, "host_descriptor_kernel", call="host_descriptor")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("copy_kernel", {"signature": "*bf16, *bf16"}, "lacks a type for n"),
        ("copy_kernel", {"signature": "*bf16, *bf16, i32"}, "constant BLOCK of copy_kernel has no"),
        ("copy_kernel", {"call": "none"}, "signature of copy_kernel is not known"),
        ("no_kernel", {}, "has no kernel 'no_kernel'"),
        ("broken_kernel", {"signature": "*fp32", "constants": {"BLOCK": 16}}, "no_such_name"),
        ("scale", {"grid": "ceil(m / 128)"}, "names 'm', sizes are n"),
        ("scale", {"grid": "n, n, n, n"}, "grid must be one to three formulas"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, name, options, said):
    """With what was wanted, and nothing is written."""
    with pytest.raises(InputError, match=said):
        export(tmp_path, name, **options)
    assert not list(tmp_path.iterdir())


def launched_with(descriptors: Callable):
    """An op that passes a descriptor for some tensors."""
    import torch
    from export import kernels
    from triton.tools.tensor_descriptor import TensorDescriptor

    def run(tensors):
        x = tensors["x"]
        y = torch.empty_like(x)
        if descriptors(x):
            tile = TensorDescriptor(y.view(-1, 64), [64, 64], [64, 1], [64, 64])
            kernels.host_descriptor_kernel[(1,)](tile, y, BLOCK=64)
        else:
            blocks = -(-x.numel() // 1024)
            kernels.copy_kernel[(blocks,)](x, y, x.numel(), BLOCK=1024)
        return y

    flat = ("elements",)
    return OpSpec("copy_fwd", {"x": flat}, {"y": flat}, run, lambda t: t["x"].double(),
                  Tuned("elements", "e", 4096), {})  # fmt: skip


def test_an_op_keeps_the_form_that_passes_no_descriptor(tmp_path, monkeypatch):
    """Where the aligned form needs one of the host, the other is exported and a note says why."""
    monkeypatch.setitem(SPECS, "copy", launched_with(lambda x: x.data_ptr() % 16 == 0))
    manifest = rooftile.export_bundle("copy", arch=["sm_90"], out=tmp_path / "bundle")
    assert {k.form for k in manifest.kernels} == {"any"}
    left_out = "copy for sm_90, form aligned: it is left out, as host_descriptor_kernel"
    assert manifest.notes[0].startswith(left_out)


def test_the_portable_kernel_stands_in_for_one_with_descriptors(tmp_path, monkeypatch):
    """What the op launches on sm_80, compiled for sm_90, and a note that says so."""
    from rooftile.ops._launch import architecture

    spec = launched_with(lambda x: architecture(x.device) == "sm_90")
    monkeypatch.setitem(SPECS, "copy", spec)
    manifest = rooftile.export_bundle("copy", arch=["sm_90"], out=tmp_path / "bundle")
    assert {(k.form, k.target) for k in manifest.kernels if k.binary} == {
        ("aligned", "sm_90"), ("any", "sm_90"),
    }  # fmt: skip
    assert "copy for sm_90, form aligned: that of sm_80 stands in" in manifest.notes[0]


def test_an_op_of_descriptors_alone_is_refused(tmp_path, monkeypatch):
    """With the reason."""
    monkeypatch.setitem(SPECS, "copy", launched_with(lambda x: True))
    with pytest.raises(InputError, match="is a TMA descriptor made by the host"):
        rooftile.export_bundle("copy", arch=["sm_90"], out=tmp_path / "bundle")


def test_a_kernel_that_spills_is_named(tmp_path):
    """512 numbers a thread do not fit its 255 registers: the bundle says so, and holds it."""
    manifest = rooftile.export_bundle(
        f"{KERNELS}:spilling", arch=["sm_80"], out=tmp_path / "bundle",
        signature="*fp32:16, *fp32:16", constants={"BLOCK": 16384, "num_warps": 1},
    )  # fmt: skip
    (note,) = manifest.notes
    said = re.match(r"spilling_sm80 keeps ([\d,]+) bytes of a thread in memory", note)
    assert int(said[1].replace(",", "")) >= 4 * (512 - 255)
