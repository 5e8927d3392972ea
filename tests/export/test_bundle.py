"""What a bundle holds: right for a launch, the same every time, and nothing of this machine."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import jsonschema
import pytest
from export.conftest import KERNELS

import rooftile
from rooftile.compile.targets import target_of
from rooftile.export.bundle import Request, plans_of
from rooftile.export.derive import derive
from rooftile.export.formula import evaluate, factors_of, names_in
from rooftile.export.ops import REFUSED, SPECS
from rooftile.export.trace import trace
from rooftile.records.io import json_schema
from rooftile.records.manifest import Manifest, Size


def test_every_op_is_exported_or_refused():
    """An op of rooftile.ops is in one table or the other, with the reason."""
    folder = Path(rooftile.__file__).parent / "ops"
    ops = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert ops == (set(SPECS) | set(REFUSED)) - {"attention_causal"}
    assert not set(SPECS) & set(REFUSED)


@pytest.mark.parametrize(
    ("op", "form"), [(op, form) for op, spec in SPECS.items() for form in spec.forms()]
)
def test_the_kernel_and_grid_are_those_of_the_op(op, form):
    """At sizes that were not looked at, the formulas give what the op launches."""
    spec = SPECS[op]
    target = target_of("sm_80" if op.startswith("attention") else "sm_90")
    derived = derive(op, spec, "bfloat16", spec.tuned.default, target, form, {})
    sizes = {name: 2 + i for i, name in enumerate(spec.sizes())}
    sizes |= {name: 1024 for name in ("rows", "queries", "keys") if name in sizes}
    if form != "aligned":
        sizes |= {name: 1001 for name in ("rows", "keys") if name in sizes}
    sizes[spec.tuned.size] = spec.tuned.default
    launch = trace(op, spec, "bfloat16", sizes, target, form).launch
    assert launch.kernel is derived.build.kernel
    assert tuple(evaluate(formula, sizes) for formula in derived.grid) == launch.grid
    for parameter in derived.parameters:
        if parameter.formula:
            assert evaluate(parameter.formula, sizes) == launch.values[parameter.name]
    assert launch.call.options == derived.build.options


@pytest.mark.parametrize("op", ["attention", "attention_causal"])
def test_attention_on_hopper_is_the_portable_kernel(op):
    """The op's own takes descriptors of the host there; a note says what stands in."""
    from rooftile.ops.flash.fwd_kernel import attention_fwd_kernel

    plans, notes = plans_of(Request([op], ["sm_90"]))
    assert {derived.build.kernel for derived, _ in plans} == {attention_fwd_kernel}
    assert [(d.form, d.build.target.name) for d, keep in plans if keep] == [
        ("aligned", "sm_90"), ("uneven", "sm_90"), ("any", "sm_90"),
    ]  # fmt: skip
    for note, form in zip(notes, ("aligned", "uneven"), strict=True):
        assert note.startswith(f"{op} for sm_90, form {form}: that of sm_80 stands in")


def derived(op: str, form: str, target: str = "sm_90"):
    """An op's kernel in bfloat16, planned and not compiled."""
    spec = SPECS[op]
    return derive(op, spec, "bfloat16", spec.tuned.default, target_of(target), form, {})


def test_uneven_keys_keep_vector_loads():
    """Any number of keys, and addresses and strides that are known to be aligned."""
    kernel = derived("attention", "uneven", "sm_80")
    assert {s.name: s.multiple_of for s in kernel.sizes}["keys"] == 1
    assert kernel.build.constants["EVEN_K"] is False
    assert all(p.argument.divisible for p in kernel.parameters if p.role == "tensor")
    assert [s for s in derived("attention", "aligned", "sm_80").sizes if s.name == "keys"] == [
        Size("keys", 128, None, 128)
    ]


def test_what_was_compiled_for_cannot_be_set():
    """Label smoothing and soft-cap are compiled out of cross-entropy; the z-loss may be set."""
    roles = {p.name: (p.role, p.default) for p in derived("cross_entropy", "any").parameters}
    assert roles["smoothing"] == roles["softcap"] == ("fixed", 0.0)
    assert roles["z_loss"] == ("scalar", 0.0)
    targets = next(t for t in derived("cross_entropy", "any").tensors if t.name == "target")
    assert (targets.dtype, targets.below, targets.shape) == ("int64", "cols", ("rows",))


@pytest.mark.parametrize("op", SPECS)
def test_a_stride_that_vectors_may_hang_on_cannot_be_set(op):
    """Where vectors are known to be whole, a stride may be set that is known to keep them so."""
    aligned = derived(op, "aligned", "sm_80").parameters
    assert all(p.argument.divisible for p in aligned if p.role == "stride")
    free = {p.name for p in derived(op, "any", "sm_80").parameters if p.role == "stride"}
    assert free >= {p.name for p in aligned if p.role == "stride"}


