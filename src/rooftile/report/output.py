"""Where data goes: a file, written whole or not at all, or stdout for ``-``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

from rooftile.errors import InputError
from rooftile.records import io
from rooftile.records.agreement import Agreement
from rooftile.records.claim import ClaimTable
from rooftile.records.estimate import Estimate
from rooftile.records.files import check_destination, write_whole
from rooftile.records.io import Record
from rooftile.records.measurement import Measurement
from rooftile.records.plan import Plan
from rooftile.records.whatif import WhatIf
from rooftile.report.agreement import agreement_lines
from rooftile.report.bench_text import write_measurements
from rooftile.report.claim import claim_lines
from rooftile.report.columns import write_lines
from rooftile.report.table import By, audit_csv
from rooftile.report.text import write_audit
from rooftile.report.whatif import write_what_if

STDOUT = "-"


def check_destinations(reads: Sequence[str | None] = (), /, **destinations: str | None) -> None:
    """Refuse destinations that cannot be written, before any work is done for them.

    Args:
        reads: Files that the command reads, which it must not write over.
        **destinations: Option's name to file name, ``"-"`` or None.

    Raises:
        InputError: A folder does not exist, two of them want stdout or one file, or one would
            write over what is read.
    """
    given = {name: path for name, path in destinations.items() if path is not None}
    to_stdout = [f"--{name}" for name, path in given.items() if path == STDOUT]
    if len(to_stdout) > 1:
        raise InputError(f"only one of {' and '.join(to_stdout)} can be - (stdout)")
    taken = {os.path.realpath(path): f"is what {path} is read from" for path in filter(None, reads)}
    for name, path in given.items():
        if path == STDOUT:
            continue
        check_destination(path)
        place = os.path.realpath(path)
        if place in taken:
            raise InputError(f"--{name} {path} {taken[place]}: it needs a file of its own")
        if os.path.isfile(place) or not os.path.exists(place):  # a device takes all
            taken[place] = f"is the file of --{name}"


def source_of(target: str | None) -> str | None:
    """The file that a target is read from: all of it, or what stands before ``:callable``."""
    if target is None or os.path.exists(target):
        return target
    return target.rpartition(":")[0] or None


def deliver(data: bytes, destination: str) -> None:
    """Write data to a file, whole or not at all, or to stdout for ``"-"``.

    Raises:
        InputError: The file cannot be written.
    """
    if destination == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)  # JSON is UTF-8 whatever the locale's encoding
        return
    write_whole(destination, data)


def record_json(record: Record) -> bytes:
    """A record as JSON of one line."""
    return io.to_json(record)


def hand_out_audit(
    estimate: Estimate,
    *,
    by: By | None = None,
    top: int | None = None,
    json_to: str | None = None,
    csv_to: str | None = None,
    plan: Plan | None = None,
    plan_to: str | None = None,
    agreement: Agreement | None = None,
    table: bool = True,
) -> None:
    """Write an audit: the files that are asked for, and the table where stdout is free for it.

    Args:
        estimate: The audit.
        by: One row a group of ops, in the table and in the CSV.
        top: Only so many rows, in the table and in the CSV; the JSON has all.
        json_to: File for the JSON, or ``"-"``.
        csv_to: File for the CSV, or ``"-"``.
        plan: What to do about its ops.
        plan_to: File for the plan's JSON, or ``"-"``.
        agreement: What torch.compile said of it; stderr has it where stdout is taken.
        table: Whether the table is wanted.

    Raises:
        InputError: A file cannot be written, ``by`` or ``top`` is out of range.
    """
    if json_to is not None:
        deliver(record_json(estimate), json_to)
    if csv_to is not None:
        deliver(audit_csv(estimate, by=by, top=top).encode(), csv_to)
    if plan_to is not None and plan is not None:
        deliver(record_json(plan), plan_to)
    if table and STDOUT not in (json_to, csv_to, plan_to):
        write_audit(estimate, sys.stdout, by=by, top=top, plan=plan)
    if agreement is not None:
        taken = STDOUT in (json_to, csv_to, plan_to)
        write_lines(agreement_lines(agreement), sys.stderr if taken else sys.stdout)
    for path in (json_to, csv_to, plan_to):
        if path is not None and path != STDOUT:
            print(f"wrote {path}", file=sys.stderr)


def hand_out_what_if(found: WhatIf, *, top: int | None = None, json_to: str | None = None) -> None:
    """Write a comparison of GPUs: the JSON that is asked for, the table where stdout is free.

    Raises:
        InputError: A file cannot be written.
    """
    if json_to is not None:
        deliver(record_json(found), json_to)
    if json_to != STDOUT:
        write_what_if(found, sys.stdout, top=top)
    if json_to is not None and json_to != STDOUT:
        print(f"wrote {json_to}", file=sys.stderr)


def hand_out_benchmark(
    rows: Sequence[Measurement],
    *,
    json_to: str | None = None,
    html_to: str | None = None,
    claims: ClaimTable | None = None,
    out: TextIO,
) -> None:
    """Write a benchmark: the files that are asked for, and the table where stdout is free for it.

    Args:
        rows: What was measured.
        json_to: File for one JSON record a line, or ``"-"``.
        html_to: File for the page, or ``"-"``.
        claims: What physics says of figures that others printed of these shapes.
        out: Where the table goes.

    Raises:
        InputError: A file cannot be written.
    """
    if json_to is not None:
        deliver(b"".join(map(record_json, rows)), json_to)
    if html_to is not None:
        from rooftile.report.bench_html import bench_html

        deliver(bench_html(rows, claims=claims).encode(), html_to)
    if STDOUT not in (json_to, html_to):
        write_measurements(rows, out)
        if claims is not None and claims.reports:
            write_lines([(("", ""),), *claim_lines(claims)], out)
    for path in (json_to, html_to):
        if path is not None and path != STDOUT:
            print(f"wrote {path}", file=sys.stderr)
