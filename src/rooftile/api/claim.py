"""Published benchmarks against physics: ``rooftile.claim(...)``, ``rooftile.claims_from_file``."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
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
    shape: str | Mapping[str, int | float | str],
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

    for name, value in (("op", op), ("dtype", dtype)):
        if not isinstance(value, str | None):
            raise InputError(f"{name} must be a name, got {value!r}")
    for name, flag in (("causal", causal), ("unfused", unfused), ("sparse", sparse)):
        if not isinstance(flag, bool | None):
            raise InputError(f"{name} must be true or false, got {flag!r}")
    device = choose_device(gpu)
    given = Claim(
        op=op,
        shape=_sizes(shape),
        gpu=device.id,
        label=label,
        dtype=None if dtype is None else known(dtype).name,
        time_s=parse_seconds(time) if isinstance(time, str) else _figure("time", time),
        causal=causal,
        unfused=unfused,
        sparse=sparse,
        bandwidth_bytes_per_s=(
            parse_quantity(bandwidth, "bandwidth", "B/s")
            if isinstance(bandwidth, str)
            else _figure("bandwidth", bandwidth)
        ),
        memory_bytes=(
            parse_quantity(memory, "memory", "B")
            if isinstance(memory, str)
            else _figure("memory", memory)
        ),
    )
    return check_claim(given, device)


def claims_from_file(path: str | Path) -> ClaimTable:
    """Check a table of claims: a CSV with a header, or a list of objects in JSON or YAML.

    Columns are the arguments of :func:`claim`: label, op, shape, gpu, dtype, time, bandwidth,
    memory, causal, unfused, sparse. An empty cell says nothing.

    Args:
        path: ``*.csv``, ``*.json``, ``*.yaml`` or ``*.yml``.

    Returns:
        A report a row.

    Raises:
        InputError: The file cannot be read, or a row is wrong; the message names the row.
        FileFormatError: It is none of these, or has an unknown column.
    """
    from rooftile.records.claim import ClaimTable

    name = str(path)
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{name} is no UTF-8 text: {error.reason}") from error
    read = _READERS.get(Path(name).suffix.lower())
    if read is None:
        raise FileFormatError(f"{name} must end in {', '.join(_READERS)}")
    rows = read(text, name)
    reports = []
    for number, row in enumerate(rows, start=1):
        try:
            reports.append(claim(**_arguments(row)))
        except RooftileError as error:
            raise type(error)(f"{name}, claim {number}: {error}") from error
    return ClaimTable(tuple(reports))


def _figure(name: str, value: object) -> float | None:
    """A number in plain units, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InputError(f"{name} must be a number, or text with a unit, got {value!r}")
    return value


def _sizes(shape: object) -> dict[str, int]:
    """Sizes by name, out of a mapping or of ``name=N`` parted by commas or blanks."""
    given: dict[Any, Any] = {}
    if isinstance(shape, Mapping):
        given = dict(shape)
    elif isinstance(shape, str):
        text = re.sub(r"\s*=\s*", "=", shape.strip())
        parts = [part.partition("=") for part in re.split(r"[,;\s]+", text) if part]
        given = {name: number if equals else None for name, equals, number in parts}
        if len(given) < len(parts):
            raise InputError(f"shape must name each size once, got {shape!r}")
    sizes = {name: _size(number) for name, number in given.items()}
    if None in sizes.values() or not (isinstance(shape, Mapping) or sizes):
        raise InputError(
            f"shape must be whole sizes such as batch=16,heads=32,seq=4096,dim=128, got {shape!r}"
        )
    return {str(name): size for name, size in sizes.items() if size is not None}


def _size(number: object) -> int | None:
    """A whole number, as it is or as text such as ``"4096"`` and ``"1e9"``; None of all else."""
    from rooftile.units import parse_quantity

    if isinstance(number, str):
        try:
            number = parse_quantity(number)
        except InputError:  # the caller shows the whole shape
            return None
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return int(number) if number == number // 1 else None


def _csv_rows(text: str, name: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    rows = [{key: value or None for key, value in row.items()} for row in reader]
    return [_known(row, name) for row in rows] or _nothing(name)


def _json_rows(text: str, name: str) -> list[dict[str, Any]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{name} is truncated or no JSON: {error}") from error
    return _listed(content, name)


def _yaml_rows(text: str, name: str) -> list[dict[str, Any]]:
    import msgspec

    try:
        content = msgspec.yaml.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise FileFormatError(f"{name} is truncated or no YAML: {said}") from error
    return _listed(content, name)


def _listed(content: Any, name: str) -> list[dict[str, Any]]:
    """The claims of a document."""
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise FileFormatError(f"{name} must hold a list of claims, each an object")
    return [_known(row, name) for row in content] or _nothing(name)


_READERS: dict[str, Callable[[str, str], list[dict[str, Any]]]] = {
    ".csv": _csv_rows,
    ".json": _json_rows,
    ".yaml": _yaml_rows,
    ".yml": _yaml_rows,
}


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
    for needed in ("op", "gpu"):
        if needed not in row:
            raise InputError(f"{needed} must be given, got none")
    flags: dict[str, Any] = {
        name: _flag(name, row[name]) for name in ("causal", "unfused", "sparse") if name in row
    }
    # a row without a shape is told which sizes its op has
    return {"shape": {}, **row, **flags, "label": str(row.get("label", ""))}


def _flag(name: str, value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in (*_YES, *_NO):
        raise InputError(f"{name} must be yes or no, got {value!r}")
    return word in _YES


def claims_from_rows(rows: Iterable[Mapping[str, Any]]) -> ClaimTable:
    """Check claims that are at hand: each a row of a table, as :func:`claims_from_file` reads it.

    Raises:
        InputError: What :func:`claim` raises.
    """
    from rooftile.records.claim import ClaimTable

    return ClaimTable(tuple(claim(**_arguments(dict(row))) for row in rows))


def claims_from_arguments(**given: Any) -> ClaimTable:
    """One claim as a table; arguments as :func:`claim`'s, None where there is none.

    Raises:
        InputError: Op, shape or GPU is missing, or what :func:`claim` raises.
    """
    from rooftile.records.claim import ClaimTable

    row = {name: value for name, value in given.items() if value is not None}
    return ClaimTable((claim(**_arguments(row)),))
