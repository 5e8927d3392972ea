"""Records to JSON and back: the one place that reads and writes them.

A file holds one record. Its ``kind`` says which, its ``schema_version`` which edition; a file of
another edition is refused, never guessed at. The same record gives the same bytes every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from rooftile.errors import FileFormatError, InputError
from rooftile.records.agreement import Agreement
from rooftile.records.chain import Chain
from rooftile.records.claim import ClaimTable
from rooftile.records.device import Device
from rooftile.records.difference import Difference
from rooftile.records.estimate import Estimate
from rooftile.records.files import write_whole
from rooftile.records.gate import GateResult
from rooftile.records.graph import Attr, Graph, Scalar
from rooftile.records.manifest import Manifest
from rooftile.records.measurement import Measurement
from rooftile.records.occupancy import Occupancy, SimpleOccupancy
from rooftile.records.plan import Plan
from rooftile.records.resources import KernelResources, Sweep, Traffic
from rooftile.records.roofline import Roofline
from rooftile.records.tile import RowTile, TilePlan
from rooftile.records.timeline import Timeline
from rooftile.records.whatif import WhatIf

Record = (
    Plan
    | Estimate
    | Graph
    | Device
    | Roofline
    | Agreement
    | Chain
    | ClaimTable
    | Difference
    | GateResult
    | KernelResources
    | Manifest
    | Measurement
    | Occupancy
    | RowTile
    | SimpleOccupancy
    | Sweep
    | TilePlan
    | Timeline
    | Traffic
    | WhatIf
)
R = TypeVar("R", bound=Record)

# kind in the file -> record
KINDS: dict[str, type[Record]] = {
    "rooftile.plan": Plan,
    "rooftile.estimate": Estimate,
    "rooftile.graph": Graph,
    "rooftile.device": Device,
    "rooftile.roofline": Roofline,
    "rooftile.agreement": Agreement,
    "rooftile.chain": Chain,
    "rooftile.claims": ClaimTable,
    "rooftile.difference": Difference,
    "rooftile.gate": GateResult,
    "rooftile.kernel_resources": KernelResources,
    "rooftile.manifest": Manifest,
    "rooftile.measurement": Measurement,
    "rooftile.occupancy": Occupancy,
    "rooftile.row_tile": RowTile,
    "rooftile.simple_occupancy": SimpleOccupancy,
    "rooftile.sweep": Sweep,
    "rooftile.tile_plan": TilePlan,
    "rooftile.timeline": Timeline,
    "rooftile.traffic": Traffic,
    "rooftile.whatif": WhatIf,
}

# JSON has no infinity, and a mask is filled with one: as an op's attribute it becomes this text
_NOT_FINITE = {"float:inf": math.inf, "float:-inf": -math.inf, "float:nan": math.nan}


def to_json(record: Record) -> bytes:
    """A record as JSON of one line, its end included; equal records give equal bytes.

    Raises:
        InputError: The object is no record that has a file.
    """
    if not isinstance(record, tuple(KINDS.values())):
        raise InputError(f"record must be one of {_words(KINDS)}, got {type(record).__name__}")
    # keys must be text before they can be sorted
    plain = msgspec.to_builtins(_with_text_for_infinity(record), str_keys=True)
    return msgspec.json.encode(plain, order="deterministic") + b"\n"


def from_json(data: bytes, record: type[R], source: str = "JSON") -> R:
    """A record out of its JSON.

    Args:
        data: The whole JSON text.
        record: Which record it must hold.
        source: Where it comes from, for messages: a file's name.

    Raises:
        FileFormatError: The text is truncated or malformed, holds another kind of record or
            another schema version, or a field has another type; the message says which.
    """
    _check_header(data, record, source)
    try:
        decoded = msgspec.json.decode(data, type=record)
    except msgspec.DecodeError as error:
        raise FileFormatError(f"{source} does not hold a {_kind_of(record)}: {error}") from error
    return _with_infinity(decoded)


def read_record(path: str | Path) -> Record:
    """The record in a file, whichever it is.

    Raises:
        InputError: The file cannot be read.
        FileFormatError: It is truncated, of an unknown kind or of another schema version.
    """
    source = str(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}") from error
    kind = _header(data, source).kind
    if kind not in KINDS:
        raise FileFormatError(f"{source}: kind must be one of {_words(KINDS)}, got {kind!r}")
    return from_json(data, KINDS[kind], source)


def read_lines(path: str | Path, record: type[R]) -> list[R]:
    """The records in a file that holds one a line, all of one kind.

    Raises:
        InputError: The file cannot be read.
        FileFormatError: A line is torn, or holds something else; the message has its number.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    lines = enumerate(data.splitlines(), start=1)
    return [from_json(line, record, f"{path}:{number}") for number, line in lines if line.strip()]


