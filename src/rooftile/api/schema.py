"""The JSON Schema of Rooftile's files."""

from __future__ import annotations

from typing import Any

from rooftile.errors import InputError

PREFIX = "rooftile."


def schema(record: str = "estimate") -> dict[str, Any]:
    """The JSON Schema (2020-12) of a record's file.

    Args:
        record: ``"estimate"`` (what an audit writes), ``"plan"``, ``"graph"``, ``"device"``,
            ``"roofline"``, ``"chain"``, ``"claims"``, ``"difference"``,
            ``"gate"``, ``"whatif"`` or ``"agreement"``.

    Raises:
        InputError: There is no such record.
    """
    from rooftile.records.io import KINDS, json_schema

    kind = PREFIX + record
    if kind not in KINDS:
        names = ", ".join(name.removeprefix(PREFIX) for name in KINDS)
        raise InputError(f"record must be one of {names}, got {record!r}")
    return json_schema(KINDS[kind])