@pytest.mark.parametrize("op", SPECS)
def test_what_follows_from_the_width_is_as_divisible_as_in_the_op(op):
    """Else the export would load element by element what the op loads 16 bytes at a time.

    Counts of blocks are no part of an address.
    """
    spec, target = SPECS[op], target_of("sm_80")
    kernel = derive(op, spec, "bfloat16", spec.tuned.default, target, "aligned", {})
    sizes = dict.fromkeys(spec.sizes(), 16)
    sizes |= {name: 512 for name in ("rows", "queries", "keys") if name in sizes}
    sizes[spec.tuned.size] = spec.tuned.default
    arguments = trace(op, spec, "bfloat16", sizes, target, "aligned").launch.call.arguments
    blocks = factors_of(kernel.grid[0])
    for parameter in kernel.parameters:
        of_width = set(names_in(parameter.formula)) <= {spec.tuned.size}
        if of_width and parameter.formula not in blocks:
            own = arguments[parameter.name].divisible
            assert parameter.argument.divisible == own, parameter.name


def test_a_size_that_goes_by_twos_is_limited_so():
    """Heads of 66 to 128 elements take the kernel of 128."""
    kernel = derived("rotary_embedding", "any")
    assert {s.name: s for s in kernel.sizes}["head_dim"] == Size("head_dim", 66, 128, 2)


def test_blocks_of_rows_and_of_columns_have_a_dimension_each():
    """Bias and GELU cut both into blocks, of 2 rows and 1,024 columns."""
    grid = derived("bias_gelu_dropout_residual", "any").grid
    assert grid == ("ceil(cols / 1024)", "ceil(rows / 2)", "1")


def test_a_tuned_size_is_limited_to_where_the_op_launches_that_kernel():
    """Rows of 2,049 to 4,096 elements take the block of 4,096; 16 rows of 256 share a program."""

    def limits(cols: int, form: str, target: str = "sm_80") -> tuple[Size, str]:
        derived = derive("softmax", SPECS["softmax"], "bfloat16", cols, target_of(target), form, {})
        return derived.sizes[1], derived.grid[0]

    assert limits(4096, "aligned") == (Size("cols", 2064, 4096, 16), "rows")
    assert limits(4096, "any") == (Size("cols", 2049, 4096, 1), "rows")
    assert limits(4095, "aligned") == (Size("cols", 4095, 4095, 1), "rows")
    assert limits(256, "aligned") == (Size("cols", 144, 256, 16), "ceil(rows / 16)")
    assert limits(65536, "aligned") == (Size("cols", 32784, None, 16), "rows")
    assert limits(65536, "aligned", "sm_90")[0] == Size("cols", 32784, 65536, 16)


def test_assumptions_are_written_down(kernel):
    """exp-04: what is divisible, what was 1, and beside it a build that assumes nothing."""
    aligned = kernel("softmax_fwd_bf16_n4096_sm90")
    assert {p.name for p in aligned.parameters if p.divisible_by == 16} == {
        "x_ptr", "y_ptr", "n_cols", "stride_xo", "stride_xi", "stride_yo", "stride_yi",
    }  # fmt: skip
    assert (aligned.constants["x_inner"], aligned.constants["stride_xn"]) == (1, 1)
    assert all(p.name not in ("x_inner", "stride_xn") for p in aligned.parameters)
    generic = kernel("softmax_fwd_bf16_n4096_any_sm90")
    assert {p.divisible_by for p in generic.parameters} == {1}


def test_aligned_builds_load_16_bytes_and_the_others_2(bundle):
    """exp-04: v4 loads where rows and addresses are known to be aligned, 2-byte ones elsewhere."""
    assert "ld.global.v4.b32" in (bundle / "softmax_fwd_bf16_n4096_sm80.ptx").read_text()
    generic = (bundle / "softmax_fwd_bf16_n4096_any_sm80.ptx").read_text()
    assert re.search(r"ld\.global\.b16", generic)
    assert not re.search(r"ld\.global\.v\d", generic)


def test_roles_say_what_to_pass(kernel):
    """RMS norm's eps may be set, its residual is x again, a stride of 0 is fixed."""
    parameters = {p.name: p for p in kernel("rms_norm_fwd_bf16_n4096_sm90").parameters}
    assert (parameters["eps"].role, parameters["eps"].default) == ("scalar", 1e-6)
    assert (parameters["r_ptr"].tensor, parameters["w_ptr"].tensor) == ("x", "weight")
    assert (parameters["stride_xo"].role, parameters["stride_xo"].formula) == ("stride", "cols")
    assert (parameters["stride_xi"].role, parameters["stride_xi"].formula) == ("fixed", "0")
    assert (parameters["n_rows"].role, parameters["n_rows"].formula) == ("size", "rows")
    assert (parameters["eps"].type, parameters["eps"].bytes) == ("fp32", 4)


def test_entries_have_their_names(bundle, manifest):
    """exp-07: every symbol is its binary's own entry, and no two are alike."""
    symbols = [k.symbol for k in manifest.kernels]
    assert symbols == sorted(set(symbols))
    for k in manifest.kernels:
        if k.ptx:
            assert f".visible .entry {k.symbol}(" in (bundle / k.ptx.path).read_text()
        assert k.binary is not None
        assert f"{k.symbol}\0".encode() in (bundle / k.binary.path).read_bytes()


