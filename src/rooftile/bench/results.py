"""Measurements as lines of a file: one record a line, readable again with ``records.io``.

Written with the standard library alone, so that a bare machine with a GPU can do it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from rooftile.errors import InputError
from rooftile.records.measurement import Measurement


def to_line(measurement: Measurement) -> str:
    """One measurement as JSON of one line, its end included; dimensions stay in their order."""
    return json.dumps(asdict(measurement), allow_nan=False) + "\n"


def append(path: str | Path, measurements: Iterable[Measurement]) -> None:
    """Add lines to a file and see them to the disk, so that nothing is lost with the machine.

    Raises:
        InputError: The file cannot be written.
    """
    text = "".join(map(to_line, measurements))
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def file_of(root: str | Path, measurement: Measurement) -> Path:
    """``<root>/<gpu>/<date>.jsonl`` of the run that a measurement is of."""
    environment = measurement.environment
    gpu = environment.gpu_id or environment.gpu.lower().replace(" ", "-") or "unknown"
    return Path(root) / gpu / f"{environment.started[:10]}.jsonl"
