"""A saved audit back into a record: ``rooftile.load("report.json")``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rooftile.errors import FileFormatError

if TYPE_CHECKING:
    from rooftile.records.estimate import Estimate
    from rooftile.records.plan import Plan


def load(path: str | Path) -> Estimate | Plan:
    """The estimate or plan in a file that an audit wrote; torch is not needed.

    Args:
        path: The JSON file.

    Raises:
        InputError: The file cannot be read.
        FileFormatError: It is truncated, of another schema version, or holds another record.
    """
    from rooftile.records.estimate import Estimate
    from rooftile.records.io import read_record
    from rooftile.records.plan import Plan

    record = read_record(path)
    if not isinstance(record, Estimate | Plan):
        raise FileFormatError(
            f"{path}: a report is made of a rooftile.estimate or a rooftile.plan, "
            f"got a {record.kind}"
        )
    return record
