"""``rooftile export``"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rooftile.errors import InputError

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Ops (softmax, rms_norm, ...) and kernels of your own as file.py:kernel.",
        metavar="[OP|KERNEL]...",
    ),
]
Arch = Annotated[
    str,
    typer.Option(
        help="Architectures, parted by commas: sm_80 ... sm_121, gfx90a ... gfx1100.",
        metavar="NAME[,...]",
    ),
]
DType = Annotated[
    str,
    typer.Option(help="Of ops: float32, float16, bfloat16, parted by commas.", metavar="NAME[,..]"),
]
Size = Annotated[
    list[str] | None,
    typer.Option(
        help="The size that decides about an op's kernel: cols=4096,8192; may be repeated.",
        metavar="NAME=N[,...]",
    ),
]
Out = Annotated[str | None, typer.Option(help="The bundle's folder.", metavar="DIR")]
Rust = Annotated[
    str | None,
    typer.Option(help="Write the Rust crate, C header and examples there.", metavar="DIR"),
]
PtxVersion = Annotated[
    int | None,
    typer.Option(help="84 for PTX 8.4, which older drivers read; else the newest.", metavar="N"),
]
NoFusion = Annotated[
    bool, typer.Option("--no-fp-fusion", help="Round every product before it is added.")
]
Signature = Annotated[
    str | None,
    typer.Option(
        help="Types of your kernel's arguments: '*bf16:16, *bf16:16, i32'. :16 says divisible.",
        metavar="TYPES",
    ),
]
Call = Annotated[
    str,
    typer.Option(
        help="A function beside your kernel that launches it: the types are taken from there.",
        metavar="NAME",
    ),
]
Const = Annotated[
    list[str] | None,
    typer.Option(help="A constant or compiler option of it: BLOCK=1024.", metavar="NAME=V"),
]
Grid = Annotated[
    str | None,
    typer.Option(
        help="Its grid as formulas over its whole-number arguments: 'ceil(n / BLOCK)'.",
        metavar="X[,Y[,Z]]",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the manifest.")]


def export(
    names: Names = None,
    arch: Arch = "sm_80,sm_90",
    dtype: DType = "bfloat16",
    size: Size = None,
    out: Out = None,
    rust: Rust = None,
    ptx_version: PtxVersion = None,
    no_fp_fusion: NoFusion = False,
    signature: Signature = None,
    call: Call = "example",
    const: Const = None,
    grid: Grid = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compile kernels into a bundle for Rust and C.

    Needs no GPU. A bundle holds a CUBIN (an HSACO for AMD) and PTX for each architecture and
    manifest.json, which says how each kernel is launched. `rooftile schema manifest` describes it.
    """
    from rooftile.api.export import write_rust_host

    if out is not None and not names:
        raise InputError("op must be given with --out: softmax, or file.py:kernel")
    if not names and rust is None:
        raise InputError("op must be given, or --rust: what to export, softmax or file.py:kernel")
    if names and out is None:
        raise InputError("--out must be given: the bundle's folder")
    if rust is not None:
        files = write_rust_host(rust, force=force)
        print(f"wrote {rust}: {len(files)} files", file=sys.stderr)
    if names and out is not None:
        _bundle(
            names, arch, dtype, size or [], out, ptx_version, not no_fp_fusion, signature, call,
            const or [], grid, force, as_json,
        )  # fmt: skip


def _bundle(
    names: list[str], arch: str, dtype: str, size: list[str], out: str, ptx_version: int | None,
    fp_fusion: bool, signature: str | None, call: str, const: list[str], grid: str | None,
    force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Export, and say what was written."""
    from rooftile.api.export import export_bundle
    from rooftile.cli.occupancy import pair, values_of
    from rooftile.cli.progress import stages
    from rooftile.report.columns import write_lines
    from rooftile.report.export import bundle_lines
    from rooftile.report.output import STDOUT, deliver, record_json

    with stages() as progress:
        manifest = export_bundle(
            *names,
            out=out,
            arch=_names(arch),
            dtype=_names(dtype),
            sizes={name: _whole(name, text) for name, text in map(pair, size)},
            ptx_version=ptx_version,
            fp_fusion=fp_fusion,
            signature=signature,
            call=call,
            constants={name: values_of(text)[0] for name, text in map(pair, const)},
            grid=grid,
            force=force,
            progress=progress,
        )
    for note in manifest.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"wrote {out}: {len(manifest.kernels)} kernels", file=sys.stderr)
    if as_json:
        deliver(record_json(manifest), STDOUT)
    else:
        write_lines(bundle_lines(manifest), sys.stdout)


def _names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _whole(name: str, text: str) -> list[int]:
    """Whole numbers between commas."""
    if not all(word.isdigit() for word in text.split(",")):
        raise InputError(f"--size {name} must be whole numbers parted by commas, got {text!r}")
    return [int(word) for word in text.split(",")]
