"""Kernels out of Python: ``rooftile.export_bundle(...)`` and ``rooftile.write_rust_host(...)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rooftile.errors import MissingDependencyError

if TYPE_CHECKING:
    from rooftile.records.manifest import Manifest
    from rooftile.records.resources import Constant


def export_bundle(
    *names: str,
    out: str | Path,
    arch: Sequence[str] = ("sm_80", "sm_90"),
    dtype: Sequence[str] = ("bfloat16",),
    sizes: Mapping[str, Sequence[int]] | None = None,
    ptx_version: int | None = None,
    fp_fusion: bool = True,
    signature: str | None = None,
    call: str = "example",
    constants: Mapping[str, Constant] | None = None,
    grid: str | None = None,
    cores: int | None = None,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Manifest:
    """Compile ops and kernels into a folder from which Rust or C launch them, without a GPU.

    ``rooftile.export_bundle("softmax", "rms_norm", arch=["sm_90", "gfx942"], out="bundle")``

    Args:
        *names: Ops (``"softmax"``), and kernels of one's own as ``"file.py:kernel"``.
        out: The folder; it is written whole or not at all.
        arch: ``"sm_80"`` to ``"sm_121"``, ``"gfx90a"`` to ``"gfx1100"``. PTX for sm_80, which runs
            on every later NVIDIA GPU, is written in any case.
        dtype: ``"float32"``, ``"float16"``, ``"bfloat16"``; of ops.
        sizes: The size that decides about an op's kernel to its values: ``{"cols": [4096, 8192]}``.
        ptx_version: 84 for PTX 8.4; None: the newest that the assembler writes.
        fp_fusion: Let the compiler make one multiply-add of a product and a sum.
        signature: Types of the run-time arguments of one's own kernels; None: taken from ``call``.
        call: A function beside such a kernel, without arguments, that launches it.
        constants: Constants and compiler options of such kernels.
        grid: Their grid as formulas over their whole-number arguments: ``"ceil(n / BLOCK)"``; None:
            who launches it says.
        cores: Compiles at once; None: one a core.
        force: Replace a bundle that is there.
        progress: Told what is being done.

    Returns:
        The manifest that was written.

    Raises:
        InputError: There is no such op, kernel, architecture or dtype, one cannot be exported, the
            bundle is there already, or it cannot be written.
        MissingDependencyError: torch or Triton is not installed.
    """
    from rooftile import __version__
    from rooftile.export.write import BUNDLE, check_folder, write_folder
    from rooftile.user_file import files_in, importable

    target = check_folder(out, force, BUNDLE)
    try:
        from rooftile.export.bundle import Request, make_bundle
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"exporting needs {error.name}: pip install 'rooftile[torch]'"
        ) from error
    request = Request(
        names=names, targets=arch, dtypes=dtype, sizes=sizes or {}, ptx_version=ptx_version,
        fp_fusion=fp_fusion, signature=signature, call=call, constants=constants or {}, grid=grid,
        cores=cores,
    )  # fmt: skip
    with importable(files_in(names)):
        manifest, files = make_bundle(request, __version__, progress)
    write_folder(target, files, force)
    return manifest


def write_rust_host(out: str | Path, *, force: bool = False) -> list[str]:
    """Write out the Rust crate that launches a bundle, its C header and the examples.

    Args:
        out: The folder; it is written whole or not at all.
        force: Replace the crate that is there.

    Returns:
        The files' paths below it.

    Raises:
        InputError: Something is there already, or it cannot be written.
    """
    from rooftile.export.crate import crate_files
    from rooftile.export.write import CRATE, check_folder, write_folder

    files = crate_files()
    write_folder(check_folder(out, force, CRATE), files, force)
    return list(files)