def test_versions_of_ptx_and_driver_are_written_down(bundle, manifest):
    """exp-01: those of the file itself, and the driver that reads them."""
    for k in (k for k in manifest.kernels if k.ptx):
        text = (bundle / k.ptx.path).read_text()
        assert f".version {k.ptx_version}\n" in text
        assert f".target {k.ptx_target}\n" in text
        assert k.ptx_driver.split(".")[0] in ("12", "13")
    portable = next(k for k in manifest.kernels if k.symbol == "softmax_fwd_bf16_n4096_sm80")
    assert portable.ptx_target == "sm_80"


def test_files_are_what_the_manifest_says(bundle, manifest):
    """Every file is listed with its size and hash, and no other is there."""
    listed = {f.path: f for k in manifest.kernels for f in (k.binary, k.ptx) if f}
    for golden in manifest.golden:
        listed |= {f.path: f for f in (*golden.inputs.values(), *golden.outputs.values())}
    there = {str(p.relative_to(bundle)) for p in bundle.rglob("*") if p.is_file()}
    assert there == {*listed, "manifest.json", "bundle.h"}
    for path, file in listed.items():
        content = (bundle / path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.bytes, file.sha256)


def test_the_manifest_satisfies_its_schema(bundle):
    """The published schema accepts it, and not one without symbols."""
    plain = json.loads((bundle / "manifest.json").read_text())
    schema = json_schema(Manifest)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(plain, schema)
    del plain["kernels"][0]["symbol"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain, schema)


def test_golden_results_are_those_of_torch(bundle, manifest):
    """The result in the bundle is torch's own in float64."""
    import torch

    golden = {g.op: g for g in manifest.golden}

    def read(file, dtype):
        data = bytearray((bundle / file.path).read_bytes())
        return torch.frombuffer(data, dtype=dtype)

    g = golden["softmax"]
    x = read(g.inputs["x"], torch.bfloat16).view(3, 4096).double()
    y = read(g.outputs["y"], torch.float32).view(3, 4096)
    torch.testing.assert_close(y, x.softmax(-1).float(), rtol=1e-6, atol=0)
    g = golden["rms_norm"]
    x = read(g.inputs["x"], torch.bfloat16).view(3, 4096).double()
    w = read(g.inputs["weight"], torch.bfloat16).double()
    y = read(g.outputs["y"], torch.float32).view(3, 4096)
    wanted = torch.nn.functional.rms_norm(x, (4096,), w, 1e-6).float()
    torch.testing.assert_close(y, wanted, rtol=1e-6, atol=1e-7)


def test_the_same_bytes_come_from_two_folders(tmp_path, monkeypatch):
    """A kernel's source may lie anywhere: no byte of the bundle depends on it."""
    bundles = []
    for name in ("one", "a longer name"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "kernels.py").write_text(Path(KERNELS).read_text())
        monkeypatch.chdir(folder)
        kernel = f"{folder}/kernels.py:scale"
        rooftile.export_bundle(kernel, arch=["sm_80", "gfx942"], out="bundle")
        bundles.append({p.name: p.read_bytes() for p in Path("bundle").rglob("*") if p.is_file()})
    assert bundles[0] == bundles[1]
    assert not [name for name, data in bundles[0].items() if str(tmp_path).encode() in data]


def test_no_path_of_this_machine_is_in_a_bundle(bundle):
    """Neither the package's folder nor the user's."""
    places = [str(Path(rooftile.__file__).parent), str(Path.home()), str(bundle.parent)]
    for path in bundle.rglob("*"):
        if path.is_file():
            assert not [place for place in places if place.encode() in path.read_bytes()], path


def test_fp_fusion_and_ptx_version_are_what_was_asked(tmp_path):
    """exp-01: PTX 8.4 for a driver of CUDA 12.4; without fusion no multiply-add is left."""
    manifest = rooftile.export_bundle(
        "rms_norm", arch=["sm_80"], out=tmp_path / "b", ptx_version=84, fp_fusion=False
    )
    kernel = next(k for k in manifest.kernels if k.form == "aligned")
    assert (kernel.ptx_version, kernel.ptx_driver) == ("8.4", "12.4")
    assert kernel.options["enable_fp_fusion"] is False
    text = (tmp_path / "b" / kernel.ptx.path).read_text()
    assert ".version 8.4\n" in text
    assert not re.search(r"\bfma\.rn", text)


def test_a_bundle_for_a_new_gpu_holds_portable_ptx(tmp_path):
    """For sm_120 alone there is PTX for sm_80 too, without a CUBIN."""
    manifest = rooftile.export_bundle("softmax", arch=["sm_120"], out=tmp_path / "b")
    held = {(k.target, k.binary is not None, k.ptx is not None) for k in manifest.kernels}
    assert held == {("sm_120", True, True), ("sm_80", False, True)}
    assert not list((tmp_path / "b").glob("*sm80.cubin"))
