"""Published benchmarks against physics: ``rooftile.claim(...)``, ``rooftile.claims_from_file``."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooftile.errors import FileFormatError, InputError, RooftileError

if TYPE_CHECKING:
    from rooftile.records.claim import ClaimReport, ClaimTable
    from rooftile.records.device import Device

FIELDS = [
    "label",
    "op",
    "shape",
    "gpu",
    "dtype",
    "time",
    "bandwidth",
    "memory",
    "causal",
    "unfused",
    "sparse",
]  # of a table's row
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")


def claim(
    op: str,
    shape: str | Mapping[str, int],
    *,
    gpu: str | Device,
    time: float | str | None = None,
    dtype: str | None = None,
    causal: bool | None = None,
    unfused: bool = False,
    sparse: bool = False,
    bandwidth: float | str | None = None,
    memory: float | str | None = None,
    label: str = "",
) -> ClaimReport:
    """Say whether physics allows a published benchmark, and by which factor not.

    Each figure is checked on its own; where the claim is silent (dtype, mask) every reading is.

    Args:
        op: ``"attention"``, ``"matmul"``, ``"softmax"``, ``"rms_norm"``, ``"layer_norm"``,
            ``"copy"``.
        shape: Sizes by name, or text: ``"batch=16,heads=32,seq=4096,dim=128"``.
        gpu: The GPU they name, a JSON file of one, or a record.
        time: Of one call [s], or text: ``"1.14 ms"``.
        dtype: Of the operands; None where they do not say.
        causal: Whether attention is masked; None where they do not say.
        unfused: Attention in three kernels, the scores written and read again.
        sparse: They say that they use 2:4 sparsity; never counted for attention.
        bandwidth: Printed as achieved [B/s], or text: ``"2.0 TB/s"``.
        memory: Printed as peak memory [B], or text: ``"64 MB"``.
        label: What they call it.

    Returns:
        Every reading with its checks, the kindest first; the answer is that of the kindest.

    Raises:
        InputError: The op, its shape or a figure is wrong or missing.
        UnknownDeviceError: No GPU has that name.
    """
    from rooftile.api.device import choose_device
    from rooftile.cost.claim import check_claim
    from rooftile.records.claim import Claim
    from rooftile.spec.dtypes import dtype as known
    from rooftile.units import parse_quantity, parse_seconds

    device = choose_device(gpu)
    sizes = _sizes(shape) if isinstance(shape, str) else dict(shape)
    given = Claim(
        op=op,
        shape=sizes,
        gpu=device.id,
        label=label,
        dtype=None if dtype is None else known(dtype).name,
        time_s=parse_seconds(time) if isinstance(time, str) else time,
        causal=causal,
        unfused=unfused,
        sparse=sparse,
        bandwidth_bytes_per_s=(
            parse_quantity(bandwidth, "bandwidth", "B/s")
            if isinstance(bandwidth, str)
            else bandwidth
        ),
        memory_bytes=parse_quantity(memory, "memory", "B") if isinstance(memory, str) else memory,
    )
    return check_claim(given, device)


def claims_from_file(path: str | Path) -> ClaimTable:
    """Check a table of claims: a CSV with a header, or a JSON list of objects.

    Columns are the arguments of :func:`claim`: label, op, shape, gpu, dtype, time, bandwidth,
    memory, causal, unfused, sparse. An empty cell says nothing.

    Args:
        path: ``*.csv`` or ``*.json``.

    Returns:
        A report a row.

    Raises:
        InputError: The file cannot be read, or a row is wrong; the message names the row.
        FileFormatError: It is neither, or has an unknown column.
    """
    from rooftile.records.claim import ClaimTable

    name = str(path)
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{name} is no UTF-8 text: {error.reason}") from error
    rows = _json_rows(text, name) if name.lower().endswith(".json") else _csv_rows(text, name)
    reports = []
    for number, row in enumerate(rows, start=1):
        try:
            reports.append(claim(**_arguments(row)))
        except RooftileError as error:
            raise type(error)(f"{name}, claim {number}: {error}") from error
    return ClaimTable(tuple(reports))


def _sizes(text: str) -> dict[str, int]:
    """Sizes out of ``name=N`` parted by commas or blanks."""
    sizes = {}
    for part in re.split(r"[,;\s]+", text.strip()):
        name, _, number = part.partition("=")
        if not number.isdecimal():
            raise InputError(
                f"shape must be sizes such as batch=16,heads=32,seq=4096,dim=128, got {text!r}"
            )
        sizes[name] = int(number)
    return sizes


def _csv_rows(text: str, name: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    rows = [{key: value or None for key, value in row.items()} for row in reader]
    return [_known(row, name) for row in rows] or _nothing(name)


def _json_rows(text: str, name: str) -> list[dict[str, Any]]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise FileFormatError(f"{name} is truncated or no JSON: {error}") from error
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise FileFormatError(f"{name} must hold a list of claims, each an object")
    return [_known(row, name) for row in content] or _nothing(name)


def _nothing(name: str) -> list[dict[str, Any]]:
    raise FileFormatError(f"{name} holds no claim")


def _known(row: dict[str, Any], name: str) -> dict[str, Any]:
    unknown = [str(key) for key in row if key not in FIELDS]
    if unknown:
        known = ", ".join(FIELDS)
        raise FileFormatError(f"{name}: columns are {known}, got {', '.join(unknown)}")
    return {key: value for key, value in row.items() if value not in (None, "")}


def _arguments(row: dict[str, Any]) -> dict[str, Any]:
    """A row as arguments of :func:`claim`."""
    for needed in ("op", "shape", "gpu"):
        if needed not in row:
            raise InputError(f"{needed} must be given, got none")
    flags: dict[str, Any] = {
        name: _flag(name, row[name]) for name in ("causal", "unfused", "sparse") if name in row
    }
    return {**row, **flags}


def _flag(name: str, value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in (*_YES, *_NO):
        raise InputError(f"{name} must be yes or no, got {value!r}")
    return word in _YES


def claims_from_arguments(**given: Any) -> ClaimTable:
    """One claim as a table; arguments as :func:`claim`'s, None where there is none.

    Raises:
        InputError: Op, shape or GPU is missing, or what :func:`claim` raises.
    """
    from rooftile.records.claim import ClaimTable

    row = {name: value for name, value in given.items() if value is not None}
    return ClaimTable((claim(**_arguments(row)),))
