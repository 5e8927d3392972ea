"""Inputs with their exact results, by which a launch from outside Python is checked."""

from __future__ import annotations

import ctypes
import hashlib
import zlib
from collections.abc import Mapping

import torch
from torch import Tensor

from rooftile.export.formula import evaluate
from rooftile.export.ops import DTYPES, TENSOR_DTYPES, OpSpec
from rooftile.records.manifest import BundleFile, Golden


def golden_of(name: str, spec: OpSpec, dtype: str, tuned: int) -> tuple[Golden, dict[str, bytes]]:
    """An op's result on numbers that are the same every time.

    Args:
        name: Of the op.
        spec: The op.
        dtype: Of its inputs; the result is computed in float64 and written in float32.
        tuned: Value of the size that decides about the kernel.

    Returns:
        What the manifest says of it, and its files.
    """
    sizes = {**spec.golden, spec.tuned.size: tuned}
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {dtype} {tuned}".encode()))
    inputs = {
        key: _numbers(
            [evaluate(extent, sizes) for extent in shape],
            TENSOR_DTYPES[spec.dtype_of(key, dtype)][0],
            sizes.get(spec.below.get(key, ""), 0),
            generator,
        )
        for key, shape in spec.inputs.items()
    }
    results = spec.reference(inputs)
    outputs = dict(
        zip(spec.outputs, results if isinstance(results, tuple) else (results,), strict=True)
    )
    stem = f"golden/{name}_{DTYPES[dtype][1]}_{spec.tuned.letter}{tuned}"
    files = {
        f"{stem}.{key}.{TENSOR_DTYPES[spec.dtype_of(key, dtype)][1]}": _bytes(t)
        for key, t in inputs.items()
    }
    exact = {f"{stem}.{key}.fp32": _bytes(t.float()) for key, t in outputs.items()}
    golden = Golden(
        op=name,
        dtype=dtype,
        sizes=sizes,
        inputs=_listed(inputs, files),
        outputs=_listed(outputs, exact),
    )
    return golden, {**files, **exact}


def _numbers(
    shape: list[int], dtype: torch.dtype, below: int, generator: torch.Generator
) -> Tensor:
    """Normal numbers, or whole ones from 0 to under ``below``."""
    if below:
        return torch.randint(below, shape, generator=generator, dtype=dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def listed(path: str, content: bytes) -> BundleFile:
    """What a manifest says of a file."""
    return BundleFile(path, len(content), hashlib.sha256(content).hexdigest())


def _listed(names: Mapping[str, Tensor], files: Mapping[str, bytes]) -> dict[str, BundleFile]:
    return {
        name: listed(path, content)
        for name, (path, content) in zip(names, files.items(), strict=True)
    }


def _bytes(tensor: Tensor) -> bytes:
    """Elements in row-major order, as they lie in memory."""
    tensor = tensor.contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