def write_record(path: str | Path, record: Record) -> None:
    """Write a record to a file, whole or not at all.

    Raises:
        InputError: The folder does not exist or cannot be written to.
    """
    write_whole(path, to_json(record))


def json_schema(record: type[Record]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a record's file."""
    schema = msgspec.json.schema(record)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


class _Header(msgspec.Struct):
    """What is read of a file before the rest is believed."""

    kind: str = ""
    schema_version: int | None = None


def _header(data: bytes | msgspec.Raw, source: str) -> _Header:
    """A record's kind and version."""
    try:
        return msgspec.json.decode(data, type=_Header)
    except msgspec.ValidationError as error:
        raise FileFormatError(f"{source} is no record of Rooftile: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{source} is truncated or no JSON: {error}") from error


def _check_header(data: bytes | msgspec.Raw, record: type[Any], source: str) -> None:
    """Kind and version must be ours, here and in the records within."""
    header = _header(data, source)
    if header.kind != _kind_of(record):
        raise FileFormatError(f"{source}: kind must be {_kind_of(record)!r}, got {header.kind!r}")
    wanted = _field(record, "schema_version").default
    if header.schema_version != wanted:
        raise FileFormatError(
            f"{source}: schema_version of a {header.kind} must be {wanted}, "
            f"got {header.schema_version}"
        )
    parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    for name, inner in get_type_hints(record).items():
        if inner in KINDS.values() and name in parts:
            _check_header(parts[name], inner, f"{source}: {name}")


def _field(record: type[Any], name: str) -> Field[Any]:
    """The dataclass field of that name."""
    return next(field for field in fields(record) if field.name == name)


def _kind_of(record: type[Any]) -> str:
    """The kind a record's file carries."""
    return str(_field(record, "kind").default)


def _words(names: dict[str, Any]) -> str:
    """Names for a message."""
    return ", ".join(names)


def _with_text_for_infinity(record: R) -> R:
    """Attributes that JSON cannot hold, as text."""
    texts = {repr(number): text for text, number in _NOT_FINITE.items()}

    def encode(value: Scalar) -> Scalar:
        finite = not isinstance(value, float) or math.isfinite(value)
        return value if finite else texts[repr(value)]

    return _map_attrs(record, encode)


def _with_infinity(record: R) -> R:
    """The text of such attributes back to numbers."""

    def decode(value: Scalar) -> Scalar:
        return _NOT_FINITE.get(value, value) if isinstance(value, str) else value

    return _map_attrs(record, decode)


def _map_attrs(record: R, change: Callable[[Scalar], Scalar]) -> R:
    """The record with every attribute of its ops changed."""

    def changed(attr: Attr) -> Attr:
        return tuple(change(value) for value in attr) if isinstance(attr, tuple) else change(attr)

    if isinstance(record, Plan):
        return cast(R, replace(record, estimate=_map_attrs(record.estimate, change)))
    if isinstance(record, Estimate):
        return cast(R, replace(record, graph=_map_attrs(record.graph, change)))
    if isinstance(record, Graph):
        ops = tuple(
            replace(op, attrs={name: changed(attr) for name, attr in op.attrs.items()})
            for op in record.ops
        )
        return cast(R, replace(record, ops=ops))
    return record
